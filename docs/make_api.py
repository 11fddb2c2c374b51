"""Write docs/api.md from the docstrings of what `karat` exports: python docs/make_api.py"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import karat

HEAD = """# What `karat` exports

Written by `python docs/make_api.py` from the docstrings: change those, not this file. Everything here is imported from
`karat` itself, as in `from karat import train`. Modules such as `karat.training`, and what is in them and not here, are
private by convention: they may change with any version.
"""


def page() -> str:
    """Return the text of docs/api.md."""
    names = [name for name in karat.__all__ if not name.startswith("_")]
    return "\n\n".join([HEAD.strip(), *(part for name in names for part in _described(name))]) + "\n"


def _described(name: str) -> Iterator[str]:
    value: Any = getattr(karat, name)
    (node,) = ast.parse(dedent(inspect.getsource(value))).body
    yield f"## {name}"
    if isinstance(node, ast.FunctionDef):
        yield _code(_call(node, name))
        yield _markdown(_docstring(node))
        return
    assert isinstance(node, ast.ClassDef)
    methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
    fields = [child for child in node.body if isinstance(child, ast.AnnAssign)]
    if "__init__" in methods:
        yield _code(_call(methods["__init__"], name, without_self=True))
    elif fields:
        yield _code("\n".join(ast.unparse(field) for field in fields))
    yield _markdown(_docstring(node))
    if described := "\n".join(_field_docstrings(node)):
        yield described
    for method in methods.values():
        if not method.name.startswith("_"):
            yield f"### {name}.{method.name}"
            yield _code(_call(method, method.name, without_self=True))
            yield _markdown(_docstring(method))


def _call(node: ast.FunctionDef, name: str, without_self: bool = False) -> str:
    """Return the call as the source has it: how Python prints a type or a default changes from version to version."""
    arguments = re.split(r", (?![^\[(]*[\])])", ast.unparse(node.args))  # not at commas inside brackets
    arguments = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", argument) for argument in arguments[without_self:]]
    result = "" if node.name == "__init__" or node.returns is None else f" -> {ast.unparse(node.returns)}"
    line = f"{name}({', '.join(arguments)}){result}"
    return line if len(line) <= 110 else "\n".join([f"{name}(", *(f"    {one}," for one in arguments), f"){result}"])


def _code(text: str) -> str:
    text = text.replace("'", '"')  # as the formatter has it, which reads this page, too
    return f"```python\n{text}\n```"


def _docstring(node: ast.FunctionDef | ast.ClassDef) -> str:
    text = ast.get_docstring(node)
    assert text is not None, f"{node.name} has no docstring"
    return text


def _field_docstrings(node: ast.ClassDef) -> Iterator[str]:
    """Say what the strings behind the fields of a class say."""
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield f"- `{ast.unparse(field.target)}`: {after.value.value}"


def _markdown(docstring: str) -> str:
    """Return a docstring with its examples in fences, and its attributes and parameters as a list."""
    text = re.sub(r"(?m)^>>> (?:.+\n?)+", lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", docstring)
    return re.sub(r"(?m)^(Attributes|Parameters):\n((?: {4}.*\n?)+)", _as_list, text).rstrip()


def _as_list(section: re.Match[str]) -> str:
    items = re.sub(r"\n +", "\n  ", re.sub(r"(?m)^ {4}(\w+): ", r"- `\1`: ", section[2]))
    return f"{section[1]}:\n\n{items}"


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(page(), encoding="utf-8")
