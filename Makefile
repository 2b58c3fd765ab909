# Two commands for a newcomer: `make run` and `make test`. Both set up .venv by themselves.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run-ready
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --disable-pip-version-check -c constraints.txt

.PHONY: help run demo paper test checked lint types layers tests warm pytest bench bench-peers bench-service figures slow \
        clients picture docs linkcheck dist wheel image accessible clean constraints

help:
	@echo "make run      a quick run of the paper's experiments, and a report of it (about two minutes)"
	@echo "make test     lint, types, the order of layers, examples and tests"
	@echo "make lint, make types, make layers, make tests   the parts of make test"
	@echo "make demo     the service, and a minute of simulated readers whose interests change"
	@echo "make paper    the paper's experiments in full (DATA=folder with your own data sets)"
	@echo "make bench    speed, memory and start-up, other libraries and the service under load (on a"
	@echo "              quiet machine; installs the other libraries over the network)"
	@echo "make bench-peers    only the other libraries"
	@echo "make bench-service  only the service under load"
	@echo "make slow     tests that take minutes: replay against ground truth, a hundred kills, replicas"
	@echo "              under every failure, fuzzing, attacks"
	@echo "make clients  Personalizer's published JavaScript clients against the service (needs npm)"
	@echo "make figures  the figures of docs/evidence.md, docs/math.md and docs/lists.md"
	@echo "make picture  the README's picture of the dashboard (needs chromium)"
	@echo "make docs     the documentation as a site, in out/site; make linkcheck asks its outside links, too"
	@echo "make dist     a wheel and an sdist in dist, checked"
	@echo "make wheel    the wheel alone in an empty environment: the README, whim demo, every how-to page"
	@echo "make image    the Dockerfile's steps in a clean root file system (as root, on Debian)"
	@echo "make accessible     axe-core over the dashboard, the site and a report (needs npm and chromium)"
	@echo "make constraints    the newest versions of all packages into constraints.txt"
	@echo "make clean    remove the environment and all caches"

run: $(RUN)
	@$(BIN)/whim paper all --quick --out out/quick

paper: $(RUN)
	$(PIP) -q --no-compile --no-build-isolation -e '.[paper]'
	@$(BIN)/whim paper all --yes --out out/paper $(if $(DATA),--data $(DATA))

# checks and the compiler beside each other, then the tests on both cores
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 --output-sync=target checked warm
	@$(MAKE) --no-print-directory pytest

checked: lint types layers

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports --no-cache

tests: warm pytest

warm: $(READY)
	$(BIN)/python -m tests.warm

pytest: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --doctest-modules src/whim tests

# all of them run, and each can fail the target: one missed bar must not hide the others
bench: $(READY)
	@failed=0; $(BIN)/python -m benchmarks || failed=1; \
	  $(BIN)/python -m benchmarks.peers || failed=1; \
	  $(BIN)/python -m benchmarks.list_estimates || failed=1; \
	  $(BIN)/python -m benchmarks.lists || failed=1; \
	  $(BIN)/python -m benchmarks.service || failed=1; exit $$failed

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.list_estimates

bench-service: $(READY)
	$(BIN)/python -m benchmarks.service

demo: $(READY)
	@$(BIN)/whim demo

slow: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 tests/test_disjoint.py tests/test_hybrid.py
	$(BIN)/python -m tests.slow.replay_agrees
	$(BIN)/python -m tests.slow.served_estimates
	$(BIN)/python -m tests.slow.list_estimates
	$(BIN)/python -m tests.slow.list_loops
	$(BIN)/python -m tests.slow.list_probabilities
	$(BIN)/python -m tests.slow.kills
	$(BIN)/python -m tests.slow.torture
	$(BIN)/python -m tests.slow.replicas_answers
	$(BIN)/python -m tests.slow.claims
	$(BIN)/python -m tests.slow.adaptive_events
	$(BIN)/python -m tests.slow.sentences
	$(BIN)/python -m tests.slow.fuzz
	$(BIN)/python -m tests.slow.attacks
	if command -v npm > /dev/null; then $(MAKE) --no-print-directory clients; fi

CLIENTS := @azure-rest/ai-personalizer@1.0.0-beta.1 @azure/cognitiveservices-personalizer@2.0.1 \
           @azure/ms-rest-js@2.7.0

clients: $(READY)
	npm install --silent --no-audit --no-fund --prefix out/clients $(CLIENTS)
	NODE_PATH=$(CURDIR)/out/clients/node_modules $(BIN)/pytest -q -rs tests/test_personalizer.py -k javascript

figures: $(READY)
	$(BIN)/python examples/regret_figure.py docs/images/regret.svg
	$(BIN)/python examples/revisit_figure.py docs/images/revisit.svg
	$(BIN)/python examples/lists.py docs/images/lists.svg

picture: $(READY)
	$(BIN)/python examples/page_picture.py docs/images/page.png

# -n: a link that leads nowhere inside the site is a warning, and warnings are errors
docs: $(VENV)/.docs-ready
	$(BIN)/sphinx-build -q -n -W --keep-going -b html docs out/site
	@echo "out/site/index.html"

linkcheck: $(VENV)/.docs-ready
	$(BIN)/sphinx-build -q -b linkcheck docs out/linkcheck

dist: $(VENV)/.dist-ready
	rm -rf dist
	$(BIN)/python -m build --no-isolation -o dist
	$(BIN)/twine check --strict dist/*

wheel: dist
	$(BIN)/python tests/slow/wheel_alone.py --wheel dist/*.whl $(if $(PYTHONS),--python $(PYTHONS))

image:
	$(PYTHON) tests/slow/image.py out/image

accessible: docs
	$(BIN)/python -m tests.slow.accessibility --site out/site

# what the quick experiments need; bytecode is compiled on first import, not for all files
$(RUN): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "whim needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -q hatchling hatch-fancy-pypi-readme editables
	$(PIP) --no-compile --no-build-isolation -e '.[features,report,runs]'
	@touch $@

# everything: the service, the tools, the tests
$(READY): $(RUN)
	$(PIP) -q --no-compile --no-build-isolation -e '.[dev]'
	@touch $@

# what only the documentation and releases need, so that nobody else waits for it
$(VENV)/.docs-ready: $(READY)
	$(PIP) -q --no-compile --no-build-isolation -e '.[docs]'
	@touch $@

$(VENV)/.dist-ready: $(RUN)
	$(PIP) -q --no-compile --no-build-isolation -e '.[dist]'
	@touch $@

# after a change of dependencies: the newest versions into constraints.txt
constraints:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check hatchling hatch-fancy-pypi-readme editables
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev,dist,docs]'
	{ echo "# Exact versions that 'make' installs; 'make constraints' renews them."; \
	  $(BIN)/pip freeze --exclude-editable; } > constraints.txt

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
