# Every target sets itself up: `make train` and `make test` work on an empty machine with Python >= 3.11.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
RUN ?= runs/first-$(shell date +%Y%m%d-%H%M%S)
REAL ?= runs/real-$(shell date +%Y%m%d-%H%M%S)
MODELS ?= S
ALGORITHM ?= madpo-iter

.PHONY: setup train train-real test check bench clean

setup: $(VENV)/.ready

# torch first and pinned: a bare `torch` may pull gigabytes of CUDA libraries.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

train: setup
	$(BIN)/comlrl train madpo-iter --config benchmarks/learning/first.yaml output_dir=$(RUN)

train-real: $(VENV)/.real
	$(BIN)/python -m benchmarks.learning.real algorithm=$(ALGORITHM) output_dir=$(REAL)

$(VENV)/.real: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable ".[real]"
	touch $@

# Two processes of one thread each: threads of several processes that wait for each other by spinning cost minutes.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m pytest tests/test_house.py tests/comlrl_env/test_pages.py

bench: setup
	$(BIN)/python -m benchmarks.speed --models $(MODELS)

clean:
	rm -rf $(VENV) build *.egg-info
