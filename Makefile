# Two commands do everything on a fresh machine with Python 3.11+, g++ and make: `make demo` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Two test workers, one thread each: what two cores can do without getting in each other's way.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint format bench gpu-check clean install

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("metaopt-toolkit needs Python 3.11 or later, this is " + sys.version.split()[0] + "; choose another with: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/metaopt demo

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Those that need nothing but this checkout; the others name what they need (the benchmark hub, published weights).
bench: $(STAMP)
	$(BIN)/python benchmarks/step_time.py
	$(BIN)/python benchmarks/recordings.py

# On a machine with a CUDA device: needs only torch there, see benchmarks/gpu_check.py.
gpu-check:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu_check.py

clean:
	rm -rf $(VENV) build dist runs outputs multirun .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
