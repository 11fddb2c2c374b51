"""The options of every command, generated from the config's dataclasses, and the config that they make."""

import argparse
import re
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from karat import __version__
from karat.errors import UserError
from karat.report.run_report import REVIEW_ROWS
from karat.settings.config import PRESETS, Config, DataSettings, NoiseSettings, config_as_dict, flat, preset
from karat.settings.parser import Parser


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
    _add_runs(commands, defaults)
    _add_label_audit(commands)
    _add_laboratory(commands)
    return parser


def _add_runs(commands: Any, defaults: Config) -> None:
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

    demo = Parser(
        description="Train on digits with 80% uniform label noise: plain, IEG, Karat, and plain on the true labels."
    )
    demo.add_argument("--run", type=Path | None, default=None, help="Folder (default: a new one in runs/).")
    demo.add_argument("--resume", action="store_true", help="Continue the demo in this folder.")
    demo.add_argument("--seed", type=int, default=0, help="Of everything random.")
    commands.add_subcommand("demo", demo, help="Show the main job on embedded data, in two minutes.")


def _add_label_audit(commands: Any) -> None:
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


def _add_laboratory(commands: Any) -> None:
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
        help="Take two steps of each kind of cell on random data, print the time of the whole, and stop.",
    )
    commands.add_subcommand("bench", bench_parser, help="Run a recipe: a table of methods, noises and seeds.")

    noise = Parser(description="Draw label noise once and keep it in a file for noise.labels_file.")
    noise.add_argument("file", type=Path, help="Label file to write, .npz or .csv; a .json beside it has the matrix.")
    noise.add_argument("--seed", type=int, default=0, help="Of the trusted examples and of the noise.")
    noise.add_class_arguments(DataSettings, "data")
    noise.add_class_arguments(NoiseSettings, "noise")
    commands.add_subcommand("noise", noise, help="Draw label noise into a file.")


def _add_new_data(parser: Parser, text: str, **options: Any) -> None:
    parser.add_argument("data", type=str if not options else str | None, help=text, **options)
    parser.add_argument("--path", type=Path | None, default=None, help="Folder that the paths in a table start from.")
    parser.add_argument(
        "--on-bad-image",
        type=Literal["error", "skip"],
        default="error",
        help="What to do about images that cannot be read: list all of them and stop, or leave them out.",
    )


def load_config(path: Path) -> Config:
    """Read the config.yaml of a run folder."""
    if not path.exists():
        raise UserError(f"There is no run in {path.parent}: {path.name} is missing, check the folder.")
    options = build_parser(Config()).parse_args(["train", "--config", str(path)])
    return config_of(options["train"])


def parse(arguments: list[str]) -> Namespace:
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


def config_of(options: Namespace) -> Config:
    """Return the config that the options of `train` make."""
    parser = build_parser(Config())
    try:
        values = parser.instantiate(Namespace(command="train", train=options))["train"]
    except (TypeError, AttributeError) as error:  # a section that is a plain value
        raise UserError(
            "A section of the config file, such as training, is a plain value: give it `name: value` lines of its own."
        ) from error
    return Config(**{name: values[name] for name in Config.__dataclass_fields__})
