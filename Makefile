# Two commands are enough: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Tests wait more than they work, but each worker costs 2 GB and, with its control plane, 40 s of processor time.
WORKERS ?= 5
# Those that have been tried; the harness builds the control plane of any of them.
VERSIONS ?= 1.34.4 1.35.4 1.36.3 1.37.2
# Each has a lock of its own, so that an image may go without it.
EXTRAS := notify zookeeper

# Tests start the adapter some sixty times: 1 s of processor time each, and 4 s where nothing compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo chaos performance test test-versions test-unit test-pythons test-e2e check docs format lock clean
.DEFAULT_GOAL := help

help:  ## Say what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# The virtual environment with what a lock names, and this package.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r $(1)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
endef

$(STAMP): requirements/dev.lock pyproject.toml
	$(call install,requirements/dev.lock)

# A part of the development environment that is there sooner; the whole one serves as well.
$(VENV)/.demo-installed: requirements/demo.lock pyproject.toml
	$(call install,requirements/demo.lock)

setup: $(STAMP)  ## The locked development environment in .venv

demo: $(or $(wildcard $(STAMP)),$(VENV)/.demo-installed)  ## A pull-out on a local control plane: what the HPA does and why (DEMO_ARGS="--keep")
	$(BIN)/python -m lab.demo $(DEMO_ARGS)

CHAOS := -m pytest -q -s tests/chaos
chaos: $(STAMP)  ## Faults in random order for half an hour on the real control plane: nothing may shrink or grow (CHAOS_ARGS="--seed 7 --minutes 60")
	$(BIN)/python $(CHAOS) $(CHAOS_ARGS)

performance: $(STAMP)  ## Run the benchmarks again and store their figures (PERFORMANCE="decide flood" for some)
	$(BIN)/python -m lab.benchmarks $(PERFORMANCE)

# Folders that take a command of their own.
APART := --ignore=tests/versions --ignore=tests/chaos
PYTEST = -m pytest --numprocesses=$(WORKERS) --dist=loadgroup --no-loadscope-reorder --durations=20 --durations-min=10 $(APART)

test: $(STAMP)  ## Every test, those on the real control plane and the real registries included
	$(BIN)/python -m lab.harness.build
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

# Only these files are collected.
MARKED = $(shell grep -rl --include='test_*.py' 'mark\.versions' tests)
test-versions: $(STAMP)  ## What depends on Kubernetes, on the control plane of each version (KUBERNETES=1.34.4 for one)
	for version in $(or $(KUBERNETES),$(VERSIONS)); do \
	    KUBERNETES=$$version $(BIN)/python -m pytest -m versions tests/versions $(MARKED) $(PYTEST_ARGS) || exit 1; \
	done

test-unit: WORKERS := 6
test-unit: export EFFECTIVE_LOAD_EXAMPLES ?= 40
test-unit: export EFFECTIVE_LOAD_DOCUMENTS ?= 500
test-unit: export EFFECTIVE_LOAD_LOOPS ?= 1
test-unit: $(STAMP)  ## The tests that need no server, with few random examples
	$(BIN)/python $(PYTEST) -m "not integration and not e2e" --ignore=tests/e2e --durations-min=2 $(PYTEST_ARGS)

PYTHONS ?= 3.11 3.12 3.13
test-pythons:  ## The tests that need no server, with each version of PYTHONS; those that are not installed are named
	@absent=; for version in $(PYTHONS); do \
	    python=$$(.ci/interpreter $$version) || { absent="$$absent $$version"; continue; }; \
	    $(MAKE) VENV=$(VENV)/pythons/$$version PYTHON=$$python test-unit || exit 1; \
	done; \
	test -z "$$absent" || echo "NOT TESTED: no interpreter of Python$$absent is installed"

test-e2e: $(STAMP)  ## The tests on the real control plane
	$(BIN)/python -m pytest -m "e2e" $(APART) $(PYTEST_ARGS)

check: $(STAMP)  ## Format, lint, types, import contract, manifests, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .
	$(BIN)/codespell
	$(BIN)/python -m tools.checks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: $(STAMP)  ## The documentation site, in site/; `.venv/bin/mkdocs serve` shows it while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)  ## Format the code and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Without addresses of registries, for every platform. What is in several locks has one version: the development lock's.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q
EXTRA_OF := import sys, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
lock:  ## Renew the locks (needs uv): hashes, no addresses
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements/dev.lock
	$(COMPILE) pyproject.toml -c requirements/dev.lock -o requirements/runtime.lock
	for extra in $(EXTRAS); do \
	    $(PYTHON) -c '$(EXTRA_OF); print(*extras[sys.argv[1]], sep="\n")' $$extra \
	    | $(COMPILE) - -c requirements/dev.lock -o requirements/$$extra.lock || exit 1; \
	done
	$(COMPILE) pyproject.toml --group demo -c requirements/dev.lock -o requirements/demo.lock
	$(COMPILE) --group release -o requirements/release.lock

clean:  ## Remove what was made here (the built control plane stays in its cache)
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
