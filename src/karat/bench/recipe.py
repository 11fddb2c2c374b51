"""Recipes: a YAML file that names the rows and columns of a table, the settings of each, and the seeds.

    title: CIFAR-10, uniform noise
    paper: {table: cifar10_uniform}           # where the paper's results are found, optional
    settings: {preset: paper, data.name: cifar10}
    columns:
      80% uniform: {settings: {noise.kind: uniform, noise.rate: 0.8}, paper: {noise_ratio: 0.8}}
    rows:
      ieg: {settings: {method: ieg, model: wrn-28-10}, paper: {method: ieg, network: wrn28-10}}
    seeds: [0, 1, 2]
    figures: [noise, minutes, curves, label_trust]

A row that is a method's name needs nothing else: `gce: {}`. `seeds` and `columns` in a row restrict that row;
`columns: {80% uniform: {methods.ieg.consistency_weight: 1}}` also gives it settings of its own there. Later settings
win: the recipe's, the column's, the row's, the row's in that column, those of `--set`.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from karat.bench.paper import paper_result
from karat.data.noise.kinds import noise_of
from karat.errors import UserError, choose, suggestion
from karat.files.yaml_files import check_yaml
from karat.methods import METHODS
from karat.settings.config import Config, flat
from karat.settings.read import read_config

FIGURES = ("noise", "minutes", "curves", "label_trust")
_TOP = {"title", "note", "paper", "settings", "columns", "rows", "seeds", "figures"}
_COLUMN = {"settings", "paper"}
_ROW = _COLUMN | {"seeds", "columns"}


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
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    figures: tuple[str, ...]

    def only(self, patterns: Iterable[str]) -> "Recipe":
        """Keep the cells that one of the patterns names: `ROW`, `ROW/COLUMN` or `ROW/COLUMN/SEED`, with * and ?."""
        patterns = list(patterns)
        if not patterns:
            return self
        kept = {cell.name: cell for pattern in patterns for cell in self._matching(pattern)}
        return replace(self, cells=tuple(cell for cell in self.cells if cell.name in kept))

    def _matching(self, pattern: str) -> list[Cell]:
        full = pattern + "/*" * (2 - pattern.count("/"))
        found = [cell for cell in self.cells if cell.name == full or fnmatch.fnmatchcase(cell.name, full)]
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
    rows, columns = _lines(content, "rows", _ROW, path), _lines(content, "columns", _COLUMN, path)
    seeds = _seeds(content.get("seeds", [0]), path)
    common, common_paper = _mapping(content, "settings", f"{path}"), _mapping(content, "paper", f"{path}")
    cells = []
    for row_name, row in rows.items():
        shown = _columns_of(row_name, row, columns, path)
        row_settings = _mapping(row, "settings", f"'{row_name}' in {path}")
        if "method" not in flat(row_settings) and row_name in METHODS:
            row_settings = {"method": row_name, **row_settings}
        for column_name, own_settings in shown.items():
            column = columns[column_name]
            where = f"{path}, row {row_name}, column {column_name}"
            settings = _merged(common, column.get("settings", {}), row_settings, own_settings, overrides or {})
            paper = {**common_paper, **column.get("paper", {}), **row.get("paper", {})}
            _check_paper(paper, where)
            config = _config(settings, where)
            for seed in _seeds(row.get("seeds", seeds), path):
                cells.append(Cell(row_name, column_name, seed, replace(config, seed=seed), paper))
    _check_folders(cells, path)
    # All cells of the first seed come first: an unfinished table is whole for some seeds.
    cells.sort(key=lambda cell: seeds.index(cell.seed) if cell.seed in seeds else len(seeds) + cell.seed)
    return Recipe(
        path=path,
        title=str(content.get("title", path.stem)),
        note=str(content.get("note", "")).strip(),
        rows=tuple(rows),
        columns=tuple(name for name in columns if any(cell.column == name for cell in cells)),
        cells=tuple(cells),
        figures=_figures(content.get("figures", []), path),
    )


class _Loader(yaml.SafeLoader):
    """YAML whose mappings name nothing twice: PyYAML would keep the last row of a name and drop the first."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(None, None, f"'{name}' stands twice", node.start_mark)
        return node


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"There is no recipe {path}: the recipes are YAML files, see the folder recipes/.")
    try:
        content = yaml.load(check_yaml(path), _Loader)  # noqa: S506  a SafeLoader
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not a YAML file ({' '.join(str(error).split())}): mend it there.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no recipe: write rows, columns and settings, as the files in recipes/ do.")
    return content


def _lines(content: Mapping[str, Any], part: str, legal: set[str], path: Path) -> dict[str, dict[str, Any]]:
    lines = content.get(part)
    if not isinstance(lines, dict) or not lines:
        raise UserError(f"{path} has no {part}: give it `{part}:` with a name and settings in each line.")
    lines = {str(name): line or {} for name, line in lines.items()}
    for name, line in lines.items():
        where = f"'{name}' in {path}"
        if not isinstance(line, dict):
            raise UserError(f"{part} of {path}: '{name}' is a plain value, give it {{settings: ...}}.")
        _check_keys(line, legal, where)
        for key in ("settings", "paper"):
            _mapping(line, key, where)
        if "/" in name:
            raise UserError(f"{part} of {path}: the name '{name}' must not have a slash.")
    return lines


def _columns_of(name: str, row: Mapping[str, Any], columns: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Return the columns in which a row has cells, each with the settings that the row has there alone."""
    shown = row.get("columns", list(columns))
    if not isinstance(shown, (list, dict)) or not shown:
        raise UserError(f"Row {name} of {path} has the columns '{shown}': write a list of their names.")
    for column in shown:
        if str(column) not in columns:
            raise UserError(f"Row {name} of {path} names the column '{column}': it has {', '.join(columns)}.")
    if isinstance(shown, list):
        return {str(column): {} for column in shown}
    return {str(column): _mapping(shown, column, f"'{name}' in {path}") for column in shown}


def _mapping(content: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{where}: '{key}' is {found}, give it `name: value` lines, or leave it out.")
    return found


def _config(settings: Mapping[str, Any], where: str) -> Config:
    if "seed" in settings:
        raise UserError(f"{where}: the setting seed has no effect in a recipe, write `seeds: [{settings['seed']}]`.")
    try:
        config = read_config(settings)
        choose("method", config.method, METHODS)
        noise_of(config.noise)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return config


def _check_paper(paper: Mapping[str, Any], where: str) -> None:
    """Refuse a mistake in `paper` now, and not when the runs are done."""
    try:
        paper_result(paper)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _check_keys(content: Mapping[str, Any], legal: set[str], where: str) -> None:
    for key in content:
        if key not in legal:
            raise UserError(f"{where} has the unknown key '{key}'.{suggestion(str(key), sorted(legal))}")


def _seeds(seeds: Any, path: Path) -> list[int]:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise UserError(f"The seeds of {path} are {seeds}: write a list of whole numbers, such as [0, 1, 2].")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"The seeds of {path} are {seeds}: write each of them once.")
    return seeds


def _figures(figures: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(figures, list):
        raise UserError(f"The figures of {path} are '{figures}': write a list, such as [{FIGURES[0]}].")
    for figure in figures:
        if figure not in FIGURES:
            raise UserError(f"{path} asks for the figure '{figure}': choose from {', '.join(FIGURES)}.")
    return tuple(figures)


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
