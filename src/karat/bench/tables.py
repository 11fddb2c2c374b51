"""What the cells of a recipe measured: results.csv, and a table of means with the paper's results beside them."""

import statistics
from pathlib import Path

import pandas as pd

from karat.bench.paper import paper_result
from karat.bench.recipe import Cell, Recipe
from karat.files.json_files import read_json

LAST, VALIDATED = "last", "validated"
_NOTES = {
    "last": "Averaged weights after the last step.",
    "selected": "Averaged weights at the lowest learning rate (the paper's rule).",
    "validated": "Averaged weights that were best on held-out noisy examples with their noisy labels.",
}


def read_results(recipe: Recipe, folder: Path) -> pd.DataFrame:
    """Return one line for each finished cell: test accuracies in percent, realised noise rate, time."""
    lines = []
    for cell in recipe.cells:
        path = folder / cell.folder / "results.json"
        if not path.exists():
            continue
        found = read_json(path, "delete that folder and run it again")
        paper = paper_result(cell.paper)
        lines.append(
            {
                "row": cell.row,
                "column": cell.column,
                "seed": cell.seed,
                "last": _percent(found["averaged"]),
                "selected": _percent(found["selected"]),
                "validated": _percent(found.get("validated")),
                "raw": _percent(found["raw"]),
                "top5": _percent(found["averaged"], "top5"),
                "noise_rate": found["noise_rate"],
                "seconds": found["seconds"],
                "paper": None if paper is None else paper.accuracy,
                "paper_std": None if paper is None else paper.std,
                "paper_top5": None if paper is None else paper.top5,
                "only": cell.name,
            }
        )
    return pd.DataFrame(lines)


def _percent(accuracy: dict[str, float] | None, kind: str = "top1") -> float | None:
    return None if accuracy is None else 100 * accuracy[kind]  # None: there are no test examples


def mean_and_spread(values: list[float]) -> str:
    """Write a mean with the standard deviation over the seeds, and how many there are.

    >>> mean_and_spread([98.0, 99.0]), mean_and_spread([98.0])
    ('98.5 ± 0.7', '98.0')
    """
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def markdown_table(recipe: Recipe, results: pd.DataFrame, kind: str) -> str:
    """Return a table rows × columns of one kind of accuracy; the best mean of a column is bold."""
    columns = recipe.columns
    groups = {key: list(group[kind].dropna()) for key, group in results.groupby(["row", "column"])}
    means = {key: statistics.mean(values) for key, values in groups.items() if values}
    best = {
        column: max((means[row, column] for row in recipe.rows if (row, column) in means), default=None)
        for column in columns
    }
    counts = {len(values) for values in groups.values() if values}
    lines = ["| | " + " | ".join(columns) + " | minutes a run |", "|---" * (len(columns) + 2) + "|"]
    for row in recipe.rows:
        shown = []
        for column in columns:
            values = groups.get((row, column), [])
            text = mean_and_spread(values) if values else "–"
            if values and means[row, column] == best[column]:
                text = f"**{text}**"
            if len(counts) > 1 and len(values) > 1:
                text += f" ({len(values)})"
            shown.append(text + _paper(recipe, row, column))
        minutes = results[results["row"] == row]["seconds"] / 60 if len(results) else []
        shown.append(f"{statistics.mean(minutes):.1f}" if len(minutes) else "–")
        lines.append(f"| {row} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def report(recipe: Recipe, results: pd.DataFrame, command: str) -> str:
    """Return the whole Markdown page of a recipe."""
    total = len(recipe.cells)
    seeds = sorted({cell.seed for cell in recipe.cells})
    lines = [f"# {recipe.title}", "", f"`{command}`", ""]
    if recipe.note:
        lines += [recipe.note, ""]
    lines += [
        f"Test accuracy in percent, mean ± standard deviation over the seeds ({', '.join(map(str, seeds))}); "
        f"{len(results)} of {total} runs are finished. No checkpoint is chosen by test labels.",
        "",
    ]
    for kind, note in _NOTES.items():
        if len(results) and results[kind].notna().any() and _says_more(results, kind):
            lines += [f"## {kind.capitalize()} checkpoint", "", note, "", markdown_table(recipe, results, kind), ""]
    if len(results) and results["last"].isna().all():
        lines += ["The data have no test examples: no accuracy was measured.", ""]
    return "\n".join(lines)


def _says_more(results: pd.DataFrame, kind: str) -> bool:
    # With one cosine the lowest rate is at the last step: the same model needs no second table.
    return kind != "selected" or not results["selected"].equals(results["last"])


def _paper(recipe: Recipe, row: str, column: str) -> str:
    cell: Cell | None = next((c for c in recipe.cells if (c.row, c.column) == (row, column)), None)
    paper = None if cell is None else paper_result(cell.paper)
    if paper is None:
        return ""
    spread = "" if paper.std is None else f" ± {paper.std}"
    return f" (paper {paper.accuracy}{spread})"  # with the paper's own digits: 93.7 or 64.43
