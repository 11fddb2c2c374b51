"""What a run on features costs after they are computed: processor time, memory, and where the time goes.

    python benchmarks/frozen_cost.py [--rows 100000] [--width 768] [--classes 10] [--folder FOLDER]
    python benchmarks/frozen_cost.py --rows 1000000 --width 256

The features are drawn at random around a centre for each class, and mapped from a file as those of a pretrained network
are; 40% of the labels are redrawn, ten of each class are trusted. Memory is what the process takes at most beyond what
it took before: all of it, which includes pages of the file that the system may take back at any time, and what is the
process's own. Parts are in seconds on the clock.
"""

import argparse
import cProfile
import os
import pstats
import tempfile
import threading
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

SHOWN = ("look_at", "hear", "others", "decide", "fit_classifier", "audit")


class Memory:
    """The most bytes that the process takes between two moments, looked at ten times a second."""

    def __enter__(self) -> "Memory":
        self.before, self.most, self.most_own = self._taken()[0], 0, 0
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            whole, shared = self._taken()
            self.most = max(self.most, whole - self.before)
            self.most_own = max(self.most_own, whole - shared)

    @staticmethod
    def _taken() -> tuple[int, int]:
        """Return how many bytes are in memory, and how many of them belong to files."""
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
        return resident * os.sysconf("SC_PAGE_SIZE"), shared * os.sysconf("SC_PAGE_SIZE")


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
    parser.add_argument("--folder", type=Path, default=None, help="Where the file of the features is for a while.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    labels = np.arange(options.rows) % options.classes
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
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
        began, processor = time.perf_counter(), time.process_time()
        profile = cProfile.Profile()
        with Memory() as memory, profile:
            trainer = Trainer(Config(), task)
            fit(trainer, evaluate=False)
            found = audit(audit_record(trainer, trainer.finished_models("selected")["selected"]))
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
    size = 4 * options.rows * options.width
    print(
        f"{options.rows:,} x {options.width}: {processor:.0f} s of a processor ({seconds:.0f} s on the clock), "
        f"{memory.most / size:.1f} times the features' {size / 2**20:,.0f} MiB; at most {memory.most_own / 2**20:,.0f} "
        f"MiB of its own; noise rate {found.estimate.rate:.3f}"
    )
    for (file, _, name), (_, _, _, total, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if name in SHOWN and "karat" in file:
            print(f"  {total:7.1f} s  {Path(file).stem}.{name}")


if __name__ == "__main__":
    main()
