"""Figures from the runs of a recipe: accuracy over noise or minutes, curves, λ of right and wrong labels."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from karat.bench.recipe import Recipe
from karat.files.metrics_log import read_metrics
from karat.report.plots import CLEAN, MISLABELLED, line_style, new_figure, save_figure

Records = Sequence[Mapping[str, Any]]


def write_figures(recipe: Recipe, results: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw the figures that the recipe asks for, from the cells that are finished; return their .png files."""
    drawn: dict[str, Figure] = {}
    if "noise" in recipe.figures:
        drawn |= _over_noise(recipe, results)
    if "minutes" in recipe.figures:
        drawn |= _over_minutes(recipe, results)
    if "curves" in recipe.figures:
        drawn |= {f"curves-{name}": figure for name, figure in _curves(recipe, folder).items()}
    if "label_trust" in recipe.figures:
        drawn |= {f"label_trust-{name}": figure for name, figure in _label_trust(recipe, folder).items()}
    for name, figure in drawn.items():
        save_figure(figure, folder / name)
    return [folder / f"{name}.png" for name in drawn]


def _over_noise(recipe: Recipe, results: pd.DataFrame) -> dict[str, Figure]:
    """Draw accuracy over the noise ratio, one figure for each kind of noise with two finished ratios or more."""
    place = {cell.column: (cell.config.noise.kind, cell.config.noise.rate) for cell in recipe.cells}
    clean = [column for column, (kind, rate) in place.items() if kind == "none"]
    figures = {}
    for kind in dict.fromkeys(kind for kind, _ in place.values()):
        columns = {column: rate for column, (other, rate) in place.items() if other == kind}
        columns |= dict.fromkeys(clean, 0.0)
        finished = {rate for column, rate in columns.items() if column in set(results["column"])}
        if kind == "none" or len(finished) < 2:
            continue
        figure, axes = new_figure(f"{recipe.title}: accuracy over {kind} noise", "noise ratio")
        for number, row in enumerate(recipe.rows):
            points = []
            for column, rate in sorted(columns.items(), key=lambda item: item[1]):
                values = results[(results["row"] == row) & (results["column"] == column)]["last"].dropna() / 100
                if len(values):
                    points.append((rate, statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0))
            if points:
                x, y, spread = zip(*points, strict=True)
                axes.errorbar(x, y, spread, label=row, capsize=2, marker="o", markersize=3, **line_style(number))
        axes.set_ylabel("accuracy on test examples")
        _legend(axes, len(recipe.rows))
        figures[f"accuracy-over-{kind}"] = figure
    return figures


def _over_minutes(recipe: Recipe, results: pd.DataFrame) -> dict[str, Figure]:
    """Draw what finished runs reached over the minutes that they took: a line a row, a point a column."""
    figure, axes = new_figure(recipe.title, "minutes of a run")
    for number, row in enumerate(recipe.rows):
        means = results[results["row"] == row].groupby("column")[["seconds", "last"]].mean().sort_values("seconds")
        if len(means):
            axes.plot(means["seconds"] / 60, means["last"] / 100, label=row, marker="o", **line_style(number))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("accuracy on test examples")
    _legend(axes, len(recipe.rows))
    return {"accuracy-over-minutes": figure} if axes.lines else {}


def _curves(recipe: Recipe, folder: Path) -> dict[str, Figure]:
    """Draw test accuracy (solid) and agreement with the given labels (dotted) over the epochs, a figure a column."""
    figures = {}
    for column in recipe.columns:
        figure, axes = new_figure(f"{recipe.title}: {column}")
        for number, row in enumerate(recipe.rows):
            means = _mean_records(_records(recipe, folder, row, column))
            if not means:
                continue
            style = line_style(number)
            epochs = [record["epoch"] for record in means]
            axes.plot(epochs, [record.get("accuracy") for record in means], label=row, **style)
            given = [record.get("given_label_accuracy") for record in means]
            if any(value is not None for value in given):
                axes.plot(epochs, given, color=style["color"], linestyle=":", linewidth=1)
        axes.set_ylabel("test accuracy (dotted: share of given labels predicted)")
        _legend(axes, len(recipe.rows))
        if axes.lines:
            figures[_file_name(column)] = figure
    return figures


def _label_trust(recipe: Recipe, folder: Path) -> dict[str, Figure]:
    """Draw the mean λ of right and of wrong labels over the epochs (the paper's figure 4), a figure a column."""
    figures = {}
    for column in recipe.columns:
        figure, axes = new_figure(f"{recipe.title}: {column}")
        rows = [row for row in recipe.rows if _has_trust(_records(recipe, folder, row, column))]
        for row, linestyle in zip(rows, ("-", "--", ":", "-."), strict=False):
            means = _mean_records(_records(recipe, folder, row, column))
            for name, key, colour in (
                ("right", "clean_label_trust", CLEAN),
                ("wrong", "mislabelled_label_trust", MISLABELLED),
            ):
                label = f"{name} labels" if len(rows) == 1 else f"{row}: {name} labels"
                axes.plot(
                    [r["epoch"] for r in means], [r.get(key) for r in means], linestyle, color=colour, label=label
                )
        axes.set_ylabel("mean label trust λ")
        axes.set_ylim(-0.02, 1.02)
        _legend(axes, 2 * len(rows))
        if axes.lines:
            figures[_file_name(column)] = figure
    return figures


def _records(recipe: Recipe, folder: Path, row: str, column: str) -> list[Records]:
    cells = [cell for cell in recipe.cells if (cell.row, cell.column) == (row, column)]
    return [
        read_metrics(folder / cell.folder / "metrics.jsonl")
        for cell in cells
        if (folder / cell.folder / "results.json").exists()
    ]


def _mean_records(runs: Sequence[Records]) -> list[dict[str, Any]]:
    """Average the records of several seeds, evaluation by evaluation; a value that a seed lacks is left out."""
    means = []
    for records in zip(*runs, strict=False):
        keys = set.intersection(*(set(record) for record in records))
        values = {key: [record[key] for record in records] for key in keys}
        means.append({key: statistics.mean(v) for key, v in values.items() if None not in v})
    return means


def _has_trust(runs: Sequence[Records]) -> bool:
    return any(record.get("mislabelled_label_trust") is not None for records in runs for record in records)


def _legend(axes: Any, entries: int) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            fontsize=8 if entries > 8 else 10,
            handlelength=3,
        )


def _file_name(column: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in column).strip("-")
