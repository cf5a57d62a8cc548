# One menu for people and for CI. Needs python3 (3.11 or newer, with venv), make and git; everything else is
# installed into .venv, pinned and hashed (requirements/). A second run of any target installs nothing.
#
#   make demo    the whole story on this machine: agree in your browser, watch the agent go on
#   make test    fast tests, slow tests, then servers and browsers that we did not write
#   make check   formatting, lint, types          make fix     mend what a machine can mend
#   make bench   measure                          make cases   rewrite tests/CASES.md
#   make kills   kill brokers at random, 300 times (ARGS="--kills 300 --seed 1")
#   make storm   640 tasks want one expired grant, 1,000 kills amid renewals (ARGS="--only rush", "--kills 100")
#   make providers   rewrite docs/providers.md from the presets
#   make pins    resolve requirements/ anew       make clean   forget .venv and caches

SHELL := /bin/bash
PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.runtime
DEV := $(VENV)/.dev
NODE := tests/e2e/node/node_modules/.package-lock.json
TYPESCRIPT := clients/typescript/node_modules/.package-lock.json
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
PYTEST := $(BIN)/python -m pytest
SHARED := -n $(WORKERS) --dist worksteal

# Tests start hundreds of Pythons and several that rewrite every assert: none of them compiles what another one has
# compiled, also where the environment asks for no byte code.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-fast test-slow test-e2e node check fix bench kills storm cases providers pins clean
.DEFAULT_GOAL := help

help:
	@sed -n '4,11s/^#//p' Makefile

demo: $(RUN)
	@$(BIN)/oauthbroker demo $(ARGS)

# In this order: browsers come last, and say at the very end what they lacked.
test:
	@$(MAKE) --no-print-directory test-fast
	@$(MAKE) --no-print-directory test-slow
	@$(MAKE) --no-print-directory test-e2e

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

fix: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)
	$(BIN)/python bench/run.py $(ARGS)

kills: $(DEV)
	$(BIN)/python -m tests.faults.kills $(ARGS)

storm: $(DEV)
	$(BIN)/python -m tests.faults.storm $(ARGS)

cases: $(DEV)
	$(BIN)/python -m tests.test_cases

providers: $(DEV)
	$(BIN)/python -m tests.unit.providers.test_page

# Pins are resolved on the oldest Python we support, so that its extra needs are in; every wheel's hash is kept.
pins: $(VENV)/bin/python
	$(PIP) install pip-tools
	./requirements/compile $(CURDIR)/$(BIN)/python $(ARGS)

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	rm -rf tests/e2e/node/node_modules clients/typescript/{node_modules,build,dist}
	find oauthbroker tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@./requirements/venv "$(PYTHON)" $(VENV)

$(RUN): requirements/runtime.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
