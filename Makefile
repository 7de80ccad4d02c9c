# `make run` and `make test` install what they need: .venv/ (Python packages) and tools/bin/ (programs built with Go).

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && exit; done; echo python3)
BIN := .venv/bin
SETUP = @$(PYTHON) tools/setup.py
# Most tests wait most of the time. A file stays with one worker, since its tests may share what is slow to start.
WORKERS = --numprocesses=4 --dist=loadfile --no-loadscope-reorder
# These wait less: each worker imports and collects everything once more.
QUICK_WORKERS = --numprocesses=3 --dist=loadfile --no-loadscope-reorder

# Without bytecode each worker and each operator that a test starts would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-quick test-robustness soak check format environment tools lock

help:
	@echo 'make run [ARGS=--once]   run a local control plane, the operator and the samples; Ctrl-C stops all of them'
	@echo 'make test [ARGS=...]     run the checks and the whole test suite; ARGS are passed to pytest (-n0: no workers)'
	@echo 'make test-quick [ARGS=...]  checks, unit and component tests: what to run before each commit'
	@echo 'make test-robustness [SEED=n]   run faults, kills and churn by seed, up to 25 minutes (docs/robustness.md)'
	@echo 'make soak [MINUTES=30] [SEED=n]  run churn and check that memory does not grow (docs/robustness.md)'
	@echo 'make check               run the checks: lint, format, types, imports'
	@echo 'make format              format the code'
	@echo 'make environment         install the Python packages into .venv/'
	@echo 'make tools               build the programs that are missing in tools/bin/'
	@echo 'make lock                upgrade the packages in requirements*.txt (needs uv)'

run:
	$(SETUP) needs environment programs
	@$(BIN)/addon-operator dev run $(ARGS)

test:
	$(SETUP) needs environment programs
	@$(MAKE) --no-print-directory check
	$(BIN)/pytest $(WORKERS) $(ARGS)

test-quick:
	$(SETUP) needs environment programs
	@$(MAKE) --no-print-directory check
	$(BIN)/pytest $(QUICK_WORKERS) tests/unit tests/component $(ARGS)

test-robustness:
	$(SETUP) needs environment programs
	$(BIN)/python -m tests.robustness $(if $(SEED),--seed=$(SEED)) $(ARGS)

soak:
	$(SETUP) needs environment programs
	$(BIN)/pytest --robustness -rA --no-header tests/robustness/test_soak.py --minutes=$(or $(MINUTES),30) \
		$(if $(SEED),--seed=$(SEED)) $(ARGS)

check:
	$(SETUP) environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy addon_operator tests benchmarks tools/setup.py
	$(BIN)/lint-imports --config .importlinter

format:
	$(SETUP) environment
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

environment:
	$(SETUP) environment

tools:
	$(SETUP) programs

LOCK = uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	--no-emit-index-url

lock:
	@command -v uv >/dev/null || { echo 'uv is missing: pip install uv, outside .venv'; exit 1; }
	$(LOCK) pyproject.toml requirements.in --extra dev -o requirements-dev.txt
	$(LOCK) pyproject.toml -c requirements-dev.txt -o requirements.txt
