"""The command line: train, evaluate, bench, noise, rog and demo, generated from the config's dataclasses."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.table import Table

from karat import __version__
from karat.bench.command import bench
from karat.config import PRESETS, Config, DataSettings, NoiseSettings, config_as_dict, flat, preset
from karat.data.noise_report import write_noise
from karat.demo import run_demo
from karat.errors import UserError
from karat.parser import Parser
from karat.training.evaluation import Accuracy
from karat.training.run import evaluate_run, rog_of_run, task_of, train_run
from karat.training.run_folder import check_same_config, new_folder


def build_parser(defaults: Config) -> Parser:
    """Return the parser of all commands; `defaults` are those of `train`: a preset's, or a resumed run's."""
    parser = Parser(
        prog="karat",
        description="Train accurate classifiers on badly labelled data with a few trusted labels.",
        version=__version__,
        allow_abbrev=False,  # for all commands: an abbreviation is a typing error
    )
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")

    train = Parser(description="Train on noisy labels; everything is left in a run folder.")
    train.add_argument("--config", action="config", help="YAML file with any of the settings below.")
    train.add_argument("--run", type=Path | None, default=None, help="Run folder (default: a new one in runs/).")
    train.add_argument("--resume", action="store_true", help="Continue the unfinished run in the run folder.")
    train.add_argument("--preset", default="default", help=f"Settings to start from: {', '.join(PRESETS)}.")
    train.add_class_arguments(Config)
    train.set_defaults(flat(config_as_dict(defaults)))
    commands.add_subcommand("train", train, help="Train and leave a run folder.")

    evaluate = Parser(description="Measure the models of a finished or unfinished run.")
    evaluate.add_argument("run", type=Path, help="Run folder.")
    commands.add_subcommand("evaluate", evaluate, help="Measure the models of a run on the test examples.")

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

    demo = Parser(
        description="Train on digits with 80% uniform label noise: plain, L2R, IEG, and plain on the true labels."
    )
    demo.add_argument("--run", type=Path | None, default=None, help="Folder (default: a new one in runs/).")
    demo.add_argument("--resume", action="store_true", help="Continue the demo in this folder.")
    demo.add_argument("--seed", type=int, default=0, help="Of everything random.")
    commands.add_subcommand("demo", demo, help="Show the main job on embedded data, in two minutes.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 for something that the user can mend."""
    logging.basicConfig(format="karat: %(message)s", level=logging.WARNING)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
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
    if known.resume and known.run and (known.run / "config.yaml").exists():
        return build_parser(load_config(known.run / "config.yaml")).parse_args(arguments)
    options = build_parser(preset(known.preset)).parse_args(arguments)
    named = options[options.command].get("preset", known.preset)
    if named != known.preset:  # it stood in a config file
        return build_parser(preset(named)).parse_args(arguments)
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
        check_same_config(config_as_dict(load_config(stored)), config_as_dict(config), folder)
    result = train_run(config, folder, resume)
    found = {"selected": result.selected, "averaged": result.averaged, "raw": result.raw}
    _print_accuracies(found if result.validated is None else {**found, "validated": result.validated})
    if result.noise_rate is not None:
        print(f"Wrong among the noisy labels: {result.noise_rate:.1%}.")
    print(f"Test accuracy of the selected model: {result.selected.top1:.2%}. Everything is in {folder}.")


def _evaluate(options: Namespace) -> None:
    accuracies = evaluate_run(load_config(options.run / "config.yaml"), options.run)
    _print_accuracies(accuracies)


def _demo(options: Namespace) -> None:
    if options.resume and options.run is None:
        raise UserError("--resume needs the folder of the demo: write --run FOLDER.")
    run_demo(options.run or new_folder(Path("runs"), "demo"), options.seed, options.resume)


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


COMMANDS: dict[str, Callable[[Namespace], int | None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "bench": _bench,
    "noise": _noise,
    "rog": _rog,
    "demo": _demo,
}
