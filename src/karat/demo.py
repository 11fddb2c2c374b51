"""The main job on embedded data: noisy digits in; a robust model, label issues and figures out."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.files.atomic import replacing
from karat.files.metrics_log import read_metrics
from karat.files.safe_csv import read_safe_csv
from karat.report.plots import accuracy_curves, coefficient_curves, save_figure, suspicious_gallery
from karat.report.review import varied
from karat.settings.config import Config, NoiseSettings, TrainingSettings
from karat.training.run import RunResult, train_run
from karat.training.run_folder import check_folder
from karat.training.tasks import task_of

NOISE = NoiseSettings(kind="uniform", rate=0.8)
TRAINING = TrainingSettings(epochs=16)


@dataclass(frozen=True)
class DemoRun:
    """One row of the demo's table."""

    folder: str
    title: str
    method: str
    noise: NoiseSettings


RUNS = (
    DemoRun("supervised", "plain training on the noisy labels", "supervised", NOISE),
    DemoRun("ieg", "IEG: the paper's re-weighting and re-labelling", "ieg", NOISE),
    DemoRun("karat", "Karat", "karat", NOISE),
    DemoRun("ceiling", "plain training on the true labels", "supervised", NoiseSettings()),
)


def run_demo(folder: Path, seed: int = 0, resume: bool = False) -> None:
    """Train all rows, print the table, and write figures and the label issues that Karat found."""
    _check_demo_folder(folder, resume)
    console = Console()
    noisy = task_of(Config(seed=seed, noise=NOISE))
    console.print(
        f"Digits: {len(noisy.noisy):,} examples with noisy labels ({noisy.labels.rate:.0%} of them wrong), "
        f"{len(noisy.trusted)} trusted, {len(noisy.dataset.test)} for the test.\n",
        soft_wrap=True,
    )
    results = {run.folder: _finished_run(demo_config(run, seed), folder / run.folder) for run in RUNS}

    table = Table("method", "test accuracy", "seconds", title="80% uniform label noise", title_justify="left")
    for run in RUNS:
        result = results[run.folder]
        assert result.selected is not None  # digits have test examples
        table.add_row(run.title, f"{result.selected.top1:.1%}", f"{result.seconds:.0f}")
    console.print(table)

    curves = {run.title: read_metrics(folder / run.folder / "metrics.jsonl") for run in RUNS}
    save_figure(accuracy_curves(curves, "Digits with 80% uniform label noise"), folder / "curves")
    save_figure(coefficient_curves(read_metrics(folder / "karat" / "metrics.jsonl")), folder / "coefficients")
    with replacing(folder / "label_issues.csv") as temporary:
        shutil.copyfile(folder / "karat" / "label_issues.csv", temporary)
    console.print(_label_issues_sentence(folder, noisy), soft_wrap=True)
    console.print(
        f"\nOpen {folder / 'karat' / 'report.html'} to look at the labels and to review them.\n"
        f"In {folder}: curves.png, coefficients.png, suspicious.png, label_issues.csv, "
        "and a folder with model and metrics for each method.",
        soft_wrap=True,
        markup=False,  # a folder may have brackets in its name
    )


def _check_demo_folder(folder: Path, resume: bool) -> None:
    if not resume:
        check_folder(folder, resume=False)
    elif not any((folder / run.folder).is_dir() for run in RUNS):
        raise UserError(f"There is no demo to resume in {folder}: check --run, or leave --resume out.")


def demo_config(run: DemoRun, seed: int) -> Config:
    """Return the config of one row: everything by default but data, noise and the short budget."""
    return Config(method=run.method, seed=seed, noise=run.noise, training=TRAINING)


def _finished_run(config: Config, folder: Path) -> RunResult:
    started = (folder / "config.yaml").exists()
    return train_run(config, folder, resume=started)


def _label_issues_sentence(folder: Path, task: NoisyTask) -> str:
    """Draw the most suspicious labels and say how well they were found; the demo knows the truth."""
    issues = read_safe_csv(folder / "label_issues.csv")
    top = varied(issues, 40)
    images = (task.dataset.train.inputs[top["index"].tolist(), 0] + 1) / 2
    gallery = suspicious_gallery(list(images.numpy()), list(top["given_label"]), list(top["predicted_label"]))
    save_figure(gallery, folder / "suspicious")

    true = task.dataset.train.labels[issues["index"].tolist()].numpy()
    wrong = issues["given_label"].to_numpy() != np.array(task.dataset.classes)[true]
    found = issues["is_label_issue"].to_numpy()
    auroc = roc_auc_score(wrong, -issues["label_quality"])
    precision = wrong[found].mean() if found.any() else np.nan
    return (
        f"\nLabel issues: {found.sum():,} found; {wrong.sum():,} labels are wrong, {(found & wrong).sum():,} of them "
        f"among the found (precision {precision:.1%}, recall {found[wrong].mean():.1%}, "
        f"AUROC of label_quality {auroc:.3f})."
    )
