"""The commands: one small function each, which calls one elsewhere and prints what it found."""

import shlex
from collections.abc import Callable
from pathlib import Path

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.audit.estimate import Changes
from karat.audit.review import apply_decisions
from karat.audit.run_audit import write_audit, write_pred_probs
from karat.audit.sample import draw_sample, estimate_sample
from karat.audit.settings import AuditSettings
from karat.data.noise.summary import write_noise
from karat.data.sources.problems import counted
from karat.data.task import NoisyTask
from karat.errors import UserError, say, terminal_safe
from karat.files.json_files import read_json
from karat.files.safe_csv import read_safe_csv
from karat.inference.evaluation import Accuracy
from karat.inference.new_data import evaluate_data, predict_run
from karat.report.run_report import report_run, sample_page_of_run
from karat.settings.compare import check_same_config
from karat.settings.config import Config, config_as_dict
from karat.settings.read import read_run_config
from karat.settings.retrain import retrain_command
from karat.training.first_look import suggest_first, suggest_next
from karat.training.measured import WEIGHTS, evaluate_run
from karat.training.processes import place
from karat.training.run import RunResult, train_run
from karat.training.run_folder import check_folder, chosen_settings, new_folder
from karat.training.tasks import task_of


def _train(options: Namespace) -> None:
    config = options.config
    if options.run is not None:
        _train_in(config, options.run, options.resume)
        return
    if place(config.training) is not None:
        raise UserError("Processes that torchrun or SLURM starts need one folder: write --run FOLDER.")
    runs = Path("runs")
    existed = runs.exists()
    folder = new_folder(runs, f"{config.data.title}-{config.method}")
    try:
        _train_in(config, folder, resume=False, name_folder=True)
    finally:
        if not any(folder.iterdir()):  # a mistake was found before the run began
            folder.rmdir()
            if not existed and not any(runs.iterdir()):
                runs.rmdir()


def _train_in(config: Config, folder: Path, resume: bool, name_folder: bool = False) -> None:
    if resume and (folder / "config.yaml").exists():
        before, asked = config_as_dict(read_run_config(folder)), config_as_dict(config)
        check_same_config(before, asked, folder, chosen_settings(folder))
    result = train_run(config, folder, resume, name_folder=name_folder)
    own = place(config.training)
    if own is not None and own.rank > 0:
        return
    found: dict[str, Accuracy | None] = {name: getattr(result, name) for name in WEIGHTS}
    if result.selected is not None:
        _print_accuracies({name: accuracy for name, accuracy in found.items() if accuracy is not None})
    if result.noise_rate is not None:
        say(f"Wrong among the noisy labels: {result.noise_rate:.1%}.")
    say(_accuracy_sentence(result, folder))
    say(_issues_sentence(folder))
    page = folder / "report.html"
    look = f" Open {page} in a browser to look at it and to review labels." if page.exists() else ""
    say(f"Everything is in {folder}.{look}")


def _evaluate(options: Namespace) -> None:
    if options.data is None:
        _print_accuracies(evaluate_run(read_run_config(options.run), options.run))
        return
    found = evaluate_data(options.run, options.data, path=options.path, on_bad_image=options.on_bad_image)
    table = Table("class", "examples", "precision", "recall", title="Class by class", title_justify="left")
    for scores in found.classes:
        shares = ("–" if share is None else f"{share:.1%}" for share in (scores.precision, scores.recall))
        table.add_row(Text(terminal_safe(scores.name)), f"{scores.examples:,}", *shares)
    console = Console()
    console.print(table)
    if found.confusions:
        table = Table("label", "predicted", "times", title="Confused most often", title_justify="left")
        for pair in found.confusions:
            table.add_row(Text(terminal_safe(pair.true)), Text(terminal_safe(pair.predicted)), f"{pair.times:,}")
        console.print(table)
    say(f"Accuracy on {options.data}: {found.accuracy.top1:.2%} of {found.accuracy.count:,} examples.")


def _predict(options: Namespace) -> None:
    count = predict_run(
        options.run,
        options.data,
        options.out,
        path=options.path,
        probabilities=options.probabilities,
        on_bad_image=options.on_bad_image,
    )
    say(f"Predictions of {counted(count, 'row')} are in {options.out}.")


def _demo(options: Namespace) -> None:
    from karat.demo import run_demo  # matplotlib, which no other command needs

    if options.resume and options.run is None:
        raise UserError("--resume needs the folder of the demo: write --run FOLDER.")
    run_demo(options.run or new_folder(Path("runs"), "demo"), options.seed, options.resume)


def _accuracy_sentence(result: RunResult, folder: Path) -> str:
    if result.selected is not None:
        return f"Test accuracy of the selected model: {result.selected.top1:.2%}."
    return (
        "Accuracy was not measured, because the data have no test rows: mark some with split=test, or run "
        f"`karat evaluate {folder} DATA` on labelled rows that were not trained on."
    )


def _issues_sentence(folder: Path) -> str:
    estimate = read_json(folder / "noise_estimate.json")
    issues = int(read_safe_csv(folder / "label_issues.csv")["is_label_issue"].sum())
    return (
        f"Label issues: {issues:,} of {estimate['examples']:,} noisy labels (label_issues.csv). Estimated share of "
        f"wrong ones: {estimate['rate']:.1%}, between {estimate['low']:.1%} and {estimate['high']:.1%}. "
        f"Cleaned (cleaned_labels.csv): {Changes(**estimate['changes'])}."
    )


def _print_accuracies(accuracies: dict[str, Accuracy]) -> None:
    table = Table("weights", "top-1", "top-5", "loss", "examples", title="Test accuracy", title_justify="left")
    for name, accuracy in accuracies.items():
        table.add_row(
            name,
            f"{accuracy.top1:.2%}",
            f"{accuracy.top5:.2%}",
            f"{accuracy.loss:.3f}",
            f"{accuracy.count:,}",
        )
    Console().print(table)


def _bench(options: Namespace) -> int:
    from karat.bench.command import bench  # a second of imports that no other command needs

    return bench(
        options.recipe, options.out, options.only, options.jobs, options["set"], options["list"], options.dry_run
    )


def _noise(options: Namespace) -> None:
    summary = write_noise(task_of(options.config), options.file)
    rate = summary["realised_rate"]
    wrong = "nobody knows how many are wrong" if rate is None else f"{rate:.2%} of them wrong"
    say(f"{summary['examples']:,} labels in {options.file}, {wrong}; the matrix is in {options.file.stem}.json.")


def _audit(options: Namespace) -> None:
    rate = options.audit.error_rate
    found = write_audit(options.run, _audit_settings(options.run) if rate is None else AuditSettings(rate))
    estimate = found.estimate
    say(
        f"Wrong labels: {estimate.rate:.1%} of {estimate.examples:,} (between {estimate.low:.1%} and "
        f"{estimate.high:.1%} with {estimate.level:.0%} confidence). {estimate.note}"
    )
    counts = found.cleaned["action"].value_counts()
    actions = ", ".join(f"{counts.get(name, 0):,} {name}" for name in ("kept", "changed", "review", "trusted"))
    say(f"Label issues: {int(found.issues['is_label_issue'].sum()):,}. Cleaned labels: {actions}.")
    say(f"{estimate.changes}.")
    if found.reliability is not None:
        say(f"The truth is known here. label_quality: {found.reliability}.")
    for warning in estimate.warnings:
        say(f"Warning: {warning}")
    if options.figure is not None:
        from karat.report.plots import save_reliability_figure  # matplotlib

        save_reliability_figure(found.reliability, options.figure)
    if options.pred_probs is not None:
        write_pred_probs(options.run, options.pred_probs)
    say(f"Everything is in {options.run}: label_issues.csv, cleaned_labels.csv, noise_estimate.json.")


def _audit_settings(run: Path) -> AuditSettings:
    """Return what the run was asked for; a ledger without its config.yaml is audited, too."""
    return read_run_config(run).audit if (run / "config.yaml").exists() else AuditSettings()


def _suggest(options: Namespace) -> None:
    folder = Path(options.source)
    if options.config is None:
        path, rows = suggest_next(folder, options.count)
    else:
        folder = options.run or new_folder(Path("runs"), f"{folder.stem}-first")
        try:
            check_folder(folder, resume=False)
            path, rows = suggest_first(options.config, folder, options.count)
        finally:
            if folder.is_dir() and not any(folder.iterdir()):  # a mistake was found before anything was written
                folder.rmdir()
    table = Table("", "id", "given", "likely", "", "why", title="Rows to verify next", title_justify="left")
    for row in rows.head(20).itertuples(index=False):
        cells = (str(row.rank), row.id, row.given_label, row.likely_label, f"{row.confidence:.0%}", row.reason)
        table.add_row(*(Text(terminal_safe(cell)) for cell in cells))
    Console().print(table)
    page = folder / "report.html"
    look = f" Open {page} in a browser: they are the first ones in its review." if page.exists() else ""
    say(f"All {len(rows)} rows are in {path}.{look} Then: karat apply {folder} decisions.csv")


def _sample(options: Namespace) -> None:
    path, rows = draw_sample(options.run, options.count, options.seed)
    page = sample_page_of_run(options.run, None if options.no_pictures else _loader(options.run))
    say(
        f"{counted(len(rows), 'row')} were drawn at random. Decide every one of them in {page}, in a browser (or in "
        f"{path}: keep, other or unsure, and the right label), and export decisions.csv. Then:"
    )
    say(f"  {shlex.join(['karat', 'estimate', str(options.run), 'decisions.csv'])}")


def _estimate(options: Namespace) -> None:
    found = estimate_sample(options.run, options.decisions)
    unsure = f", {found.unsure} of them unsure" if found.unsure else ""
    say(
        f"Wrong labels: {found.wrong} of {found.labels_before:,}, by {counted(found.sampled, 'random row')}{unsure}; "
        f"in brackets 95% intervals. Right labels before cleaning: {found.right_before}."
    )
    if found.right_after is not None:
        say(f"Right labels in cleaned_labels.csv: {found.right_after} of the {found.labels_after:,} that it keeps.")
    if found.changed_sampled:
        say(f"Changed labels in the sample: {found.changed_sampled}, of which {found.changed_wrong} were wrong.")
    say(f"Everything is in {options.run / 'sample_estimate.json'}; `karat report {options.run}` shows it.")


def _apply(options: Namespace) -> None:
    applied = apply_decisions(options.run, options.decisions, options.out, options.labels)
    say(
        f"{applied.decided:,} decisions ({applied.changed:,} changed a label) are in {applied.path}: "
        f"{applied.trusted:,} of {applied.examples:,} examples are trusted now. Train again with:"
    )
    say(f"  {retrain_command(options.run, read_run_config(options.run), applied.path)}")


def _report(options: Namespace) -> None:
    load = None if options.no_pictures else _loader(options.run)
    path = report_run(options.run, load, options.review_rows, options.compare)
    say(f"The report is {path}: open it in a browser. Its pictures and the data of the review are in report_files.")


def _loader(run: Path) -> Callable[[], NoisyTask]:
    return lambda: task_of(read_run_config(run))


COMMANDS: dict[str, Callable[[Namespace], int | None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "bench": _bench,
    "noise": _noise,
    "audit": _audit,
    "suggest": _suggest,
    "sample": _sample,
    "estimate": _estimate,
    "apply": _apply,
    "report": _report,
    "demo": _demo,
}
