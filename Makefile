# Two commands for a newcomer: `make run` and `make test`. Both set up .venv by themselves.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run-ready
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --disable-pip-version-check -c constraints.txt

.PHONY: help run demo paper test lint types layers tests bench bench-peers bench-service figures slow \
        clean constraints

help:
	@echo "make run      a quick run of the experiments, and a report of them (two minutes or so)"
	@echo "make test     lint, types, order of layers, examples and tests"
	@echo "make bench    speed, memory and start-up, and other libraries side by side (a quiet machine,"
	@echo "              please; needs the network for the other libraries' packages)"
	@echo "make bench-peers  only the other libraries side by side"
	@echo "make bench-service  only the service under load"
	@echo "make demo     the service, with readers whose interests change for a minute"
	@echo "make paper    the paper's experiments in full (DATA=folder with your own data sets)"
	@echo "make slow     checks that take minutes: replay against truth, a hundred kills, long fuzzing"
	@echo "make figures  the pictures of the README"
	@echo "make clean    remove what these made"

run: $(RUN)
	@$(BIN)/whim paper all --quick --out out/quick

paper: $(RUN)
	@$(BIN)/whim paper all --out out/paper $(if $(DATA),--data $(DATA))

test: lint types layers tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports --no-cache

tests: $(READY)
	$(BIN)/python -m tests.warm
	$(BIN)/pytest -n 2 --dist worksteal --doctest-modules src/whim tests

# all run, and each can fail it: a missed bar of one must not hide the others
bench: $(READY)
	@failed=0; $(BIN)/python -m benchmarks || failed=1; \
	  $(BIN)/python -m benchmarks.peers || failed=1; \
	  $(BIN)/python -m benchmarks.service || failed=1; exit $$failed

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers

bench-service: $(READY)
	$(BIN)/python -m benchmarks.service

demo: $(READY)
	@$(BIN)/whim demo

slow: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 tests/test_disjoint.py tests/test_hybrid.py
	$(BIN)/python -m tests.slow.replay_agrees
	$(BIN)/python -m tests.slow.kills
	$(BIN)/python -m tests.slow.fuzz

figures: $(READY)
	$(BIN)/python examples/regret_figure.py docs/images/regret.svg
	$(BIN)/python examples/revisit_figure.py docs/images/revisit.svg

# what the experiments need; bytecode is made when something is first imported, not for all files
$(RUN): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "whim needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -q hatchling editables
	$(PIP) --no-compile --no-build-isolation -e '.[paper]'
	@touch $@

# all of it: the service, the tools, the tests
$(READY): $(RUN)
	$(PIP) -q --no-build-isolation -e '.[dev]'
	@touch $@

# after a change of dependencies: newest versions into constraints.txt
constraints:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check hatchling editables
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'
	{ echo "# Exact versions that 'make' installs; 'make constraints' renews them."; \
	  $(BIN)/pip freeze --exclude-editable; } > constraints.txt

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
