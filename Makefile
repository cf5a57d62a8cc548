# One menu for people and for CI. Needs python3 (3.11 or newer, with venv), make and git; everything else is
# installed into .venv, pinned and hashed (requirements/). A second run of any target installs nothing.
#
#   make demo    the whole story on this machine: agree in your browser, watch the agent go on
#   make test    every test in one run, long tables and laws in their short form (the long form: make proof)
#   make check   formatting, lint, types, words   make fix     mend what a machine can mend
#   make bench   measure, with peers              make cases   rewrite tests/CASES.md
#   make performance   write docs/performance.md from the newest full run of make bench
#   make soak    six minutes of mixed load on two workers: does anything grow? (ARGS="--minutes 1")
#   make kills   kill brokers at random, 300 times (ARGS="--kills 300 --seed 1")
#   make storm   640 tasks want one expired grant, 1,000 kills amid renewals, 20,000 cancels
#                (ARGS="--only rush", "--kills 100", "--only cancels --seed 2")
#   make proof   long tables and laws, kills, storm, interleavings and soak, one after another, and one page of figures
#                (ARGS="--scale 0.1 --minutes 30")
#   make prose   lower the count of hard words that are left (ARGS=docs lists them)
#   make rooms   draw the rooms anew in docs/README.md
#   make providers   rewrite docs/providers.md from the presets
#   make dist    build the packages twice, install and try each, list what is in them   make audit   known vulnerabilities
#   make release check that tree, version, changelog and tag agree, then dist and audit; publishes nothing
#   make kept-store   keep a store of this version for the upgrade tests of later ones
#   make pins    resolve requirements/ anew       make clean   forget .venv and caches

SHELL := /bin/bash
PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.runtime
DEV := $(VENV)/.dev
TOOLS := $(VENV)/.release
PEERS := .venv-peers
NODE := tests/e2e/node/node_modules/.package-lock.json
TYPESCRIPT := clients/typescript/node_modules/.package-lock.json
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
PYTEST := $(BIN)/python -m pytest
SHARED := -n $(WORKERS) --dist worksteal --durations=10

# Tests start hundreds of Pythons and several that rewrite every assert: none of them compiles what another one has
# compiled, also where the environment asks for no byte code.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-fast test-slow test-e2e node check fix bench peers performance soak kills storm cases prose rooms providers pins
.PHONY: dist audit kept-store release clean
.DEFAULT_GOAL := help

help:
	@sed -n '4,/^$$/s/^#//p' Makefile

demo: $(RUN)
	@$(BIN)/oauthbroker demo $(ARGS)

# In one run: tests are collected once, and what waits for a process or a browser waits beside what computes. One worker
# more than there are cores, because of these.
test: $(DEV) node
	$(PYTEST) $(SHARED) -n $$(($(WORKERS) + 1)) $(ARGS)

test-fast: $(DEV)
	$(PYTEST) $(SHARED) -m "not slow and not e2e" $(ARGS)

# One more than there are cores: most of these wait for a process, or for a deadline that is to pass.
test-slow: $(DEV)
	$(PYTEST) $(SHARED) -n $$(($(WORKERS) + 1)) -m "slow and not e2e" $(ARGS)

test-e2e: $(DEV) node
	$(PYTEST) $(SHARED) -m e2e tests/e2e $(ARGS)

# Node packages for tests/e2e and the TypeScript client, where npm exists. Without them those tests skip loudly, or fail
# when E2E=required.
node: $(if $(shell command -v npm),$(if $(wildcard tests/e2e/node/package-lock.json),$(NODE)) $(TYPESCRIPT))

$(NODE): tests/e2e/node/package.json tests/e2e/node/package-lock.json
	cd tests/e2e/node && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(TYPESCRIPT): clients/typescript/package.json clients/typescript/package-lock.json
	cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.kit.prose

fix: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers' pins differ from ours, so they live in an environment of their own. Without a network their rows say so.
peers: $(DEV)
	@$(MAKE) --no-print-directory $(PEERS)/.installed \
		|| echo "WITHOUT PEERS: their packages could not be installed, and their rows will say so" >&2

$(PEERS)/.installed: requirements/peers.txt
	@./requirements/venv "$(PYTHON)" $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check --no-input -qq install --require-hashes -r requirements/peers.txt
	@touch $@

bench: $(DEV) peers
	$(BIN)/python -m bench.run $(ARGS)

performance: $(DEV)
	$(BIN)/python -m bench.page $(ARGS)

soak: $(DEV)
	$(BIN)/python -m bench.soak $(ARGS)

kills: $(DEV)
	$(BIN)/python -m tests.faults.kills $(ARGS)

storm: $(DEV)
	$(BIN)/python -m tests.faults.storm $(ARGS)

proof: $(DEV)
	$(BIN)/python -m tests.faults.proof $(ARGS)

cases: $(DEV)
	$(BIN)/python -m tests.test_cases

prose: $(DEV)
	$(BIN)/python -m tests.kit.prose $(or $(ARGS),--lower)

rooms: $(DEV)
	$(BIN)/python -m tests.kit.rooms

providers: $(DEV)
	$(BIN)/python -m tests.unit.providers.test_page

dist: $(DEV) $(TOOLS) node
	$(BIN)/python -m release.dist

audit: $(DEV) $(TOOLS)
	$(BIN)/python -m release.audit

kept-store: $(DEV)
	$(BIN)/python -m tests.kit.kept_stores

release: $(DEV) $(TOOLS) node
	$(BIN)/python -m release.release

# Pins are resolved on the oldest Python we support, so that its extra needs are in; every wheel's hash is kept.
pins: $(VENV)/bin/python
	$(PIP) install pip-tools
	./requirements/compile $(CURDIR)/$(BIN)/python $(ARGS)

clean:
	rm -rf $(VENV) $(PEERS) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	rm -rf tests/e2e/node/node_modules clients/typescript/{node_modules,build,dist}
	find oauthbroker tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@./requirements/venv "$(PYTHON)" $(VENV)

$(RUN): requirements/runtime.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Tools of a release have an environment of their own: a package of theirs in .venv would change what tests see.
$(TOOLS): requirements/release.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip --disable-pip-version-check --no-input -qq install --require-hashes -r requirements/release.txt
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
