"""`karat bench`: run a recipe and leave its table and figures in a folder."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from karat.bench.dry_run import Cost, check_sizes, dry_run
from karat.bench.figures import write_figures
from karat.bench.recipe import Recipe, read_recipe
from karat.bench.runner import check_cells, run_recipe
from karat.bench.tables import read_results, report
from karat.errors import UserError
from karat.files.atomic import replacing, write_text


def bench(
    path: Path,
    out: Path | None = None,
    only: Sequence[str] = (),
    jobs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    list_cells: bool = False,
    dry: bool = False,
) -> int:
    """Run what is not finished; write results.csv, table.md and the figures; return the exit code."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs is {jobs}: write 1 or more.")
    recipe = read_recipe(path, settings)
    chosen = recipe.only(only)
    if list_cells:
        print("\n".join(cell.name for cell in chosen.cells))
        return 0
    if dry:
        _print_costs(chosen)
        return 0
    folder = out or Path("bench") / path.stem
    check_cells(recipe, folder)
    print(f"karat: {len(chosen.cells)} of the {len(recipe.cells)} cells of {path.name}, in {folder}", file=sys.stderr)
    try:
        failures = run_recipe(chosen, folder, jobs)
    except KeyboardInterrupt:
        raise UserError("stopped; the same command goes on where it was.") from None
    finally:
        _write(recipe, folder, path, settings)
    _show(folder)
    for failure in failures:
        print(f"karat: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _write(recipe: Recipe, folder: Path, path: Path, settings: Mapping[str, Any] | None) -> None:
    results = read_results(recipe, folder)
    if results.empty:
        return
    with replacing(folder / "results.csv") as temporary:
        results.to_csv(temporary, index=False, float_format="%.4f")
    command = f"karat bench {shlex.quote(str(path))}" + (
        f" --set {shlex.quote(json.dumps(settings))}" if settings else ""
    )
    write_text(folder / "table.md", report(recipe, results, command))
    write_figures(recipe, results, folder)


def _show(folder: Path) -> None:
    table = folder / "table.md"
    if table.exists():
        Console().print(Markdown(table.read_text(encoding="utf-8")))
        print(f"In {folder}: results.csv, table.md, the figures, and a run folder for each cell.")


def _print_costs(recipe: Recipe) -> None:
    check_sizes(recipe)
    console = Console()
    console.width = max(console.width, 130)  # a cut-off number is no number

    def report_cost(cost: Cost) -> None:
        print(
            f"karat: {cost.method} {cost.model}: two steps of {'x'.join(map(str, cost.size.shape))} done "
            f"in {cost.measured_seconds:.0f} s",
            file=sys.stderr,
        )

    costs = dry_run(recipe, report_cost)
    names = ("method", "network", "parameters", "input", "batch", "s/step", "steps", "one run", "runs")
    table = Table(*names, title=f"{recipe.title}: estimates for one thread of this machine", title_justify="left")
    for cost in costs:
        table.add_row(
            cost.method,
            cost.model,
            f"{cost.parameters / 1e6:.2f}M",
            "x".join(map(str, cost.size.shape)),
            str(cost.batch),
            f"{cost.seconds_a_step:.1f}",
            f"{cost.steps:,}",
            f"{cost.days:.1f} days" if cost.days >= 1 else f"{24 * cost.days:.1f} hours",
            str(len(cost.cells)),
        )
    console.print(table)
    total = sum(cost.days * len(cost.cells) for cost in costs)
    print(f"All {len(recipe.cells)} runs: about {total:,.1f} days of one thread. Nothing was trained.")
