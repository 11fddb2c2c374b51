"""Recipes: what is read, how settings are merged, what --only finds, and one sentence for every mistake."""

from pathlib import Path

import pytest

from karat.bench.recipe import read_recipe
from karat.cli import main
from karat.errors import UserError

RECIPE = """
title: Wines
settings: {data.name: wine, training.steps: 7, optimizer.rate: 0.5}
columns:
  clean: {}
  80%: {settings: {noise.kind: uniform, noise.rate: 0.8, optimizer.rate: 0.4}}
rows:
  gce:
    columns: [80%]
    seeds: [4]
  ieg, k = 3: {settings: {method: ieg, methods.ieg: {consistency_weight: 3}, optimizer.rate: 0.3}}
  own: {settings: {method: l2r}, columns: {clean: {optimizer.rate: 0.2}, 80%: {}}}
seeds: [1, 0]
figures: [noise]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "wines.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_times_columns_times_seeds(tmp_path):
    recipe = read_recipe(written(tmp_path, RECIPE))
    assert (recipe.title, recipe.figures) == ("Wines", ("noise",))
    # In the order of the file, though the first row has no cell in the first column.
    assert recipe.rows == ("gce", "ieg, k = 3", "own")
    assert recipe.columns == ("clean", "80%")
    assert [cell.name for cell in recipe.cells] == [
        "ieg, k = 3/clean/1", "ieg, k = 3/80%/1", "own/clean/1", "own/80%/1",
        "ieg, k = 3/clean/0", "ieg, k = 3/80%/0", "own/clean/0", "own/80%/0",
        "gce/80%/4",
    ]  # fmt: skip
    assert recipe.cells[1].folder == Path("cells/ieg-k-3/80/seed-1")


def test_later_settings_win(tmp_path):
    """Rates: 0.5 of the recipe, 0.4 of the column, 0.3 of the row, 0.2 of the row in that column, 0.1 of --set."""
    path = written(tmp_path, RECIPE)
    cells = {cell.name: cell.config for cell in read_recipe(path).cells}
    assert cells["own/clean/0"].optimizer.rate == 0.2
    assert cells["own/80%/0"].optimizer.rate == 0.4
    assert cells["ieg, k = 3/80%/0"].optimizer.rate == 0.3
    assert cells["ieg, k = 3/80%/0"].methods.ieg.consistency_weight == 3
    assert cells["gce/80%/4"].method == "gce"  # a method's name needs no setting
    assert (cells["own/80%/1"].seed, cells["own/80%/1"].training.steps) == (1, 7)
    overrides = {"optimizer": {"rate": 0.1}, "data.limit": 50}
    assert {cell.config.optimizer.rate for cell in read_recipe(path, overrides).cells} == {0.1}


def test_the_row_that_names_a_method_keeps_another_one_of_its_settings(tmp_path):
    text = "settings: {data.name: wine}\ncolumns: {a: {}}\nrows: {gce: {settings: {method: elr}}}"
    assert [cell.config.method for cell in read_recipe(written(tmp_path, text)).cells] == ["elr"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], 9),
        (["gce"], ["gce/80%/4"]),
        (["own/clean"], ["own/clean/1", "own/clean/0"]),
        (["own/clean/0", "gce"], ["own/clean/0", "gce/80%/4"]),
        (["*/80%/0"], ["ieg, k = 3/80%/0", "own/80%/0"]),
        (["o?n/*/1"], ["own/clean/1", "own/80%/1"]),
    ],
)
def test_only(patterns, names, tmp_path):
    found = [cell.name for cell in read_recipe(written(tmp_path, RECIPE)).only(patterns).cells]
    assert (len(found) if isinstance(names, int) else found) == names


def test_a_name_with_brackets_is_found(tmp_path):
    text = "settings: {data.name: wine}\ncolumns: {'rate [0]': {}}\nrows: {gce: {}}"
    assert len(read_recipe(written(tmp_path, text)).only(["gce/rate [0]/0"]).cells) == 1


def test_only_what_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match=r"No cell of wines.yaml is called 'gcee'. Did you mean 'gce'\? Its rows: gce"):
        read_recipe(written(tmp_path, RECIPE)).only(["gcee"])


GRID = "columns: {a: {}}\nrows: {gce: {}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: {gce: [}", "is not YAML"),
        ("\x00", "is not YAML"),
        ("just text", "holds no recipe: write rows, columns and settings"),
        ("", "holds no recipe"),
        ("columns: {a: {}}", "has no rows: give it `rows:`"),
        ("rows: {gce: {}}", "has no columns: give it `columns:`"),
        ("columns: {a: {}}\nrows: [gce]", "has no rows"),
        ("columns: {a: {}}\nrows: {gce: 5}", "'gce' is a plain value, give it {settings: ...}"),
        (GRID + "setings: {}", "has the unknown key 'setings'. Did you mean 'settings'?"),
        ("columns: {a: {}}\nrows: {gce: {setings: {}}}", "'gce' in wines.yaml has the unknown key 'setings'"),
        ("columns: {a: {seeds: [1]}}\nrows: {gce: {}}", "'a' in wines.yaml has the unknown key 'seeds'"),
        ("columns: {a/b: {}}\nrows: {gce: {}}", "the name 'a/b' must not have a slash"),
        (GRID + "settings: {data.nam: wine}", "wines.yaml, row gce, column a: There is no setting 'data.nam'"),
        (
            GRID + "settings: {optimizer.rate: fast}",
            "row gce, column a: optimizer.rate: expected float or null. Got: fast",
        ),
        (GRID + "settings: {noise.rate: 0.4}", "row gce, column a: Noise 'none' does not read noise.rate: leave"),
        ("columns: {a: {}}\nrows: {x: {settings: {method: iegg}}}", "column a: Unknown method 'iegg'. Did you mean"),
        (GRID + "settings: {seed: 3}", "the setting seed has no effect in a recipe, write `seeds: [3]`"),
        (GRID + "settings: wine", "'settings' is wine, give it `name: value` lines"),
        (GRID + "settings:", "'settings' is None, give it `name: value` lines, or leave it out"),
        (GRID + "paper: [1]", "'paper' is [1], give it `name: value` lines"),
        (GRID + "paper: {tabel: ablation, method: ieg}", "column a: The paper's results have no column 'tabel'"),
        (GRID + "paper: {method: ieg}", "row gce, column a: 63 results of the paper are"),
        (GRID + "seeds: 3", "The seeds of wines.yaml are 3: write a list of whole numbers"),
        (GRID + "seeds: []", "The seeds of wines.yaml are []"),
        (GRID + "seeds: [0, 1.5]", "The seeds of wines.yaml are [0, 1.5]"),
        (GRID + "seeds: [true]", "The seeds of wines.yaml are [True]"),
        (GRID + "seeds: [-1]", "The seeds of wines.yaml are [-1]"),
        (GRID + "seeds: [2, 2]", "The seeds of wines.yaml are [2, 2]: write each of them once"),
        ("columns: {a: {}}\nrows: {gce: {seeds: x}}", "The seeds of wines.yaml are x"),
        (GRID + "figures: [curvs]", "asks for the figure 'curvs': choose from noise, minutes, curves, label_trust"),
        (GRID + "figures: curves", "The figures of wines.yaml are 'curves': write a list"),
        ("columns: {a: {}}\nrows: {gce: {columns: [b]}}", "Row gce of wines.yaml names the column 'b': it has a."),
        ("columns: {a: {}}\nrows: {gce: {columns: a}}", "Row gce of wines.yaml has the columns 'a': write a list"),
        ("columns: {a: {}}\nrows: {gce: {columns: {a: 5}}}", "'a' is 5, give it `name: value` lines"),
        ("columns: {80%: {}, '80': {}}\nrows: {gce: {}}", "would share the folder cells/gce/80/seed-0: rename one"),
        ("columns: {a: {}}\nrows:\n  gce: {}\n  gce: {seeds: [1]}", "'gce' stands twice"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_and_exit_code_2(text, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wines.yaml").write_text(text, encoding="utf-8")
    assert main(["bench", "wines.yaml", "--list"]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert message in error


def test_a_missing_recipe_is_said(tmp_path, capsys):
    assert main(["bench", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: the recipes are YAML files, see the folder recipes/" in capsys.readouterr().err


def test_list_prints_the_names(tmp_path, capsys):
    path = written(tmp_path, RECIPE)
    assert main(["bench", str(path), "--list", "--only", "gce", "own/clean"]) == 0
    assert capsys.readouterr().out.split("\n") == ["own/clean/1", "own/clean/0", "gce/80%/4", ""]


def test_jobs_below_one_are_refused(tmp_path, capsys):
    assert main(["bench", str(written(tmp_path, RECIPE)), "--jobs", "0"]) == 2
    assert "--jobs is 0: write 1 or more" in capsys.readouterr().err
