"""What a run on features costs after they are computed: processor time, memory, and where the time goes.

    python benchmarks/frozen_cost.py [--rows 100000] [--width 768] [--classes 10]

The features are drawn at random around a centre for each class, and mapped from a file as those of a pretrained network
are; 40% of the labels are redrawn, ten of each class are trusted. Memory is what the process takes at most beyond what
it took before, the pages of the file included.
"""

import argparse
import cProfile
import pstats
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from karat import Config, make_task
from karat.audit.run_audit import audit
from karat.data.examples import Dataset, Examples
from karat.data.feature_store import StoredRows
from karat.data.settings import DataSettings, NoiseSettings
from karat.training.audit_record import audit_record
from karat.training.fit import fit
from karat.training.trainer import Trainer

SHOWN = ("smoothed", "features", "hear", "decide", "fit_classifier", "audit")


def written(path: Path, labels: np.ndarray, width: int, classes: int) -> np.ndarray:
    """Write features of these labels, a piece at a time, and map the file."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(classes, width)).astype(np.float32)
    with path.open("wb") as file:
        for some in np.array_split(labels, max(1, len(labels) // 1_000)):
            (centres[some] + 4 * random.normal(size=(len(some), width))).astype(np.float32).tofile(file)
    return np.memmap(path, dtype=np.float32, mode="r", shape=(len(labels), width))


def main() -> None:
    """Print time, memory and the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("rows", 100_000), ("width", 768), ("classes", 10)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    torch.set_num_threads(1)
    labels = np.arange(options.rows) % options.classes
    with tempfile.TemporaryDirectory() as folder:
        features = written(Path(folder) / "features.f32", labels, options.width, options.classes)
        inputs, rows = StoredRows(features, torch.arange(options.rows)), torch.arange(options.rows)
        dataset = Dataset(
            "features",
            Examples(inputs, torch.from_numpy(labels)),
            Examples(inputs.subset(slice(0, 0)), torch.empty(0, dtype=torch.int64)),
            tuple(map(str, range(options.classes))),
            flip=False,
            rows=rows,
            featured=True,
        )
        task = make_task(dataset, DataSettings(trusted_per_class=10), NoiseSettings("uniform", 0.4))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        began, processor = time.perf_counter(), time.process_time()
        profile = cProfile.Profile()
        with profile:
            trainer = Trainer(Config(), task)
            fit(trainer, evaluate=False)
            found = audit(audit_record(trainer, trainer.finished_models("selected")["selected"]))
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    size = 4 * options.rows * options.width
    print(
        f"{options.rows:,} x {options.width}: {processor:.0f} s of a processor ({seconds:.0f} s on the clock), "
        f"{more / size:.1f} times the features' {size / 2**20:,.0f} MiB; noise rate {found.estimate.rate:.3f}"
    )
    for (file, _, name), (_, _, _, total, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if name in SHOWN and "karat" in file:
            print(f"  {total:7.1f} s  {Path(file).stem}.{name}")


if __name__ == "__main__":
    main()
