# Two commands matter: `make run` (the demo) and `make test` (lint, types, import contracts, tests).
# WORKERS: many tests wait for processes that they start, so four workers keep two cores busy.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT   ?= 8080
WORKERS ?= 4
# A file stays with one worker, for the fixtures of its module; in the order of tests/conftest.py, the longest first.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# Where compiled code is not kept, each worker compiles the tests and hypothesis, and each process the program.
export PYTHONDONTWRITEBYTECODE :=
# WAY=sdk: every request of an MCP client goes through the SDK's server.
ifeq ($(WAY),sdk)
export WICKETGATE_MCP__DIRECT := false
export WAY
endif
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE   := wicketgate app routers middleware examples bench conformance clients site_tools fuzz supply tests hatch_build.py
# The tools that build the documentation, in an environment of their own.
SITE   := build/site-tools
SUPPLY := build/supply-tools
SHIPPED := build/shipped
# The same for fuzzing: that of the tests, and what is compiled for one version of Python.
FUZZ   := build/fuzz-tools

.DEFAULT_GOAL := help
.PHONY: agents sdk site sbom audit audit-if-possible bench-beside bench-validators bench-workers fuzz fuzz-door fuzz-validation chaos conformance clients test-login
.PHONY: help run test test-bench test-ways test-ways-short quick coverage explore lint types imports pytest format openapi picture pictures test-console bench-console bench-flow bench-faces bench-catalog bench-pause bench-start bench-execute bench-engine bench-scaling bench-results bench-filters soak documents lock lock-conformance image test-image release clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.run ## start the demo on 127.0.0.1:8080 (PORT=... for another; DEMO=traffic: with chats all the time)
	@exec $(BIN)/python -m examples.demo --port $(PORT) $(if $(filter traffic,$(DEMO)),--traffic)

# The judges of the code take half a minute of one core when nothing is cached; the tests leave as much, waiting.
test: lint ## lint, types, import contracts, tests
	@$(MAKE) --no-print-directory -j 3 types imports pytest

lint: $(VENV)/.dev ## ruff
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo 'run: make format'; exit 1; }

types: $(VENV)/.dev ## mypy --strict
	@$(BIN)/mypy $(CODE)

imports: $(VENV)/.dev ## the layers of the house
	@$(BIN)/lint-imports --no-logo

pytest: $(VENV)/.dev ## the tests alone; failures are repeated by themselves, to inform
	@$(BIN)/python -m tests.again $(PARALLEL) --ignore tests/bench

# A minute and a half of two cores, for programs that no user has.
test-bench: $(VENV)/.dev ## the tests of the benchmarks
	@$(BIN)/python -m tests.again $(PARALLEL) tests/bench

# Rooms whose tests start no process and open no port; under a minute on two cores.
QUICK := tests/catalog tests/schemas tests/results tests/access tests/context tests/engine tests/faces tests/fleet \
  tests/plugins tests/middleware tests/test_openapi.py tests/test_requirements.py tests/config/test_settings.py

quick: lint types imports $(VENV)/.dev ## lint, types, import contracts and the fast tests: under a minute
	@PROPERTIES=quick $(BIN)/python -m pytest $(PARALLEL) $(QUICK)

# Failures are judged by `make test`; here only the reach of the tests counts, since tracing makes each several times slower.
coverage: $(VENV)/.dev ## lines that the tests reach, child processes included; fails below 95 %
	@$(BIN)/python -m coverage erase
	@PROPERTIES=quick $(BIN)/python -m coverage run -m pytest $(PARALLEL) --ignore tests/bench || test $$? -eq 1
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --skip-covered --fail-under=95

# Files whose tests are clients of an MCP door, on the way that `make test` leaves out; `both_ways` takes both there.
test-ways: $(VENV)/.dev ## the tests of the MCP doors with every request through the SDK's server
	@WAY=sdk WICKETGATE_MCP__DIRECT=false $(BIN)/python -m pytest $(PARALLEL) \
	  `grep -lE 'mcp_client\(|WireClient\(|POST /mcp' tests/contract/*.py | xargs grep -L 'usefixtures("both_ways"'`

# What CI runs of them: 40 seconds of CPU time. The random requests differ in each run.
DOORS := $(addprefix tests/contract/test_mcp_,door.py namespaced.py offers.py registry.py under_way.py)
test-ways-short: $(VENV)/.dev ## random requests sent both ways, and the tests of the doors through the SDK's server: a minute
	@PROPERTIES=explore EXAMPLES=200 $(BIN)/python -m pytest $(PARALLEL) tests/contract/test_direct_way.py -k alike
	@WAY=sdk WICKETGATE_MCP__DIRECT=false $(BIN)/python -m pytest $(PARALLEL) $(DOORS)

EXPLORE_S ?= 600
explore: $(VENV)/.dev ## properties with new random examples, for ten minutes at most (EXPLORE_S=..., EXAMPLES=...)
	@PROPERTIES=explore timeout $(EXPLORE_S) $(BIN)/python -m pytest -n $(WORKERS) -m hypothesis -x \
	  || { code=$$?; test $$code -eq 124 && echo 'explore: no failure within $(EXPLORE_S) s'; }

format: $(VENV)/.dev ## rewrite the code in the house style
	@$(BIN)/ruff check --fix --quiet $(CODE); $(BIN)/ruff format --quiet $(CODE)

openapi: $(VENV)/.dev ## write openapi/ from the code
	@$(BIN)/python -m app openapi --write openapi
	@$(BIN)/python -m app schema > openapi/wicketgate.schema.json
	@$(BIN)/python -m examples.reference > openapi/library.md

picture: $(VENV)/.dev ## write docs/gate.svg, the picture of README, with the numbers of the demo
	@$(BIN)/python -m examples.picture

pictures: $(VENV)/.dev ## write docs/console-light.png and docs/console-dark.png with the console of the demo
	@$(BIN)/python -m tests.console.pictures

PICTURES ?= build/console
test-console: $(VENV)/.dev ## the console at all widths, in all looks, with a picture of each view below build/console
	@mkdir -p $(PICTURES)
	@CONSOLE=whole CONSOLE_PICTURES=$(PICTURES) $(BIN)/python -m pytest $(PARALLEL) tests/console

bench-console: $(VENV)/.dev ## first paint, totals and map of the console with 85 and 10,000 tools (ARGS="--rounds 9")
	@$(BIN)/python -m bench.console $(ARGS)

bench-results: $(VENV)/.dev ## tokens that a model reads of results, beside those that servers sent
	@$(BIN)/python -m bench.results

bench-faces: $(VENV)/.dev ## tokens that a model reads at each face of the demo, through the official client
	@$(BIN)/python -m bench.faces

bench-catalog: $(VENV)/.dev ## how well tools are found and what browsing costs, beside peers (ARGS="--no-peers --no-costs")
	@$(BIN)/python -m bench.catalog $(ARGS)

bench-start: $(VENV)/.dev ## CPU and time to listening and to readiness, memory at rest, pauses, imports (ARGS="--rounds 9 --beside ../other")
	@$(BIN)/python -m bench.start $(ARGS)

bench-pause: $(VENV)/.dev ## the longest pause of the event loop: while 10,000 tools are refreshed, then by cause (CAUSES="callers batch")
ifndef CAUSES
	@$(BIN)/python -m bench.pause
endif
	@$(BIN)/python -m bench.pause_causes $(CAUSES)

bench-execute: $(VENV)/.dev ## what a call costs beside a direct one, through the gate and others (ARGS="--no-peers --rounds 3")
	@$(BIN)/python -m bench.execute $(ARGS)

soak: $(VENV)/.dev ## ten minutes of 64 callers over ten upstreams, one killed every few seconds (ARGS=...)
	@$(BIN)/python -m bench.soak $(ARGS)

MINUTES ?= 20
SEED ?= 1
# STORE: sentinel, one (a single Redis) or file (one SQLite file). Faults that a store cannot have are left out.
STORE ?= sentinel
FAULTS ?= kill,pause,roll,clock,redis-kill,failover,disk,slow,deaf,full,read-only,flush,lock,proxy
chaos: $(VENV)/.dev ## twenty minutes of three replicas behind nginx over one store, under faults (MINUTES=..., SEED=..., STORE=one, FAULTS=kill,roll, ARGS=...)
	@$(BIN)/python -m bench.chaos --minutes $(MINUTES) --seed $(SEED) --store $(STORE) --faults $(FAULTS) $(ARGS)

bench-workers: $(VENV)/.dev ## throughput of serve --workers 1 and 2, and what the caller takes of the same cores (ARGS=...)
	@$(BIN)/python -m bench.workers $(ARGS)

bench-engine: $(VENV)/.dev ## what relaying a model's stream costs, beside a bare relay and agent frameworks (ARGS="--no-frameworks")
	@$(BIN)/python -m bench.engine $(ARGS)

bench-beside: $(VENV)/.dev ## ten minutes beside another commit: fails with what got worse by more than 10 % (REF=..., ARGS=--help)
	@$(BIN)/python -m bench.beside $(REF) $(ARGS)

bench-scaling: $(VENV)/.dev ## what a stream, a call and a tool cost at one, two and three replicas over one Redis (ARGS="--rounds 1")
	@$(BIN)/python -m bench.scaling $(ARGS)

bench-flow: $(VENV)/.dev ## attacks stopped and questions asked by flow rules, over traces (TRACES="a.jsonl b.jsonl"; docs/security/flow.md)
	@$(BIN)/python -m bench.flow $(TRACES) $(ARGS)

bench-validators: $(VENV)/.dev ## what checking arguments costs with our validator and with others, and who can be held
	@$(BIN)/python -m bench.validators $(ARGS)

FUZZ_S ?= $(shell expr $(MINUTES) \* 60)
fuzz: $(FUZZ)/.done ## coverage-guided fuzzing of the readers of strangers' bytes (MINUTES=20, ARGS="sse token"; fuzz/)
	@$(FUZZ)/bin/python -m fuzz --seconds $(FUZZ_S) $(ARGS)

fuzz-door: $(FUZZ)/.done ## mcp-fuzzer against the MCP door of a gate that runs
	@$(FUZZ)/bin/python -m fuzz.door

fuzz-validation: $(VENV)/.dev ## 10,000 hostile pairs of schema and arguments: what raised, and the slowest
	@$(BIN)/python -m bench.fuzz_validation --examples 10000

bench-filters: $(VENV)/.dev ## what 30 KB of text cost in the three filters, hostile texts included
	@$(BIN)/python -m bench.filters

conformance: $(VENV)/.dev ## the official suite against every face and our connector, both eras; wants package indexes (ARGS="client/*", WAY=sdk)
	@$(BIN)/python -m conformance.run_suite $(ARGS)

clients: $(VENV)/.dev ## the clients that people use, through every face; wants package indexes (ARGS="ts1 py2")
	@$(BIN)/python -m conformance.run_clients $(ARGS)

agents: $(VENV)/.dev ## the programs of examples/agents, each in its framework; wants package indexes
	@$(BIN)/python -m conformance.run_agents

sdk: $(VENV)/.dev ## generated SDKs and our clients, compiled strictly and against a gate; wants package indexes
	@$(BIN)/python -m conformance.run_sdks

test-login: $(VENV)/.dev ## the same clients log in at our door with a real issuer; wants package indexes (ARGS="ts1/* door")
	@$(BIN)/python -m conformance.run_logins $(ARGS)

documents: $(VENV)/.dev ## calls of real OpenAPI documents that a mock of the same document accepts (needs Node; ARGS="FOLDER", or ARGS="--git URL:PATH")
	@$(BIN)/python -m bench.documents $(ARGS)

# Five seconds after the first time. The pages load nothing from other hosts, and open from the folder, search included.
site: $(SITE)/.done ## build the documentation into site/, links checked (site_tools)
	@$(SITE)/bin/python -m site_tools

sbom: $(SUPPLY)/.done $(SHIPPED)/.done ## what the wheel and the image hold, as CycloneDX in dist/sbom.cdx.json; fails for a licence that was not looked at
	@$(SUPPLY)/bin/python -m supply.sbom $(SHIPPED)/bin/python dist/sbom.cdx.json

audit: $(SUPPLY)/.done ## known vulnerabilities of what the lock files install; fails where no advisory data can be read
	@$(SUPPLY)/bin/python -m supply.audit

# As make audit, but only says so where no advisory data can be read.
audit-if-possible: $(SUPPLY)/.done
	@$(SUPPLY)/bin/python -m supply.audit || test $$? -eq 3

lock: ## resolve the dependencies anew (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --upgrade \
	  --extra demo --extra build --extra dev --extra postgres --extra otel --extra code -o requirements/dev.lock pyproject.toml
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links \
	  --extra demo --extra build -c requirements/dev.lock -o requirements/run.lock pyproject.toml
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links \
	  --extra build --extra postgres --extra otel --extra code -c requirements/dev.lock -o requirements/service.lock pyproject.toml
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --upgrade --group servers -o requirements/servers.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --upgrade --group site -o requirements/site.lock
	@uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --group fuzz -c requirements/dev.lock -o requirements/fuzz.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --upgrade --group supply -o requirements/supply.lock

lock-conformance: ## resolve what make conformance, clients and test-login install anew (needs uv and npm)
	@for file in conformance/requirements/*.in; do uv pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links --upgrade \
	  -o $${file%.in}.lock $$file || exit 1; done
	@for folder in conformance/npm/*; do rm -f $$folder/package-lock.json; npm install --prefix $$folder --silent \
	  --package-lock-only --ignore-scripts --no-audit --no-fund --omit-lockfile-registry-resolved || exit 1; done

image: ## build both images with docker, podman or buildah (BUILD_OPTIONS=...)
	@sh docker/image.sh

test-image: $(BIN)/python ## build both images without a daemon and use them (root; docker/test.sh says what it takes)
	@sh docker/test.sh

release: $(VENV)/.dev ## version, wheel, source distribution, image, commit and tag, all checked (VERSION=0.2.0, IMAGE=no)
	@sh release.sh $(VERSION)

clean: ## remove what the other targets made
	@rm -rf $(VENV) $(SITE) build/site site .coverage* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Wicketgate needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...'; exit 1; }
	@echo 'Creating $(VENV) ...'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(SITE)/.done: requirements/site.lock
	@rm -rf $(SITE)
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

$(SUPPLY)/.done: requirements/supply.lock
	@rm -rf $(SUPPLY)
	@$(PYTHON) -m venv $(SUPPLY)
	@$(SUPPLY)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

$(SHIPPED)/.done: requirements/service.lock
	@rm -rf $(SHIPPED)
	@$(PYTHON) -m venv $(SHIPPED)
	@$(SHIPPED)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

$(FUZZ)/.done: requirements/dev.lock requirements/fuzz.lock
	@rm -rf $(FUZZ)
	@$(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/dev.lock -r requirements/fuzz.lock
	@$(FUZZ)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.run: requirements/run.lock pyproject.toml | $(BIN)/python
	@echo 'Installing the locked dependencies (about a minute, once) ...'
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(BIN)/python
	@echo 'Installing the locked dependencies and the test tools (about a minute, once) ...'
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@ $(VENV)/.run
