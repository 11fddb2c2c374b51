"""The command line: one small function a command, which calls one elsewhere and prints what it found."""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat.audit.review import apply_decisions
from karat.audit.run_audit import suggest_rows, write_audit, write_pred_probs
from karat.bench.command import bench
from karat.data.noise.summary import write_noise
from karat.data.sources.problems import BadImages, counted, terminal_safe
from karat.data.task import NoisyTask
from karat.demo import run_demo
from karat.errors import UserError
from karat.files.json_files import read_json
from karat.files.safe_csv import read_safe_csv, write_safe_csv
from karat.inference.evaluation import Accuracy
from karat.inference.new_data import evaluate_data, predict_run
from karat.report.run_report import report_run
from karat.settings.command_line import parse
from karat.settings.compare import check_same_config
from karat.settings.config import Config, config_as_dict
from karat.settings.read import read_run_config
from karat.settings.retrain import retrain_command
from karat.training.run import WEIGHTS, RunResult, evaluate_run, task_of, train_run
from karat.training.run_folder import chosen_settings, new_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 for something that the user can mend."""
    logging.basicConfig(format="karat: %(message)s", level=logging.WARNING)
    warnings.filterwarnings("ignore", module="PIL")  # what ails an image is said in words that name the image
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    logging.getLogger("karat").setLevel(logging.INFO)
    try:
        options = parse(arguments)
        return COMMANDS[options.command](options[options.command]) or 0
    except UserError as error:
        print(f"karat: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"karat: {error}: check the path, its rights and the space on the disk.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nkarat: stopped; the same command with --resume and --run FOLDER continues.", file=sys.stderr)
        return 130


def _train(options: Namespace) -> None:
    config = options.config
    if options.resume and options.run is None:
        raise UserError("--resume needs the folder of the run: write --run FOLDER.")
    if options.run is not None:
        _train_in(config, options.run, options.resume)
        return
    folder = new_folder(Path("runs"), f"{Path(config.data.name).stem}-{config.method}")
    print(f"karat: run folder {folder}", file=sys.stderr)
    try:
        _train_in(config, folder, resume=False)
    finally:
        if not any(folder.iterdir()):  # a mistake was found before the run began
            folder.rmdir()


def _train_in(config: Config, folder: Path, resume: bool) -> None:
    if resume and (folder / "config.yaml").exists():
        before, asked = config_as_dict(read_run_config(folder)), config_as_dict(config)
        check_same_config(before, asked, folder, chosen_settings(folder))
    try:
        result = train_run(config, folder, resume)
    except BadImages as error:
        listed = folder / "bad_images.csv"
        write_safe_csv(pd.DataFrame(error.images, columns=["name", "reason"]), listed)
        raise UserError(f"{error}\nAll of them are in {listed}.") from error
    found: dict[str, Accuracy | None] = {name: getattr(result, name) for name in WEIGHTS}
    if result.selected is not None:
        _print_accuracies({name: accuracy for name, accuracy in found.items() if accuracy is not None})
    if result.noise_rate is not None:
        print(f"Wrong among the noisy labels: {result.noise_rate:.1%}.")
    print(_accuracy_sentence(result, folder))
    print(_issues_sentence(folder))
    page = folder / "report.html"
    look = f" Open {page} in a browser to look at it and to review labels." if page.exists() else ""
    print(f"Everything is in {folder}.{look}")


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
    print(f"Accuracy on {options.data}: {found.accuracy.top1:.2%} of {found.accuracy.count:,} examples.")


def _predict(options: Namespace) -> None:
    count = predict_run(
        options.run,
        options.data,
        options.out,
        path=options.path,
        probabilities=options.probabilities,
        on_bad_image=options.on_bad_image,
    )
    print(f"Predictions of {counted(count, 'row')} are in {options.out}.")


def _demo(options: Namespace) -> None:
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
        f"wrong ones: {estimate['rate']:.1%}, between {estimate['low']:.1%} and {estimate['high']:.1%}."
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
    return bench(
        options.recipe, options.out, options.only, options.jobs, options["set"], options["list"], options.dry_run
    )


def _noise(options: Namespace) -> None:
    summary = write_noise(task_of(options.config), options.file)
    rate = summary["realised_rate"]
    wrong = "nobody knows how many are wrong" if rate is None else f"{rate:.2%} of them wrong"
    print(f"{summary['examples']:,} labels in {options.file}, {wrong}; the matrix is in {options.file.stem}.json.")


def _audit(options: Namespace) -> None:
    found = write_audit(options.run)
    estimate = found.estimate
    print(
        f"Wrong labels: {estimate.rate:.1%} of {estimate.examples:,} (between {estimate.low:.1%} and "
        f"{estimate.high:.1%} with {estimate.level:.0%} confidence). {estimate.note}"
    )
    counts = found.cleaned["action"].value_counts()
    actions = ", ".join(f"{counts.get(name, 0):,} {name}" for name in ("kept", "changed", "dropped", "trusted"))
    print(f"Label issues: {int(found.issues['is_label_issue'].sum()):,}. Cleaned labels: {actions}.")
    for warning in estimate.warnings:
        print(f"Warning: {warning}")
    if options.pred_probs is not None:
        write_pred_probs(options.run, options.pred_probs)
    print(f"Everything is in {options.run}: label_issues.csv, cleaned_labels.csv, noise_estimate.json.")


def _suggest(options: Namespace) -> None:
    path, rows = suggest_rows(options.run, options.count)
    table = Table("", "id", "given", "likely", "", "why", title="Rows to verify next", title_justify="left")
    for row in rows.head(20).itertuples(index=False):
        cells = (str(row.rank), row.id, row.given_label, row.likely_label, f"{row.confidence:.0%}", row.reason)
        table.add_row(*(Text(terminal_safe(cell)) for cell in cells))
    Console().print(table)
    print(f"All {len(rows)} rows are in {path}.")


def _apply(options: Namespace) -> None:
    applied = apply_decisions(options.run, options.decisions, options.out, options.labels)
    print(
        f"{applied.decided:,} decisions ({applied.changed:,} changed a label) are in {applied.path}: "
        f"{applied.trusted:,} of {applied.examples:,} examples are trusted now. Train again with:"
    )
    print(f"  {retrain_command(options.run, read_run_config(options.run), applied.path)}")


def _report(options: Namespace) -> None:
    def load() -> NoisyTask:
        return task_of(read_run_config(options.run))

    path = report_run(options.run, None if options.no_pictures else load, options.review_rows, options.compare)
    print(f"The report is {path}: open it in a browser. Its pictures and the data of the review are in report_files.")


COMMANDS: dict[str, Callable[[Namespace], int | None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "bench": _bench,
    "noise": _noise,
    "audit": _audit,
    "suggest": _suggest,
    "apply": _apply,
    "report": _report,
    "demo": _demo,
}
