"""Start with no trusted row: digits, then once more after so many rows are verified, suggested or drawn at random.

    python benchmarks/first_rows.py FOLDER [--noise uniform:0.2 uniform:0.4 asymmetric:0.4] [--seeds 0 1 2]

The person who verifies is played by the true labels. Each line: test accuracy; how many noisy rows
are predicted right by judges that have not seen their label; expected calibration error of
label_quality (10 bins) and the area under the ROC curve of finding wrong labels, over the noisy rows; how many labels
were changed, how sure the changes claim to be and how many are right; rate and interval of the noise.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from karat import Config, read_safe_csv
from karat.audit.review import apply_decisions
from karat.files.safe_csv import write_safe_csv
from karat.settings.config import DataSettings, NoiseSettings, TrainingSettings
from karat.training.first_look import suggest_next
from karat.training.run import train_run
from karat.training.tasks import task_of

COUNTS = (30, 100)


def calibration_error(quality: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Return the mean distance between what is claimed and what is so, over equal bins."""
    place = np.minimum((quality * bins).astype(int), bins - 1)
    gaps = [abs((quality - right)[place == number].sum()) for number in range(bins)]
    return float(sum(gaps) / len(quality))


def measured(config: Config, folder: Path, true: pd.Series) -> dict[str, float]:
    """Train and compare what was said of the labels with the truth, which is found by `index`."""
    if not (folder / "results.json").exists():
        train_run(config, folder, report=False)
    issues, cleaned = (read_safe_csv(folder / f"{name}.csv") for name in ("label_issues", "cleaned_labels"))
    estimate = json.loads((folder / "noise_estimate.json").read_text())
    right = (issues["given_label"] == true[issues["index"]].to_numpy()).to_numpy()
    changed = cleaned[cleaned["action"] == "changed"]
    return {
        "accuracy": 100 * json.loads((folder / "results.json").read_text())["selected"]["top1"],
        "predicted": 100 * (issues["predicted_label"] == true[issues["index"]].to_numpy()).mean(),
        "calibration_error": calibration_error(issues["label_quality"].to_numpy(), right),
        "auroc": roc_auc_score(right, issues["label_quality"]),
        "changed": len(changed),
        "claimed": changed["confidence"].mean(),
        "right": (changed["cleaned_label"] == true[changed["index"]].to_numpy()).mean(),
        "rate": estimate["rate"],
        "low": estimate["low"],
        "high": estimate["high"],
        "true_rate": 1 - right.mean(),
    }


def verified(config: Config, first: Path, rows: pd.DataFrame, true: pd.Series, name: str) -> Config:
    """Return the config of the second run: these rows are verified, through `karat apply` as a user would."""
    decisions = rows[["index"]].assign(decision="other", label=true[rows["index"]].to_numpy())
    write_safe_csv(decisions, first / f"{name}-decisions.csv")
    labels = apply_decisions(first, first / f"{name}-decisions.csv", first / f"{name}.csv").path
    return replace(config, noise=NoiseSettings(), data=replace(config.data, corrections=labels))


def lines(folder: Path, kind: str, rate: float, seed: int, epochs: int) -> dict[str, dict[str, float]]:
    """Return what was measured without a trusted row and after each way to verify some."""
    config = Config(
        data=DataSettings("digits", trusted_per_class=0),
        noise=NoiseSettings(kind, rate),
        seed=seed,
        training=TrainingSettings(epochs=epochs),
    )
    task = task_of(config)
    assert task.labels.true is not None
    names = np.array(task.dataset.classes)
    true = pd.Series(names[task.labels.true.numpy()], index=task.noisy_rows.numpy())
    first = folder / f"{kind}-{rate}-{seed}"
    found = {"nothing": measured(config, first / "nothing", true)}
    shuffled = pd.DataFrame({"index": np.random.default_rng(seed).permutation(true.index.to_numpy())})
    for count in COUNTS:
        chosen = {"suggested": suggest_next(first / "nothing", count)[1], "random": shuffled.head(count)}
        for way, rows in chosen.items():
            name = f"{count} {way}"
            second = verified(config, first / "nothing", rows, true, name.replace(" ", "-"))
            found[name] = measured(second, first / name.replace(" ", "-"), true)
    return found


def main() -> None:
    """Print a table of means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", nargs="+", default=["uniform:0.2", "uniform:0.4", "asymmetric:0.4"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    for noise in options.noise:
        kind, rate = noise.split(":")
        runs = [lines(options.folder, kind, float(rate), seed, options.epochs) for seed in options.seeds]
        table = pd.concat(
            [pd.DataFrame(run).T.assign(seed=seed) for run, seed in zip(runs, options.seeds, strict=True)]
        )
        table.to_csv(options.folder / f"{kind}-{rate}.csv")
        print(
            f"{noise}\n{table.drop(columns='seed').groupby(level=0, sort=False).mean().round(3).to_string()}\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
