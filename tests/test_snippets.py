"""Every piece of Python in README and docs runs, page by page, from top to bottom, on small data."""

import ast
import re
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.optim import SGD

import karat
from karat.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOES_SOMETHING = ast.Import | ast.ImportFrom | ast.Assign | ast.Call


def snippets(text: str) -> list[str]:
    """Return the blocks that are Python, in order: fenced as such, or indented, if they parse and do something."""
    found = re.findall(r"^```(\w*)\n(.*?)^```|(?<=\n\n)((?: {4}[^\n]*\n|\n)+)", text, re.MULTILINE | re.DOTALL)
    blocks = [(language == "python", fenced or dedent(indented)) for language, fenced, indented in found]
    return [block for is_fenced, block in blocks if is_fenced or is_python(block)]


def is_python(block: str) -> bool:
    try:
        return any(isinstance(node, DOES_SOMETHING) for node in ast.walk(ast.parse(block)))
    except SyntaxError:
        return False


WITH_PYTHON = {page.name: found for page in PAGES if page.name != "api.md" and (found := snippets(page.read_text()))}


def test_python_is_told_from_commands_and_formulas():
    text = "So:\n\n    import a\n\n    a.b()\n\nand\n\n    make demo   # x\n\n    ROOT/train\n\n```python\nx = 1\n```\n"
    assert snippets(text) == ["import a\n\na.b()\n\n", "x = 1\n"]


def test_the_pages_with_python_are_found():
    assert WITH_PYTHON.keys() == {"README.md", "audit.md", "estimator.md", "own_data.md", "own_loop.md", "predict.md"}


FRAME, KINDS = (part.iloc[::2].reset_index(drop=True) for part in load_wine(return_X_y=True, as_frame=True))
MASK = np.arange(89) % 3 == 0


def names_of(page: str) -> dict[str, Any]:
    """Return what the page takes for granted: 89 wines, 30 of them with verified labels."""
    if page != "own_loop.md":
        new = {"new_frame": FRAME, "new_X": FRAME}
        return {"frame": FRAME, "labels": KINDS, "trusted": MASK, "X": FRAME, "y": KINDS, "mask": MASK, **new}
    x, y, model = torch.tensor(FRAME.to_numpy(np.float32)), torch.tensor(KINDS.to_numpy()), nn.Linear(13, 3)
    trusted = {"trusted_x": x[MASK], "trusted_y": y[MASK]}
    return {"model": model, "optimizer": SGD(model.parameters(), 0.1), "x": x[~MASK], "y": y[~MASK], **trusted}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with mine.csv, the run that was trained on it, and its predictions for cleanlab."""
    folder = tmp_path_factory.mktemp("snippets")
    FRAME.assign(label=KINDS, trusted=MASK).to_csv(folder / "mine.csv", index=False)
    karat.train(folder / "mine.csv", folder / "RUN", method="supervised", training={"steps": 20}, report=False)
    assert main(["audit", str(folder / "RUN"), "--pred-probs", str(folder / "pred_probs.npy")]) == 0
    return folder


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")  # cleanlab's own calls of pandas
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page, folder, tmp_path, monkeypatch):
    if page == "audit.md":
        pytest.importorskip("cleanlab", reason="the page needs `pip install karat[cleanlab]`")
    shutil.copytree(folder, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    if page != "README.md":  # which trains this run itself
        shutil.copytree("RUN", "runs/mine")
    names = names_of(page)
    monkeypatch.setattr("karat.estimator.classifier.default_epochs", lambda batches: 3)
    with sklearn.config_context():
        for snippet in WITH_PYTHON[page]:
            exec(compile(snippet, page, "exec"), names)
    assert CHECKS[page](names)


CHECKS = {  # what shows that a page did its work
    "README.md": lambda names: names["probabilities"].shape == (89, 3) and len(names["classifier"].label_issues_) == 59,
    "audit.md": lambda names: len(names["beside"]) == 59 and names["issues"]["cleanlab_says"].dtype == bool,
    "estimator.md": lambda names: set(names["search"].best_params_) == {"epochs"},
    "own_data.md": lambda names: len(names["task"].trusted) == 30,
    "own_loop.md": lambda names: bool(names["loss"].isfinite()),
    "predict.md": lambda names: isinstance(names["model"].predict(FRAME)[0], str),
}


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_pages_import_from_the_package_itself(page):
    for node in ast.walk(ast.parse("\n".join(WITH_PYTHON[page]))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("karat.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.module.startswith("karat.")
            assert node.module != "karat" or {alias.name for alias in node.names} <= set(karat.__all__)
