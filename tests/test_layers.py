"""Dependencies point one way: this walks the imports of every module and holds the map of the code."""

import ast
from pathlib import Path

import karat

PACKAGE = Path(karat.__file__).parent
SMALL = {"errors", "files"}  # everybody may use these two
LABORATORY = {"algorithm", "noise_matrix", "methods", "data", "models", "audit"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "progress_bar": set(),
    "algorithm": SMALL,
    "noise_matrix": {"errors"},
    "models": SMALL,
    "data": SMALL | {"noise_matrix"},
    "audit": SMALL | {"noise_matrix"},
    "methods": SMALL | {"algorithm", "noise_matrix"},
    "settings": SMALL | {"algorithm", "audit", "data", "methods", "report"},
    "report": SMALL | {"audit", "data"},
    "inference": SMALL | {"algorithm", "data", "methods", "models", "progress_bar"},
    "training": SMALL | LABORATORY | {"inference", "progress_bar", "report", "settings"},
    "bench": SMALL | LABORATORY | {"inference", "progress_bar", "report", "settings", "training"},
    "own_loop": SMALL | {"algorithm"},
    "estimator": SMALL | LABORATORY | {"inference", "progress_bar", "settings", "training"},
    "demo": SMALL | {"data", "report", "settings", "training"},
    "commands": SMALL | {"audit", "bench", "data", "demo", "inference", "report", "settings", "training"},
    "cli": SMALL | {"commands", "settings"},
    "__main__": {"cli"},
    "worker": {"cli", "training"},
    # only when asked for
    "__init__": SMALL | {"algorithm", "data", "estimator", "inference", "own_loop", "settings", "training"},
}


def test_imports_point_one_way():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == "karat":
                names = [f"karat.{alias.name}" for alias in node.names if alias.name != "__version__"]
            for name in names:
                parts = name.split(".")
                if parts[0] == "karat" and len(parts) > 1 and parts[1] != room:
                    found.setdefault(room, set()).add(parts[1])
    assert found.keys() <= MAY_IMPORT.keys()
    for room, imports in found.items():
        assert imports <= MAY_IMPORT[room], f"{room} imports {imports - MAY_IMPORT[room]}"


def test_a_public_name_means_one_thing():
    places = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_algorithm_knows_torch_only():
    outside = set()
    for path in (PACKAGE / "algorithm").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                outside |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                outside.add(node.module.split(".")[0])
    standard = {"collections", "contextlib", "dataclasses", "functools", "inspect", "logging", "math", "re", "typing"}
    assert outside - standard - {"warnings", "weakref"} == {"torch", "karat"}
