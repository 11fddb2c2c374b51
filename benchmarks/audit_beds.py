"""Find wrong labels that were added: Karat's label_quality, whether it keeps its word, and cleanlab beside it.

    python benchmarks/audit_beds.py FILE.csv [--beds digits wine breast_cancer fashion_mnist cifar10]
        [--noise uniform:0.4 semantic ...] [--seeds 1] [--data FOLDER] [--cleanlab OLD.csv]
    python benchmarks/audit_beds.py FILE.csv --table

A bed is a dataset with a number of steps: digits (15 epochs), wine and breast cancer (nothing is trained), 20,000
images of Fashion-MNIST (Debian's package dataset-fashion-mnist) and 10,000 of CIFAR-10 (in FOLDER), 1,200 steps each;
10 trusted a class, one thread. On each noise:

- `karat train` with its defaults;
- cleanlab with the same network: four of them, each trained plainly without a quarter of the rows, predict that
  quarter, with two thirds as many steps each (200 at least): about Karat's processor time for images. It takes no
  trusted labels. Of vectors the network is the one that plain training takes.

A line of FILE.csv is a fit; lines that are there are not made again. What is cleanlab's does not change with Karat: it
is taken from OLD.csv where that has it. `--table` prints FILE.csv as a table. AUROC is that of finding the wrong
labels, `calibration_error` the expected calibration error of label_quality over ten bins.
"""

import argparse
import csv
import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import roc_auc_score

from karat import Config, read_config, read_safe_csv, train
from karat.methods.settings import CleanlabSettings, MethodSettings
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

FOLDS = 4
BEDS: dict[str, dict[str, Any]] = {
    "digits": {"training.epochs": 15},
    "wine": {},
    "breast_cancer": {},
    "fashion_mnist": {"data.limit": 20_000, "training.steps": 1_200, "training.batch_size": 100},
    "cifar10": {"data.limit": 10_000, "training.steps": 1_200, "training.batch_size": 100},
}
NOISES = ("uniform:0.2", "uniform:0.4", "uniform:0.8", "asymmetric:0.4", "instance:0.4", "semantic")
OF_CLEANLAB = ("cleanlab_self_confidence", "cleanlab_normalized_margin")
COLUMNS = (
    "bed", "noise", "seed", "wrong", "accuracy", "auroc", *OF_CLEANLAB, "calibration_error",
    "rate", "low", "high", "changed", "claimed", "right",
)  # fmt: skip


def cleanlab_aurocs(config: Config) -> dict[str, float]:
    """Train without each fold and let cleanlab rank the labels by what is predicted."""
    whole = Trainer(config, task_of(config))
    steps = max(2 * whole.total_steps // 3, 200)
    training = replace(config.training, epochs=None, steps=(FOLDS + 1) * steps)
    methods = MethodSettings(cleanlab=CleanlabSettings(folds=FOLDS, fold_share=1 / (FOLDS + 1)))
    trainer = Trainer(replace(config, method="cleanlab", methods=methods, training=training), whole.task)
    while trainer.steps_done < FOLDS * steps + 1:  # the phase on what is left is not needed
        trainer.train_step()
    labels, predictions = trainer.task.noisy.labels.numpy(), trainer.method.probabilities.double().numpy()  # type: ignore[attr-defined]
    wrong = trainer.task.mislabelled
    assert wrong is not None
    return {
        f"cleanlab_{name}": roc_auc_score(wrong.numpy(), -get_label_quality_scores(labels, predictions, method=name))
        for name in ("self_confidence", "normalized_margin")
    }


def measured(config: Config) -> dict[str, Any]:
    """Run Karat and read off what it claims and what is true."""
    task = task_of(config)
    assert task.labels.true is not None
    true = dict(zip(task.noisy_rows.tolist(), task.labels.true.tolist(), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(config, run)
        issues, cleaned = (read_safe_csv(run / name) for name in ("label_issues.csv", "cleaned_labels.csv"))
        results, estimate, reliability = (
            json.loads((run / f"{name}.json").read_text()) for name in ("results", "noise_estimate", "reliability")
        )
    classes = list(task.dataset.classes)

    def is_true(table: Any, column: str) -> np.ndarray:
        found = table[column].map(classes.index)
        return (found == table["index"].astype(int).map(true)).to_numpy()

    wrong = ~is_true(issues, "given_label")
    changed = cleaned[cleaned["action"] == "changed"]
    return {
        "wrong": wrong.mean(),
        "accuracy": results["averaged"]["top1"],
        "auroc": roc_auc_score(wrong, -issues["label_quality"].astype(float)),
        "calibration_error": reliability["calibration_error"],
        "rate": estimate["rate"],
        "low": estimate["low"],
        "high": estimate["high"],
        "changed": len(changed),
        "claimed": changed["confidence"].astype(float).mean() if len(changed) else "",
        "right": is_true(changed, "cleaned_label").mean() if len(changed) else "",
    }


def lines_of(file: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the lines of a file by their bed, noise and seed."""
    with file.open(newline="") as opened:
        return {(line["bed"], line["noise"], line["seed"]): line for line in csv.DictReader(opened)}


def print_table(file: Path) -> None:
    """Print the lines of a file, shares in percent."""
    print(
        "| data, noise | wrong | estimate [interval] | calibration error | AUROC | cleanlab's best, same network | ",
        end="",
    )
    print("changed: claimed, right | accuracy |\n|---|---|---|---|---|---|---|---|")
    for (bed, noise, _), line in lines_of(file).items():
        wrong, rate, low, high = (100 * float(line[name]) for name in ("wrong", "rate", "low", "high"))
        ranked, best = float(line["auroc"]), max(float(line[name]) for name in OF_CLEANLAB)
        error = float(line["calibration_error"])
        changed = f"{line['changed']}: {line['claimed']}, {line['right']}" if int(line["changed"]) else "0"
        print(
            f"| {bed}, {noise} | {wrong:.1f}% | {rate:.1f}% [{low:.1f}, {high:.1f}] | {error:.3f} | {ranked:.3f} | "
            f"{best:.3f} | {changed} | {100 * float(line['accuracy']):.1f} |"
        )


def main() -> None:
    """Make the fits that the file lacks, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--beds", nargs="+", choices=list(BEDS), default=list(BEDS))
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", help="the folder of CIFAR-10")
    parser.add_argument("--cleanlab", type=Path, help="an older file, whose figures of cleanlab still hold")
    parser.add_argument("--table", action="store_true", help="print the file as a table, and measure nothing")
    options = parser.parse_args()
    if options.table:
        print_table(options.file)
        return
    torch.set_num_threads(1)
    older = lines_of(options.cleanlab) if options.cleanlab else {}
    if not options.file.exists():
        options.file.write_text(",".join(COLUMNS) + "\n")
    done = lines_of(options.file)
    for bed, noise, seed in itertools.product(options.beds, options.noise, range(options.seeds)):
        if (bed, noise, str(seed)) in done:
            continue
        kind, _, rate = noise.partition(":")
        given = {"data.name": bed, "noise.kind": kind, "seed": seed, "training.threads": 1, **BEDS[bed]}
        given |= {"noise.rate": float(rate)} if rate else {}
        given |= {"data.path": options.data} if bed == "cifar10" else {}
        config = read_config(given)
        known = older.get((bed, noise, str(seed)))
        beside = cleanlab_aurocs(config) if known is None else {name: known[name] for name in OF_CLEANLAB}
        found = {"bed": bed, "noise": noise, "seed": seed, **measured(config), **beside}
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}
        with options.file.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS).writerow(rounded)
        print(rounded, flush=True)


if __name__ == "__main__":
    main()
