"""What `karat` exports is there, and docs/api.md says what its docstrings say."""

import ast
import runpy
from pathlib import Path

import pytest

import karat

ROOT = Path(__file__).parents[1]


def test_the_page_of_the_public_names_is_up_to_date():
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["page"]()
    assert written == page, "docs/api.md is out of date: run python docs/make_api.py"


def test_type_checkers_see_the_names_that_are_exported():
    """Type checkers read the imports at the top, Python the table of homes."""
    tree = ast.parse(Path(karat.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {alias.asname: node.module for node in checked.body for alias in node.names}
    assert homes == karat._HOMES
    assert all(getattr(karat, name).__module__ == home for name, home in homes.items())


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        karat.Trainer  # noqa: B018


@pytest.mark.parametrize("folder", ["examples", "benchmarks"])
def test_scripts_import_public_names_from_the_package(folder):
    for path in (ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("karat."):
                private = {alias.name for alias in node.names}
                assert not private & karat._HOMES.keys(), f"{path.name} imports a public name from {node.module}"


def test_training_takes_a_config_or_settings(tmp_path):
    settings = {"method": "supervised", "training": {"steps": 3}, "data.limit": 40}
    with pytest.raises(karat.UserError, match=r"wine and, by data.name, digits: name them once"):
        karat.train("wine", tmp_path / "run", data={"name": "digits"})
    config = karat.read_config({**settings, "data.name": "wine"})
    with pytest.raises(karat.UserError, match=r"a Config and settings \(method, seed\)"):
        karat.train(config, tmp_path / "run", method="ieg", seed=1)
    by_config = karat.train(config, tmp_path / "config", report=False)
    by_settings = karat.train("wine", str(tmp_path / "settings"), report=False, **settings)
    assert by_config.selected == by_settings.selected
    assert (tmp_path / "config/config.yaml").read_text() == (tmp_path / "settings/config.yaml").read_text()
    assert not (tmp_path / "settings/report.html").exists()
