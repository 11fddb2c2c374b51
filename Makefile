# make demo: install into .venv and show the main job.   make test: install and run the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types wheel check clean

demo: $(INSTALLED)
	$(BIN)/karat demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(INSTALLED)
	$(BIN)/mypy

# The wheel must import on its own, away from the sources.
wheel: $(INSTALLED)
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/*.whl
	cd build/wheel && PYTHONPATH=. $(abspath $(BIN))/python -c \
	  "import karat, karat.cli, karat.commands, karat.bench.paper, pathlib; karat.bench.paper.paper_lines(); \
	  assert pathlib.Path(karat.__file__).is_relative_to(pathlib.Path.cwd()); \
	  import karat.report.page as page; page.check_assets()"

check: test lint types wheel

clean:
	rm -rf $(VENV) build dist

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Karat needs Python 3.10 or newer: write make PYTHON=python3.11, for example."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
