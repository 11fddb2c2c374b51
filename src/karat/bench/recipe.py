"""Recipes: a YAML file that names the rows and columns of a table, the settings of each, and the seeds.

    title: CIFAR-10, uniform noise
    paper: {table: cifar10_uniform}           # where the paper's figures are found, optional
    settings: {preset: paper, data.name: cifar10}
    columns:
      80% uniform: {settings: {noise.kind: uniform, noise.rate: 0.8}, paper: {noise_ratio: 0.8}}
    rows:
      ieg: {settings: {method: ieg, model: wrn-28-10}, paper: {method: ieg, network: wrn28-10}}
    seeds: [0, 1, 2]
    figures: [noise, curves, label_trust]

A row that is a method's name needs nothing else: `gce: {}`. `seeds` and `columns` in a row restrict that row.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from karat.config import Config, flat
from karat.config_values import make_config
from karat.errors import UserError, suggestion
from karat.methods import METHODS

FIGURES = ("noise", "curves", "label_trust")
_TOP = {"title", "note", "paper", "settings", "columns", "rows", "seeds", "figures"}
_LINE = {"settings", "paper", "seeds", "columns", "title"}


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    row: str
    column: str
    seed: int
    config: Config
    paper: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the name by which `--only` finds the cell."""
        return f"{self.row}/{self.column}/{self.seed}"

    @property
    def folder(self) -> Path:
        """Return the cell's place in the bench folder."""
        return Path("cells") / _slug(self.row) / _slug(self.column) / f"seed-{self.seed}"


@dataclass(frozen=True)
class Recipe:
    """A table to be measured."""

    path: Path
    title: str
    note: str
    cells: tuple[Cell, ...]
    figures: tuple[str, ...]

    @property
    def rows(self) -> list[str]:
        """Return the names of the rows, in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def only(self, patterns: Iterable[str]) -> "Recipe":
        """Keep the cells that one of the patterns names: `ROW`, `ROW/COLUMN` or `ROW/COLUMN/SEED`, with * and ?."""
        patterns = list(patterns)
        if not patterns:
            return self
        kept = {cell.name: cell for pattern in patterns for cell in self._matching(pattern)}
        return replace(self, cells=tuple(cell for cell in self.cells if cell.name in kept))

    def _matching(self, pattern: str) -> list[Cell]:
        full = pattern + "/*" * (2 - pattern.count("/"))
        found = [cell for cell in self.cells if fnmatch.fnmatchcase(cell.name, full)]
        if not found:
            names = [cell.name for cell in self.cells]
            raise UserError(
                f"No cell of {self.path.name} is called '{pattern}'.{suggestion(pattern, [*self.rows, *names])} "
                f"Its rows: {', '.join(self.rows)}; its columns: {', '.join(self.columns)}."
            )
        return found


def read_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe and check every cell's settings; `overrides` are settings for all cells."""
    content = _read_yaml(path)
    _check_keys(content, _TOP, f"{path}")
    rows, columns = _lines(content, "rows", path), _lines(content, "columns", path)
    seeds = _seeds(content.get("seeds", [0]), path)
    figures = tuple(content.get("figures", ()))
    for figure in figures:
        if figure not in FIGURES:
            raise UserError(f"{path} asks for the figure '{figure}': choose from {', '.join(FIGURES)}.")
    cells = []
    for row_name, row in rows.items():
        shown = row.get("columns", list(columns))
        unknown = [name for name in shown if name not in columns]
        if unknown:
            raise UserError(f"Row {row_name} of {path} names the column '{unknown[0]}': it has {', '.join(columns)}.")
        row_settings = row.get("settings", {})
        if "method" not in flat(row_settings) and row_name in METHODS:
            row_settings = {"method": row_name, **row_settings}
        for column_name in shown:
            column = columns[column_name]
            settings = _merged(content.get("settings", {}), column.get("settings", {}), row_settings, overrides or {})
            paper = {**content.get("paper", {}), **column.get("paper", {}), **row.get("paper", {})}
            for seed in _seeds(row.get("seeds", seeds), path):
                try:
                    config = make_config({**settings, "seed": seed})
                except UserError as error:
                    raise UserError(f"{path}, row {row_name}, column {column_name}: {error}") from error
                cells.append(Cell(row_name, column_name, seed, config, paper))
    _check_folders(cells, path)
    # All cells of the first seed come first: an unfinished table is whole for some seeds.
    cells.sort(key=lambda cell: seeds.index(cell.seed) if cell.seed in seeds else len(seeds) + cell.seed)
    return Recipe(path, str(content.get("title", path.stem)), str(content.get("note", "")), tuple(cells), figures)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"There is no recipe {path}: the recipes are YAML files, see the folder recipes/.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a YAML file ({' '.join(str(error).split())}): mend it there.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no recipe: write rows, columns and settings, as the files in recipes/ do.")
    return content


def _lines(content: Mapping[str, Any], part: str, path: Path) -> dict[str, dict[str, Any]]:
    lines = content.get(part)
    if not isinstance(lines, dict) or not lines:
        raise UserError(f"{path} has no {part}: give it `{part}:` with a name and settings in each line.")
    lines = {str(name): line or {} for name, line in lines.items()}
    for name, line in lines.items():
        if not isinstance(line, dict):
            raise UserError(f"{part} of {path}: '{name}' is a plain value, give it {{settings: ...}}.")
        _check_keys(line, _LINE, f"'{name}' in {path}")
        if "/" in name:
            raise UserError(f"{part} of {path}: the name '{name}' must not have a slash.")
    return lines


def _check_keys(content: Mapping[str, Any], legal: set[str], where: str) -> None:
    for key in content:
        if key not in legal:
            raise UserError(f"{where} has the unknown key '{key}'.{suggestion(str(key), sorted(legal))}")


def _seeds(seeds: Any, path: Path) -> list[int]:
    if not isinstance(seeds, list) or not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise UserError(f"The seeds of {path} are {seeds}: write a list of whole numbers, such as [0, 1, 2].")
    return seeds


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:  # later parts win
        merged |= flat(dict(part))
    return merged


def _check_folders(cells: list[Cell], path: Path) -> None:
    owners: dict[Path, Cell] = {}
    for cell in cells:
        other = owners.setdefault(cell.folder, cell)
        if other is not cell:
            raise UserError(f"{path}: {other.name} and {cell.name} would share the folder {cell.folder}: rename one.")


def _slug(name: str) -> str:
    """Return a name that any file system takes.

    >>> _slug("80% uniform"), _slug("ieg, k = 1")
    ('80-uniform', 'ieg-k-1')
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "cell"
