# One menu for people and for CI. Needs python3 (3.11 or newer, with venv), make and git; everything else is
# installed into .venv, pinned and hashed (requirements/). A second run of any target installs nothing.
#
#   make demo    the whole story on this machine: agree in your browser, watch the agent go on
#                (ARGS=--agent: two agents behind a chat page; ARGS="--agent --auto" plays the user too)
#   make test    every test in one run, long tables and laws in their short form (the long form: make proof)
#   make test-postgres   every story on PostgreSQL (make test: a sample of them; ARGS="-k callback")
#   make check   formatting, lint, types, words, and the tests of the repository itself (tools/quality)
#   make fix     fix what a machine can fix
#   make bench   measure, with peers              make cases   rewrite tests/CASES*.md
#   make performance   write docs/performance.md from the newest full run of make bench
#   make conformance   the MCP project's scenarios of authorization, all of them, against our transport
#   make frameworks   an environment for each agent framework, in which its adapter is tested
#   make first-minutes   measure two commands from an empty environment to the first answer of an API, in four ways;
#                (ARGS=--pip: without uv; ARGS=--write: writes docs/performance-first-minutes.md)
#   make soak    six minutes of mixed load on two workers: does anything grow? (ARGS="--minutes 1")
#   make kills   kill brokers at random, 300 times (ARGS="--kills 300 --seed 1")
#   make storm   640 tasks want one expired grant, 1,000 kills amid refreshes, 20,000 cancels
#                (ARGS="--only rush", "--kills 100", "--only cancels --seed 2")
#   make hosts   four hosts and one PostgreSQL, ten minutes of kills, frozen and cut-off hosts and failovers; then outages of 5 to 300 s; needs root
#                (ARGS="--seconds 60 --seed 2"; "--beside ../earlier": half of the hosts run that checkout)
#   make proof   long tables and laws, kills, storm, interleavings and soak, one after another, and one page of figures
#                (ARGS="--scale 0.1 --minutes 30")
#   make docs    the documentation as a site, in build/site; make docs-serve shows it while you write;
#                make docs-look looks at its pages in Chromium: contrast, names and roles (axe), width, search
#   make prose   lower the count of hard words that are left (ARGS=docs lists them)
#   make tables   write the tables of errors and commands in docs/ from the product
#   make architecture   draw the folders anew in docs/README.md
#   make mutants     change one place of the core modules at a time: do the nearest tests fail? (ARGS=--planted, ARGS=--sample)
#   make providers   rewrite docs/providers.md and docs/credential-presets.md from the presets
#   make wheel   build the Python package into dist/
#   make dist    build the packages twice, install and try each, list what is in them   make audit   known vulnerabilities
#   make image   build the container image with docker or podman, and start it; make replay: its steps, without an engine
#   make release check that tree, version, changelog and tag agree, then dist and audit; publishes nothing
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
UV := $(VENV)/.uv
PEERS := .venv-peers
DOCS := .venv-docs
FRAMEWORKS := langgraph pydantic-ai openai-agents google-adk
NODE := tests/e2e/node/node_modules/.package-lock.json
PYRIGHT := tools/quality/node/node_modules/.package-lock.json
CONFORMANCE := tests/e2e/conformance/node_modules/.package-lock.json
SITE := tools/site/node_modules/.package-lock.json
TYPESCRIPT := clients/typescript/node_modules/.package-lock.json
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
PYTEST := $(BIN)/python -m pytest
SHARED := -n $(WORKERS) --dist worksteal --durations=10

# The stories that `make test` runs on PostgreSQL, beside the store in memory. One minute of CPU at most.
POSTGRES_STORIES := $(addprefix tests/story/,test_main_story.py test_resume.py test_erasure.py test_revocation.py test_tool_calls.py \
	test_refresh_concurrency.py api/test_events.py api/test_event_streams.py api/test_withdrawn_callers.py api/test_clients.py \
	api/test_operator_reads.py test_credential_forms.py::test_each_form_reaches_the_api_by_each_way)
STORIES_ON_POSTGRES = $(PYTEST) -q -n $(WORKERS) --dist worksteal --store postgres -m "not slow and not e2e" $(POSTGRES_STORIES)

# Tests start hundreds of Pythons and several that rewrite every assert: none of them compiles what another one has
# compiled, also where the environment asks for no byte code.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-again test-postgres test-fast test-slow test-e2e node conformance first-minutes docs docs-serve docs-look check fix bench peers frameworks performance soak kills storm hosts cases tables prose mutants folders providers wheel pins
.PHONY: $(FRAMEWORKS:%=.venv-%) dist audit image replay release clean
.DEFAULT_GOAL := help

help:
	@sed -n '4,/^$$/s/^#//p' Makefile

# `--agent` runs the example of a whole agent. It uses the extra `tools`, so it needs the environment of the tests.
demo: $(if $(filter --agent,$(ARGS)),$(DEV),$(RUN))
	@$(if $(filter --agent,$(ARGS)),$(BIN)/python examples/team-assistant/assistant.py $(filter-out --agent,$(ARGS)),$(BIN)/oauthbroker demo $(ARGS))

# In one run: tests are collected once, and what waits for a process or a browser waits beside what computes. Four workers
# more than there are cores, because of these: most of a run's time is waiting. A part of them that `ARGS` chooses takes Node's packages and the peers as
# they are: its tests that lack something say what makes it.
CHOSEN := $(filter -k% -m% --case% --rule% --lf tests/%,$(ARGS))
test: $(DEV) $(if $(CHOSEN),,node peers)
	@$(BIN)/python -m tests.kit.compiled
	$(PYTEST) $(SHARED) -n $$(($(WORKERS) + 4)) $(ARGS)
	$(if $(ARGS),,$(STORIES_ON_POSTGRES))

# After a `make test` that failed: the same tests alone. One that passes now failed by load or by a race; its name is
# printed, and it is a fault to mend. More than three are no chance.
test-again: $(DEV)
	@$(BIN)/python -m tests.kit.failed_tests --most 3
	$(PYTEST) --lf --lfnf=none -n 0
	$(STORIES_ON_POSTGRES)

test-postgres: $(DEV)
	$(PYTEST) $(SHARED) --store postgres -m "not e2e" tests/story $(ARGS)

test-fast: $(DEV)
	$(PYTEST) $(SHARED) -m "not slow and not e2e" $(ARGS)

# One more than there are cores: most of these wait for a process, or for a deadline that is to pass.
test-slow: $(DEV)
	$(PYTEST) $(SHARED) -n $$(($(WORKERS) + 1)) -m "slow and not e2e" $(ARGS)

test-e2e: $(DEV) node
	$(PYTEST) $(SHARED) -m e2e tests/e2e $(ARGS)

# Node packages for tests/e2e and the TypeScript client, where npm exists. Without them those tests skip loudly, or fail
# when E2E=required.
node: $(if $(shell command -v npm),$(if $(wildcard tests/e2e/node/package-lock.json),$(NODE) $(CONFORMANCE)) $(TYPESCRIPT))

$(NODE): tests/e2e/node/package.json tests/e2e/node/package-lock.json
	cd tests/e2e/node && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(CONFORMANCE): tests/e2e/conformance/package.json tests/e2e/conformance/package-lock.json
	cd tests/e2e/conformance && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	@touch $@

$(TYPESCRIPT): clients/typescript/package.json clients/typescript/package-lock.json
	cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(PYRIGHT): tools/quality/node/package.json tools/quality/node/package-lock.json
	cd tools/quality/node && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null
	@touch $@

conformance: $(DEV) node
	$(PYTEST) $(SHARED) --long tests/e2e/test_mcp_conformance.py $(ARGS)

first-minutes: $(DEV)
	@$(BIN)/python -m tests.e2e.first_minutes $(ARGS)

check: $(DEV) $(if $(shell command -v npm),$(PYRIGHT))
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/python -m tools.quality.page_types
	$(BIN)/python -m tools.quality.prose
	$(PYTEST) -q -n $(WORKERS) --dist worksteal --tb=short --no-header tools/quality

fix: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers' pins differ from ours, so they live in an environment of their own. Without a network their rows say so.
peers: $(DEV)
	@$(MAKE) --no-print-directory $(PEERS)/.installed \
		|| echo "WITHOUT PEERS: their packages could not be installed; rows of figures and skipped tests say so" >&2

$(PEERS)/.installed: requirements/peers.txt
	@./requirements/venv "$(PYTHON)" $(PEERS) --without-pip
	./requirements/install $(PEERS) --require-hashes -r $<
	@touch $@

# Each framework pins other versions, so each has an environment of its own. Without one its tests skip loudly, or fail
# when E2E=required.
frameworks: $(FRAMEWORKS:%=.venv-%)

$(FRAMEWORKS:%=.venv-%): .venv-%: $(VENV)/bin/python
	@$(MAKE) --no-print-directory $@/.installed \
		|| echo "WITHOUT $*: its packages could not be installed, and its tests will say so" >&2

.venv-%/.installed: requirements/%.txt pyproject.toml
	@./requirements/venv "$(PYTHON)" .venv-$* --without-pip
	./requirements/install .venv-$* --require-hashes -r $<
	./requirements/install .venv-$* --no-build-isolation --editable .
	@touch $@

# The site of the documentation, below build/site. The product makes its reference; what renders it has an environment of
# its own.
docs docs-serve: $(RUN) $(DOCS)/.installed $(SITE)
	@$(BIN)/python -m tools.site.reference build/reference
	@$(DOCS)/bin/codespell --ignore-words tools/site/our_words.txt *.md docs store/README.md clients/*/README.md build/reference
	@PYTHONPATH=. $(DOCS)/bin/python -m tools.site.build $(@:docs%=%)

docs-look: docs $(DEV) node
	$(BIN)/python -m tools.site.look

$(DOCS)/.installed: requirements/docs.txt | $(VENV)/bin/python
	@./requirements/venv "$(PYTHON)" $(DOCS) --without-pip
	./requirements/install $(DOCS) --require-hashes -r $<
	@touch $@

$(SITE): tools/site/package.json tools/site/package-lock.json
	cd tools/site && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
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

hosts: $(DEV)
	$(BIN)/python -m tests.faults.hosts $(ARGS)
	$(BIN)/python -m tests.faults.outages

proof: $(DEV)
	$(BIN)/python -m tests.faults.proof $(ARGS)

cases: $(DEV)
	$(BIN)/python -m tools.quality.cases
	$(BIN)/python -m tests.story.test_refresh_docs

prose: $(DEV)
	$(BIN)/python -m tools.quality.prose $(or $(ARGS),--lower)

mutants: $(DEV)
	$(BIN)/python -m tests.kit.mutants $(ARGS)

tables: $(DEV)
	$(BIN)/python -m tools.quality.written_tables

architecture: $(DEV)
	$(BIN)/python -m tools.quality.architecture

providers: $(DEV)
	$(BIN)/python -m tests.unit.providers.test_page
	$(BIN)/python -m tests.unit.providers.test_credentials_page

wheel: $(RUN)
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

dist: $(DEV) $(TOOLS) node
	$(BIN)/python -m release.dist

audit: $(DEV) $(TOOLS)
	$(BIN)/python -m release.audit

image: $(RUN)
	@$(BIN)/python -m release.image

replay: $(DEV)
	$(PYTEST) -q --long tests/test_dockerfile.py

release: $(DEV) $(TOOLS) node
	$(BIN)/python -m release.release

# Pins are resolved on the oldest Python we support, so that its extra needs are in; every wheel's hash is kept.
pins: $(VENV)/bin/python
	$(PIP) install pip-tools
	./requirements/compile $(CURDIR)/$(BIN)/python $(ARGS)

clean:
	rm -rf $(VENV) $(PEERS) $(DOCS) $(FRAMEWORKS:%=.venv-%) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	rm -rf {tests/e2e/node,tests/e2e/conformance,tools/quality/node,tools/site}/node_modules clients/typescript/{node_modules,build,dist}
	find oauthbroker tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@./requirements/venv "$(PYTHON)" $(VENV)

# What installs all that follows. In a folder of its own: `.venv` has what users have. Without it pip does its work.
$(UV): requirements/uv.txt | $(VENV)/bin/python
	@$(PIP) install --no-deps --require-hashes --target $(VENV)/uv -r $< || echo "WITHOUT UV: pip installs, which takes minutes" >&2
	@touch $@

# The pins are complete. `--no-deps`: with dependencies, pip refuses `name[extra]>=1` as soon as a newer release appears.
$(RUN): requirements/runtime.txt requirements/build.txt pyproject.toml | $(UV)
	./requirements/install $(VENV) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	./requirements/install $(VENV) --no-build-isolation --editable .
	@touch $@

# Tools of a release have an environment of their own: a package of theirs in .venv would change what tests see.
$(TOOLS): requirements/release.txt | $(VENV)/bin/python
	$(BIN)/python -m venv --without-pip $(VENV)/release
	./requirements/install $(VENV)/release --require-hashes -r $<
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	./requirements/install $(VENV) --require-hashes -r $<
	@touch $@
