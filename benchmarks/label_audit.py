"""Find the wrong labels of 20,000 clothes: Karat against cleanlab with out-of-sample predictions.

    python benchmarks/label_audit.py FOLDER [--noise uniform:0.2 uniform:0.4 uniform:0.8 asymmetric:0.4]

Writes Fashion-MNIST (Debian's package dataset-fashion-mnist) as PNG files with a table of noisy labels, 10 trusted a
class, as a user would bring them, and runs on that table:

- `karat train` with its default method; label_quality ranks the labels, cleaned_labels.csv corrects them;
- cleanlab: four networks of the same kind, each trained plainly for as many steps without a quarter of the rows,
  predict that quarter; `get_label_quality_scores` ranks the labels (self-confidence, normalised margin),
  `find_label_issues` decides. It takes no trusted labels, so it knows less;
- plain training on the given labels, and on the rows of cleaned_labels.csv, with as many steps.

AUROC and average precision are those of finding the wrong labels; accuracy is on 10,000 test images.
"""

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score

from karat import Config, read_safe_csv, train
from karat.data.datasets import load_dataset
from karat.data.task import prepare_task
from karat.methods.settings import CleanlabSettings, MethodSettings
from karat.settings.config import DataSettings, NoiseSettings, TrainingSettings
from karat.training.fit import fit
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

FOLDS = 4


class Ranking(NamedTuple):
    """How well wrong labels were found."""

    auroc: float
    average_precision: float
    precision: float
    recall: float


def ranking(wrong: np.ndarray, quality: np.ndarray, issue: np.ndarray) -> Ranking:
    """Compare qualities (low: suspicious) and decisions with the truth."""
    return Ranking(
        roc_auc_score(wrong, -quality),
        average_precision_score(wrong, -quality),
        wrong[issue].mean() if issue.any() else float("nan"),
        issue[wrong].mean(),
    )


def write_table(folder: Path, kind: str, rate: float, images: int, seed: int) -> Path:
    """Write PNG files and `KIND-RATE.csv`; the true labels go into a file that no run reads."""
    table, truth = folder / f"{kind}-{rate}.csv", folder / f"{kind}-{rate}-truth.csv"
    if truth.exists():
        return table
    clean = load_dataset("fashion_mnist", None, seed, images)
    task = prepare_task(DataSettings("fashion_mnist", limit=images), NoiseSettings(kind, rate), seed)
    place = {row: number for number, row in enumerate(clean.rows.tolist())}
    given, trusted = clean.train.labels.clone(), torch.ones(len(clean.train), dtype=torch.bool)
    rows = torch.tensor([place[row] for row in task.noisy_rows.tolist()])
    given[rows], trusted[rows] = task.labels.given, False
    parts = []
    for part, inputs in (("train", clean.train.inputs), ("test", clean.test.inputs)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        pixels = ((inputs[:, 0] + 1) * 127.5).round().to(torch.uint8).numpy()
        paths = [f"{part}/{number:05d}.png" for number in range(len(pixels))]
        for path, image in zip(paths, pixels, strict=True):
            if not (folder / path).exists():
                Image.fromarray(image).save(folder / path)
        labels = given if part == "train" else clean.test.labels
        verified = trusted if part == "train" else torch.zeros(len(pixels), dtype=torch.bool)
        names = [clean.classes[label] for label in labels.tolist()]
        parts.append(pd.DataFrame({"path": paths, "label": names, "trusted": verified.numpy(), "split": part}))
    pd.concat(parts).to_csv(table, index=False)
    names = [clean.classes[label] for label in clean.train.labels.tolist()]
    pd.DataFrame({"path": parts[0]["path"], "true_label": names}).to_csv(truth, index=False)
    return table


def cleanlab_ranking(config: Config, given_is_wrong: np.ndarray) -> tuple[dict[str, Ranking], float]:
    """Train without each fold, let cleanlab judge the predictions; also its accuracy once the issues are dropped."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    steps = config.training.steps or 0
    methods = MethodSettings(cleanlab=CleanlabSettings(folds=FOLDS, fold_share=1 / (FOLDS + 1)))
    training = replace(config.training, steps=(FOLDS + 1) * steps)
    trainer = Trainer(replace(config, method="cleanlab", methods=methods, training=training), task_of(config))
    fit(trainer, evaluate=False)
    labels = trainer.task.noisy.labels.numpy()
    predictions = trainer.method.probabilities.double().numpy()  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issue = find_label_issues(labels, predictions, n_jobs=1)
    qualities = {
        name: get_label_quality_scores(labels, predictions, method=name)
        for name in ("self_confidence", "normalized_margin")
    }
    found = {name: ranking(given_is_wrong, quality, issue) for name, quality in qualities.items()}
    return found, trainer.end_epoch()["accuracy"]


def run(folder: Path, kind: str, rate: float, images: int, steps: int, seed: int) -> dict[str, Any]:
    """Run everything at one noise; finished runs are not made again."""
    table = write_table(folder, kind, rate, images, seed)
    runs = folder / f"runs-{kind}-{rate}"
    config = Config(
        data=DataSettings(str(table)), seed=seed, training=TrainingSettings(steps=steps, batch_size=100, threads=1)
    )

    def accuracy(name: str, changed: Config) -> float:
        done = runs / name / "results.json"
        if not done.exists():
            train(changed, runs / name, resume=(runs / name / "config.yaml").exists())
        return float(json.loads(done.read_text())["selected"]["top1"])

    found: dict[str, Any] = {"noise": f"{rate:.0%} {kind}", "karat accuracy": accuracy("karat", config)}
    issues = read_safe_csv(runs / "karat" / "label_issues.csv")
    truth = pd.read_csv(folder / f"{kind}-{rate}-truth.csv", dtype=str).set_index("path")["true_label"]
    wrong = (issues["given_label"] != truth.loc[issues["id"]].to_numpy()).to_numpy()
    quality = issues["label_quality"].astype(float).to_numpy()
    found["wrong"] = wrong.mean()
    found["karat"] = ranking(wrong, quality, issues["is_label_issue"].astype(str).eq("True").to_numpy())

    plain = replace(config, method="supervised")
    found["plain, given labels"] = accuracy("plain", plain)
    cleaned = replace(plain, data=replace(config.data, corrections=runs / "karat" / "cleaned_labels.csv"))
    found["plain, cleaned labels"] = accuracy("plain-cleaned", cleaned)

    in_order = issues.assign(wrong=wrong).sort_values("index")["wrong"].to_numpy()
    rankings, found["cleanlab accuracy"] = cleanlab_ranking(config, in_order)
    found |= {f"cleanlab {name}": value for name, value in rankings.items()}
    return found


def main() -> None:
    """Run all noises and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", nargs="+", default=["uniform:0.2", "uniform:0.4", "uniform:0.8", "asymmetric:0.4"])
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| noise | wrong | finder | AUROC | average precision | precision | recall |\n|---|---|---|---|---|---|---|")
    accuracies = []
    for noise in options.noise:
        kind, rate = noise.split(":")
        found = run(options.folder, kind, float(rate), options.images, options.steps, options.seed)
        for finder in ("karat", "cleanlab self_confidence", "cleanlab normalized_margin"):
            figures = " | ".join(f"{value:.3f}" for value in found[finder])
            print(f"| {found['noise']} | {found['wrong']:.1%} | {finder} | {figures} |", flush=True)
        names = ("plain, given labels", "plain, cleaned labels", "cleanlab accuracy", "karat accuracy")
        accuracies.append(f"| {found['noise']} | " + " | ".join(f"{100 * found[name]:.1f}" for name in names) + " |")
    print(
        "\n| noise | plain, given labels | plain, cleaned labels | cleanlab, issues dropped | karat |\n"
        "|---|---|---|---|---|"
    )
    print("\n".join(accuracies))


if __name__ == "__main__":
    main()
