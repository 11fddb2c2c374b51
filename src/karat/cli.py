"""The command line: train, evaluate, bench, noise, rog and demo, generated from the config's dataclasses."""

import argparse
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karat import __version__
from karat.audit.apply import apply_decisions
from karat.audit.files import suggest_rows, write_audit, write_pred_probs
from karat.audit.safe_csv import read_safe_csv, write_safe_csv
from karat.bench.command import bench
from karat.config import PRESETS, Config, DataSettings, NoiseSettings, config_as_dict, flat, preset, unread_settings
from karat.data.noise_report import write_noise
from karat.data.prepare import NoisyTask
from karat.data.sources.problems import BadImages, counted, terminal_safe
from karat.demo import run_demo
from karat.errors import UserError
from karat.parser import Parser
from karat.training.corrections import retrain_command
from karat.training.evaluation import Accuracy
from karat.training.predict import evaluate_data, predict_run
from karat.training.report import REVIEW_ROWS, report_run
from karat.training.run import RunResult, evaluate_run, rog_of_run, task_of, train_run
from karat.training.run_folder import check_same_config, chosen_settings, new_folder


class _TrainParser(Parser):
    """The parser of `train`, which prints DATA as data.name."""

    def dump(self, cfg: Namespace, *args: Any, **kwargs: Any) -> str:
        """Return the options as a config file."""
        cfg = cfg.clone()
        source = cfg.pop("source", None)
        if source is not None:
            cfg["data.name"] = source
        return str(super().dump(cfg, *args, **kwargs))


def build_parser(defaults: Config) -> Parser:
    """Return the parser of all commands; `defaults` are those of `train`: a preset's, or a resumed run's."""
    parser = Parser(
        prog="karat",
        description="Train accurate classifiers on badly labelled data with a few trusted labels.",
        version=__version__,
        allow_abbrev=False,  # for all commands: an abbreviation is a typing error
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")

    train = _TrainParser(description="Train on noisy labels; everything is left in a run folder.")
    train.add_argument(
        "source",
        nargs="?",
        type=str | None,
        default=None,
        metavar="DATA",
        help="Your data (docs/own_data.md): a folder of images, a table (.csv, .tsv, .parquet), an .npz file, a saved "
        "Hugging Face dataset; or a dataset's name. The same as --data.name.",
    )
    train.add_argument("--config", action="config", help="YAML file with any of the settings below.")
    train.add_argument("--run", type=Path | None, default=None, help="Run folder (default: a new one in runs/).")
    train.add_argument("--resume", action="store_true", help="Continue the unfinished run in the run folder.")
    train.add_argument("--preset", default="default", help=f"Settings to start from: {', '.join(PRESETS)}.")
    train.add_class_arguments(Config)
    train.set_defaults(flat(config_as_dict(defaults)))
    commands.add_subcommand("train", train, help="Train and leave a run folder.")

    evaluate = Parser(description="Measure the models of a finished or unfinished run.")
    evaluate.add_argument("run", type=Path, help="Run folder.")
    _add_new_data(evaluate, "Labelled data to measure on (default: the test examples of the run).", nargs="?")
    commands.add_subcommand("evaluate", evaluate, help="Measure the models of a run on test examples or other data.")

    predict = Parser(description="Predict the labels of new data with the model of a run.")
    predict.add_argument("run", type=Path, help="Run folder.")
    _add_new_data(predict, "Data to predict: a table, a folder of images, an image, or an .npz file with inputs.")
    predict.add_argument("--out", type=Path, default=Path("predictions.csv"), help="CSV file to write.")
    predict.add_argument("--probabilities", action="store_true", help="Write a column for each class, too.")
    commands.add_subcommand("predict", predict, help="Predict the labels of new data.")

    bench_parser = Parser(description="Run a recipe: a table of methods and noises over several seeds.")
    bench_parser.add_argument("recipe", type=Path, help="YAML file, such as those in recipes/.")
    bench_parser.add_argument("--out", type=Path | None, default=None, help="Folder (default: bench/RECIPE).")
    bench_parser.add_argument(
        "--only",
        nargs="+",
        type=str,
        default=[],
        metavar="CELL",
        help="Only these cells: ROW, ROW/COLUMN or ROW/COLUMN/SEED, with * and ?.",
    )
    bench_parser.add_argument("--jobs", type=int | None, default=None, help="Runs at once (default: one a core).")
    bench_parser.add_argument("--set", type=dict[str, Any], default={}, help='Settings for all, {"data.path": "DIR"}.')
    bench_parser.add_argument("--list", action="store_true", help="Print the names of the cells, and stop.")
    bench_parser.add_argument(
        "--dry-run",
        action="store_true",
        help="Take two steps of each kind of cell on random data, print memory and time of the whole, and stop.",
    )
    commands.add_subcommand("bench", bench_parser, help="Run a recipe: a table of methods, noises and seeds.")

    noise = Parser(description="Draw label noise once and keep it in a file for noise.labels_file.")
    noise.add_argument("file", type=Path, help="Label file to write, .npz or .csv; a .json beside it has the matrix.")
    noise.add_argument("--seed", type=int, default=0, help="Of the trusted examples and of the noise.")
    noise.add_class_arguments(DataSettings, "data")
    noise.add_class_arguments(NoiseSettings, "noise")
    commands.add_subcommand("noise", noise, help="Draw label noise into a file.")

    rog = Parser(description="Put a robust generative classifier (RoG) on the features of a finished run's model.")
    rog.add_argument("run", type=Path, help="Run folder.")
    commands.add_subcommand("rog", rog, help="Robust inference on top of any finished run.")

    audit = Parser(description="Write label issues, cleaned labels and noise estimate of a run again, from its ledger.")
    audit.add_argument("run", type=Path, help="Run folder.")
    audit.add_argument(
        "--pred-probs",
        type=Path | None,
        default=None,
        metavar="FILE.npy",
        help="Also write the predictions of the noisy examples, in the order of their index, as cleanlab takes them.",
    )
    commands.add_subcommand("audit", audit, help="Label issues, cleaned labels and noise rate of a run.")

    suggest = Parser(description="Name the rows whose verification would help most; write suggestions.csv.")
    suggest.add_argument("run", type=Path, help="Run folder.")
    suggest.add_argument("--count", type=int, default=50, help="How many rows.")
    commands.add_subcommand("suggest", suggest, help="Which rows to verify next.")

    apply = Parser(description="Make the labels of the next training from decisions of the review page.")
    apply.add_argument("run", type=Path, help="Run folder.")
    apply.add_argument("decisions", type=Path, help="decisions.csv, as the review page exports it.")
    apply.add_argument("--out", type=Path | None, default=None, help="Folder or .csv file (default: the run folder).")
    apply.add_argument(
        "--labels",
        type=Literal["given", "cleaned"],
        default="given",
        help="What rows without a decision carry: their given label, or the cleaned one.",
    )
    commands.add_subcommand("apply", apply, help="Decisions to labels for the next training.")

    report = Parser(description="Write report.html of a finished run: charts, suspicious examples, and the review.")
    report.add_argument("run", type=Path, help="Run folder.")
    report.add_argument("--compare", nargs="+", type=Path, default=[], metavar="RUN", help="Other runs beside it.")
    report.add_argument("--review-rows", type=int, default=REVIEW_ROWS, help="At most so many examples to review.")
    report.add_argument("--no-pictures", action="store_true", help="Do not read the data: leave pictures out.")
    commands.add_subcommand("report", report, help="Write report.html of a run again.")

    demo = Parser(
        description="Train on digits with 80% uniform label noise: plain, L2R, IEG, and plain on the true labels."
    )
    demo.add_argument("--run", type=Path | None, default=None, help="Folder (default: a new one in runs/).")
    demo.add_argument("--resume", action="store_true", help="Continue the demo in this folder.")
    demo.add_argument("--seed", type=int, default=0, help="Of everything random.")
    commands.add_subcommand("demo", demo, help="Show the main job on embedded data, in two minutes.")
    return parser


def _add_new_data(parser: Parser, text: str, **options: Any) -> None:
    parser.add_argument("data", type=str if not options else str | None, help=text, **options)
    parser.add_argument("--path", type=Path | None, default=None, help="Folder that the paths in a table start from.")
    parser.add_argument(
        "--on-bad-image",
        type=Literal["error", "skip"],
        default="error",
        help="What to do about images that cannot be read: list all of them and stop, or leave them out.",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 for something that the user can mend."""
    logging.basicConfig(format="karat: %(message)s", level=logging.WARNING)
    warnings.filterwarnings("ignore", module="PIL")  # what ails an image is said in words that name the image
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    logging.getLogger("karat").setLevel(logging.INFO)
    try:
        options = _parse(arguments)
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


def load_config(path: Path) -> Config:
    """Read the config.yaml of a run folder."""
    if not path.exists():
        raise UserError(f"There is no run in {path.parent}: {path.name} is missing, check the folder.")
    options = build_parser(Config()).parse_args(["train", "--config", str(path)])
    return _config(options["train"])


def _parse(arguments: list[str]) -> Namespace:
    """Parse with the defaults of the resumed run or the preset, which must be known before the rest."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--run", type=Path)
    first.add_argument("--resume", action="store_true")
    first.add_argument("--preset", default="default")
    try:
        known, _ = first.parse_known_args(arguments)
    except argparse.ArgumentError:  # a value is missing: the full parser says it better
        known = first.parse_args([])
    if known.resume and any(argument.startswith("--preset") for argument in arguments):
        raise UserError("A resumed run keeps its settings: leave --preset out.")
    if arguments[:1] == ["train"]:
        arguments = [re.sub("^--on-bad-image(?==|$)", "--data.on_bad_image", argument) for argument in arguments]
    if known.resume and known.run and (known.run / "config.yaml").exists():
        return _parse_from(load_config(known.run / "config.yaml"), arguments)
    options = _parse_from(preset(known.preset), arguments)
    named = options[options.command].get("preset", known.preset)
    if named != known.preset:  # it stood in a config file
        return _parse_from(preset(named), arguments)
    return options


def _parse_from(defaults: Config, arguments: list[str]) -> Namespace:
    """Parse with these defaults; DATA takes the place of data.name."""
    options = build_parser(defaults).parse_args(arguments)
    if options.command != "train":
        return options
    source, name = options.train.pop("source"), options.train.data.name
    if source is None:
        return options
    written = any(argument.split("=")[0] == "--data.name" for argument in arguments)
    if source != name and (written or name != defaults.data.name):
        raise UserError(f"The data are {source} and, by data.name, {name}: name them once.")
    options.train.data.name = source
    return options


def _config(options: Namespace) -> Config:
    parser = build_parser(Config())
    try:
        values = parser.instantiate(Namespace(command="train", train=options))["train"]
    except (TypeError, AttributeError) as error:  # a section that is a plain value
        raise UserError(
            "A section of the config file, such as training, is a plain value: give it `name: value` lines of its own."
        ) from error
    return Config(**{name: values[name] for name in Config.__dataclass_fields__})


def _train(options: Namespace) -> None:
    config = _config(options)
    if options.resume and options.run is None:
        raise UserError("--resume needs the folder of the run: write --run FOLDER.")
    unread = unread_settings(config)
    if unread:
        print(f"karat: {unread}", file=sys.stderr)
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
    stored = folder / "config.yaml"
    if resume and stored.exists():
        before, asked = config_as_dict(load_config(stored)), config_as_dict(config)
        check_same_config(before, asked, folder, chosen_settings(folder))
    try:
        result = train_run(config, folder, resume)
    except BadImages as error:
        listed = folder / "bad_images.csv"
        write_safe_csv(pd.DataFrame(error.images, columns=["name", "reason"]), listed)
        raise UserError(f"{error}\nAll of them are in {listed}.") from error
    names = ("selected", "averaged", "raw", "validated")
    found: dict[str, Accuracy | None] = {name: getattr(result, name) for name in names}
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
        _print_accuracies(evaluate_run(load_config(options.run / "config.yaml"), options.run))
        return
    found = evaluate_data(options.run, options.data, path=options.path, on_bad_image=options.on_bad_image)
    table = Table("class", "examples", "precision", "recall", title="Class by class", title_justify="left")
    for figures in found.classes:
        shares = ("–" if share is None else f"{share:.1%}" for share in (figures.precision, figures.recall))
        table.add_row(Text(terminal_safe(figures.name)), f"{figures.examples:,}", *shares)
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
    estimate = json.loads((folder / "noise_estimate.json").read_text(encoding="utf-8"))
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
    values = build_parser(Config()).instantiate(Namespace(command="noise", noise=options))["noise"]
    task = task_of(replace(Config(), seed=options.seed, data=values["data"], noise=values["noise"]))
    summary = write_noise(task, options.file)
    rate = summary["realised_rate"]
    wrong = "nobody knows how many are wrong" if rate is None else f"{rate:.2%} of them wrong"
    print(f"{summary['examples']:,} labels in {options.file}, {wrong}; the matrix is in {options.file.stem}.json.")


def _rog(options: Namespace) -> None:
    accuracies = rog_of_run(load_config(options.run / "config.yaml"), options.run)
    _print_accuracies(accuracies)
    print(f"The generative classifier is in {options.run / 'rog.safetensors'}.")


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
    print(f"  {retrain_command(options.run, load_config(options.run / 'config.yaml'), applied.path)}")


def _report(options: Namespace) -> None:
    def load() -> NoisyTask:
        return task_of(load_config(options.run / "config.yaml"))

    path = report_run(options.run, None if options.no_pictures else load, options.review_rows, options.compare)
    print(f"The report is {path}: open it in a browser. Its pictures and the data of the review are in report_files.")


COMMANDS: dict[str, Callable[[Namespace], int | None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "bench": _bench,
    "noise": _noise,
    "rog": _rog,
    "audit": _audit,
    "suggest": _suggest,
    "apply": _apply,
    "report": _report,
    "demo": _demo,
}
