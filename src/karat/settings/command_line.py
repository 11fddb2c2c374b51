"""The options of every command, generated from the config's dataclasses, and the config that they make."""

import re
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from karat import __version__
from karat.errors import UserError
from karat.files.yaml_files import check_yaml
from karat.report import REVIEW_ROWS
from karat.settings.config import Config, DataSettings, NoiseSettings, config_as_dict, flat
from karat.settings.parser import Parser
from karat.settings.presets import PRESETS
from karat.settings.read import read_config, read_run_config


class _TrainParser(Parser):
    """The parser of `train`, which prints the whole config."""

    def dump(self, cfg: Namespace, *args: Any, **kwargs: Any) -> str:
        """Return the options as a config file, with everything that they leave out."""
        whole = _train_options(cfg)
        for name, value in flat(config_as_dict(whole.pop("config"))).items():
            whole[name] = value
        return str(super().dump(whole, *args, **kwargs))


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="karat",
        description="Train accurate classifiers on badly labelled data with a few trusted labels.",
        version=__version__,
        allow_abbrev=False,  # for all commands: an abbreviation is a typing error
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    _add_runs(commands)
    _add_label_audit(commands)
    _add_laboratory(commands)
    return parser


def _add_runs(commands: Any) -> None:
    train = _TrainParser(description="Train on noisy labels; everything is left in a run folder.")
    train.add_argument(
        "source",
        nargs="?",
        type=str | None,
        default=None,
        metavar="DATA",
        help="Your data (docs/own_data.md): a folder of images, a table (.csv, .tsv, .parquet), an .npz file, "
        "shards (.tar, .parquet), a saved Hugging Face dataset; or a dataset's name. The same as --data.name.",
    )
    train.add_argument("--config", action="config", help="YAML file with any of the settings below.")
    train.add_argument("--run", type=Path | None, default=None, help="Run folder (default: a new one in runs/).")
    train.add_argument("--resume", action="store_true", help="Continue the unfinished run in the run folder.")
    train.add_argument("--preset", default="default", help=f"Settings to start from: {', '.join(PRESETS)}.")
    train.add_class_arguments(Config)
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
    audit.add_argument(
        "--figure",
        type=Path | None,
        default=None,
        metavar="FILE",
        help="Also draw how often labels are right against how often they claim it, where the truth is known: a .png "
        "and an .svg file.",
    )
    audit.add_argument(
        "--audit.error_rate",
        type=float | None,
        default=None,
        help="The share of changed labels that may be wrong (default: as the run was asked).",
    )
    commands.add_subcommand("audit", audit, help="Label issues, cleaned labels and noise rate of a run.")

    suggest = Parser(
        description="Name the rows whose verification would help most; write suggestions.csv and the review page. "
        "Without a run yet, give the data: the first rows to verify are named in seconds."
    )
    suggest.add_argument("source", type=str, metavar="RUN|DATA", help="Run folder, or your data as for train.")
    suggest.add_argument("--count", type=int, default=50, help="How many rows.")
    suggest.add_argument("--run", type=Path | None, default=None, help="Folder for DATA (default: a new one in runs/).")
    suggest.add_argument("--seed", type=int, default=0, help="For DATA: of everything random.")
    suggest.add_argument("--model", type=str, default="auto", help="For DATA of images: a pretrained network to look.")
    suggest.add_argument("--weights", type=Path | None, default=None, help="For DATA: its file of weights.")
    suggest.add_class_arguments(DataSettings, "data", skip={"name"})
    commands.add_subcommand("suggest", suggest, help="Which rows to verify next, or first.")

    sample = Parser(description="Draw rows at random to be verified: the share of wrong labels follows from them.")
    sample.add_argument("run", type=Path, help="Run folder.")
    sample.add_argument("--count", type=int, default=100, help="How many rows.")
    sample.add_argument("--seed", type=int, default=0, help="Of the draw: the same seed draws the same rows.")
    sample.add_argument("--no-pictures", action="store_true", help="Do not read the data: leave pictures out.")
    commands.add_subcommand("sample", sample, help="Draw random rows to verify.")

    estimate = Parser(
        description="Estimate the share of wrong labels, before and after cleaning, from a random sample."
    )
    estimate.add_argument("run", type=Path, help="Run folder.")
    estimate.add_argument("decisions", type=Path, help="Decisions about all rows of the sample.")
    commands.add_subcommand("estimate", estimate, help="Noise rate from the decisions about a sample.")

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


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line; `train` and `noise` get the config that their options make."""
    if arguments[:1] == ["train"]:
        arguments = [re.sub("^--on-bad-image(?==|$)", "--data.on_bad_image", argument) for argument in arguments]
    configured = arguments[:1] in (["train"], ["noise"], ["suggest"])  # what they leave out is read_config's business
    _check_config_files(arguments)
    try:
        options = build_parser().parse_args(arguments, defaults=not configured)
    except UserError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # of a value that no option can hold
        raise UserError(f"The options cannot be read ({' '.join(str(error).split())[:200]}): mend them.") from error
    if options.command == "train":
        written = any(argument.split("=")[0] == "--data.name" for argument in arguments)
        options.train = _train_options(options.train, written)
    elif options.command == "noise":
        values = options.noise.as_dict()
        options.noise = Namespace(file=values.pop("file"), config=read_config(values))
    elif options.command == "suggest":
        options.suggest = _suggest_options(options.suggest)
    return options


def _check_config_files(arguments: list[str]) -> None:
    """Refuse config files that would keep the parser busy for ever."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, _, value = argument.partition("=")
        path = Path(value or following)
        if option == "--config" and path.is_file():
            check_yaml(path)
        elif option == "--config" and path.exists() and not path.is_dir():
            raise UserError(f"{path} is no file but a device or a pipe: write the settings into a file.")


def _suggest_options(options: Namespace) -> Namespace:
    """Return source, count, run and, where the source is data, config."""
    values = options.as_dict()
    source, count, run = values.pop("source"), values.pop("count", 50), values.pop("run", None)
    if not (Path(source) / "config.yaml").exists():
        values["data"] = {**values.get("data", {}), "name": source}
        return Namespace(source=source, count=count, run=run, config=read_config(values))
    unread = [*flat(values), *(["run"] if run is not None else [])]
    if unread:
        raise UserError(f"{source} is the folder of a run, and --{unread[0]} is for data: leave it out.")
    return Namespace(source=source, count=count, run=None, config=None)


def _train_options(options: Namespace, name_written: bool = False) -> Namespace:
    """Return run, resume, preset and config; DATA takes the place of data.name, `name_written` on the command line."""
    values = options.as_dict()
    values.pop("config", None)
    run, resume, source = values.pop("run", None), values.pop("resume", False), values.pop("source", None)
    if resume and run is None:
        raise UserError("--resume needs the folder of the run: write --run FOLDER.")
    if resume and "preset" in values:
        raise UserError("A resumed run keeps its settings: leave --preset out.")
    if source is not None:
        data = values.setdefault("data", {})
        name = data.get("name", source)
        if source != name and (name_written or name != Config().data.name):
            raise UserError(f"The data are {source} and, by data.name, {name}: name them once.")
        data["name"] = source
    begun = resume and run is not None and (run / "config.yaml").exists()
    config = read_config(values, read_run_config(run) if begun else None)
    return Namespace(run=run, resume=resume, preset=values.get("preset", "default"), config=config)
