# Two commands: `make reproduce` checks every claim on this machine, `make test` checks the code.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tests run side by side; BLAS threads of their own would only wait for each other.
test: export OPENBLAS_NUM_THREADS := 1

.PHONY: reproduce test format clean

reproduce: .venv/.runtime
	$(BIN)/finetti reproduce --out reproduction

test: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --doctest-modules src README.md docs --doctest-glob='*.md' -p no:cacheprovider -q
	$(BIN)/python -m pytest -n auto -q

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist reproduction

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Finetti needs Python 3.11 or newer. Say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch .venv/.runtime $@
