# leveret: `make run` sets everything up and does the main job; `make test` proves it.
# All targets work from a fresh clone on a machine that has Python 3.11 or newer and nothing else.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# best: compiled where a C compiler is found, else interpreted. CORE=compiled insists, CORE=interpreted forbids.
CORE ?= best
export LEVERET_CORE := $(CORE)
# Tests start hundreds of processes: where this is set each of them compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=
# What lets the JVMs of tests and of the demo start in half the processor time, where it is there.
export LEVERET_JAVA_OPTIONS := $(CURDIR)/build/java.options
# What `make run` hands to the demo, for example DEMO="--flights 5000".
DEMO ?=
SEEDS ?= 20
# Tests wait more than they compute: more files at a time than processors, but not so many that brokers starve.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
# Without peers tests wait even more.
JOBS_WITHOUT_PEERS ?= $(shell echo $$(($(JOBS) + 1)))
KILLS ?= 500
SPARK_KILLS ?= 200
FUZZ_S ?= 900
# In the order of tests/conftest.py, the longest files first.
PYTEST = $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
# What `make conformance` hands to the tool, for example SUITES="kombu --broker rabbitmq".
SUITES ?=
# What `make bench`, `make bench-spark` … hand to their tools, for example BENCH="--only sink,rpc --rounds 5".
BENCH ?=
# What `make bench-quick` hands to its tool; and `make stress`.
GATE ?=
STRESS ?=
.DEFAULT_GOAL := help

.PHONY: help run test test-all peers record core stress mutants-ci instructions lint build compiled docs sbom audit fuzz bench bench-quick bench-admin bench-clients bench-federation bench-streams bench-spark bench-demo bench-curves bench-cliffs bench-day conformance soak mutants clean

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

run: $(VENV)/demo.stamp core $(LEVERET_JAVA_OPTIONS)  ## install and run the demo: flights through broker and Spark, reconciled (DEMO="--flights 5000")
	$(BIN)/python -m leveret demo $(DEMO)

test: $(VENV)/dev.stamp core $(LEVERET_JAVA_OPTIONS)  ## all tests that need nothing but what pip installs and no minute of their own; what is left out is named at the end
	LEVERET_PEERS=none $(PYTEST) -n $(JOBS_WITHOUT_PEERS)

test-all: $(VENV)/dev.stamp core $(LEVERET_JAVA_OPTIONS)  ## all tests: RabbitMQ, PostgreSQL, Node, Chromium … must be there (make peers)
	LEVERET_CORE=interpreted LEVERET_PEERS=all $(PYTEST) -p tests.core_only tests/unit tests/fuzz tests/kit tests/conformance
	LEVERET_PEERS=all $(PYTEST) --junitxml=build/tests.xml
	@$(BIN)/python tools/slowest.py build/tests.xml

$(LEVERET_JAVA_OPTIONS): $(VENV)/demo.stamp
	@PYTHONPATH=src $(BIN)/python tools/spark_classes.py $@ 2>/dev/null

peers:  ## install what `make test-all` talks to, with apt-get, and fetch what its tests would
	@missing=$$($(PYTHON) tests/peers.py packages) && test -z "$$missing" || { \
		root=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$root apt-get update -q && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; }
	@$(MAKE) --no-print-directory $(VENV)/dev.stamp
	$(BIN)/python tests/peers.py fetch

lint: $(VENV)/dev.stamp  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy --strict

build: $(VENV)/dev.stamp  ## the wheel, in dist/
	$(BIN)/python -m build --wheel

compiled: $(VENV)/build.stamp  ## compile the core into build/core/, where whatever starts leveret from here finds it
	@LEVERET_CORE=compiled $(BIN)/python setup.py -q core

core: $(VENV)/build.stamp
	@$(BIN)/python setup.py -q core

docs: $(VENV)/dev.stamp  ## the documentation as a site, in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/mkdocs build --strict

sbom: $(VENV)/dev.stamp  ## what a broker consists of, as CycloneDX: dist/leveret.cdx.json
	PYTHONPATH=src $(BIN)/python tools/sbom.py dist/leveret.cdx.json

audit: $(VENV)/dev.stamp  ## known vulnerabilities of what leveret needs; says so where the service can't be asked
	$(BIN)/python tools/audit_dependencies.py

fuzz: $(VENV)/dev.stamp  ## fuzz wire, broker, journal and texts, FUZZ_S=900 seconds each, from the committed corpus
	for name in wire broker journal texts; do \
		PYTHONPATH=src $(BIN)/python -m tests.fuzz $$name -max_total_time=$(FUZZ_S) || exit 1; done

bench: $(VENV)/dev.stamp core  ## everything in docs/internals/performance.md, in turns with the brokers installed here: 35 minutes (BENCH=--resume)
	$(BIN)/python bench/suite.py $(BENCH)
	$(BIN)/python bench/report.py

bench-quick: $(VENV)/dev.stamp core  ## has it become slower than bench/baseline.json? three minutes (GATE=--renew makes a new one)
	$(BIN)/python bench/gate.py $(GATE)

bench-admin: $(VENV)/dev.stamp core  ## what the HTTP API costs messages; fails where that is too much: two minutes
	$(BIN)/python bench/admin_latency.py

bench-clients: $(VENV)/dev.stamp core  ## Python clients side by side: docs/reference/clients.md; twenty minutes (BENCH=--quick: three)
	$(BIN)/python bench/clients.py $(BENCH)

bench-federation: $(VENV)/dev.stamp core  ## one link of leveret's against one of RabbitMQ's; ten minutes
	$(BIN)/python bench/federation.py

bench-streams: $(VENV)/dev.stamp core  ## stream queues against RabbitMQ's, and their tables' readers; a quarter of an hour
	$(BIN)/python bench/streams.py

bench-spark: $(VENV)/dev.stamp core  ## the Spark source and sink against RabbitMQ, pika and Spark's own readers; twenty minutes
	$(BIN)/python bench/spark_bench.py $(BENCH)

bench-demo: $(VENV)/dev.stamp core $(LEVERET_JAVA_OPTIONS)  ## where the demo's time goes: docs/internals/demo-profile.md; one minute
	$(BIN)/python bench/demo_profile.py $(BENCH)

bench-curves: $(VENV)/dev.stamp core  ## how cost grows with queues, bindings, octets …: docs/internals/cost-curves.md; ten minutes (BENCH="--only topic")
	$(BIN)/python bench/curves.py $(BENCH)

bench-cliffs: $(VENV)/dev.stamp core  ## what messages feel of what others do: docs/internals/noisy-neighbours.md; a quarter of an hour (BENCH="--only import")
	$(BIN)/python bench/cliffs.py $(BENCH)

bench-day: $(VENV)/dev.stamp core  ## a day's messages of all kinds in ten minutes: memory and files must stay as they are (BENCH="--minutes 30")
	$(BIN)/python bench/day.py $(BENCH)

record: $(VENV)/dev.stamp core  ## ask a RabbitMQ anew for the answers that leveret is compared with: a quarter of an hour
	rm -rf tests/conformance/http/recorded
	LEVERET_RECORD=1 $(BIN)/python -m pytest -q tests/conformance/http
	LEVERET_RECORD=1 $(BIN)/python -m pytest -q tests/interop/differential -k fresh

conformance: $(VENV)/dev.stamp core  ## clients' own test suites against leveret: an hour; fetches them (SUITES=kombu for one)
	$(BIN)/python -m tests.suites $(SUITES)

soak: $(VENV)/dev.stamp core  ## property tests with SEEDS=20 other seeds, thousands of simulated worlds and scripts, KILLS=500 kills and cuts and connections of each kind, SPARK_KILLS=200 of Spark queries
	LEVERET_SIM_BOUNDARIES=all $(BIN)/python -m pytest -q tests/sim/test_every_boundary.py
	LEVERET_SIM_SEEDS=$$(( 1000 * $(SEEDS) )) $(BIN)/python -m pytest -q -s tests/sim/test_seeds.py
	LEVERET_FEDERATION_SEEDS=$$(( 1000 * $(SEEDS) )) $(BIN)/python -m pytest -q -s tests/sim/test_federation.py -k random
	LEVERET_PRESSURE_SEEDS=$$(( 1000 * $(SEEDS) )) $(BIN)/python -m pytest -q -s tests/sim/test_back_pressure.py
	LEVERET_PUBLISHER_SEEDS=$$(( 1000 * $(SEEDS) )) $(BIN)/python -m pytest -q -s tests/sim/test_publishers.py
	LEVERET_CLIENT_SEEDS=$$(( 1000 * $(SEEDS) )) $(BIN)/python -m pytest -q -s tests/sim/test_reconnecting_clients.py
	for seed in $$(seq $(SEEDS)); do \
		$(BIN)/python -m pytest -q tests/unit --hypothesis-seed=$$seed || exit 1; \
	done
	LEVERET_CHURN=$(KILLS) $(BIN)/python -m pytest -q tests/unit/test_churn.py
	LEVERET_CHAOS_ROUNDS=$(KILLS) LEVERET_CHAOS_SEED=$$(date +%s) $(BIN)/python -m pytest -q -s tests/kit/test_chaos.py
	LEVERET_CRASH_KILLS=$(KILLS) LEVERET_CRASH_CUTS=$(KILLS) LEVERET_CRASH_SEED=$$(date +%s) \
		$(BIN)/python -m pytest -q -rP tests/crash/test_kill*.py tests/crash/test_power.py
	LEVERET_DIFF_SEED=$$(date +%s) LEVERET_DIFF_SCRIPTS=$$(( 1000 * $(SEEDS) )) \
		$(BIN)/python -m pytest -q -s tests/interop/differential -k random
	LEVERET_SPARK_KILLS=$(SPARK_KILLS) LEVERET_SPARK_SEED=$$(date +%s) \
		$(BIN)/python -m pytest -q -s tests/spark/kills/soak.py tests/demo/soak.py

stress: $(VENV)/dev.stamp core  ## all tests that touch time, three times, beside four busy loops: none may fail (STRESS="--rounds 1")
	LEVERET_PEERS=found $(BIN)/python tools/stress.py $(STRESS)

instructions: $(VENV)/dev.stamp core  ## has a message become dearer? the core's instructions per message, by valgrind
	$(BIN)/python bench/instructions.py gate

mutants-ci: $(VENV)/dev.stamp  ## at most 60 of them: those of files changed lately, others drawn by the commit
	$(BIN)/python tools/mutants.py --most 60 --seconds 60

mutants: $(VENV)/dev.stamp  ## each listed defect must turn its test red
	$(BIN)/python tools/mutants.py

clean:  ## all that can be made again, but not the virtual environment
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "leveret needs Python 3.11 or newer, and there is none. Debian: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV) >$(VENV).log 2>&1 || { rm -rf $(VENV); cat $(VENV).log; rm $(VENV).log; \
		echo "make: $(PYTHON) could not make a virtual environment. Debian: apt-get install python3-venv, then the same make again"; exit 1; }
	@rm -f $(VENV).log

# What pyproject.toml says that building needs: without it no isolated environment has to be made twice.
$(VENV)/build.stamp: pyproject.toml | $(BIN)/pip
	@echo "make: installing what building needs into $(VENV)"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >$(VENV)/build.txt
	@$(PIP) -r $(VENV)/build.txt
	@touch $@

# The core is compiled meanwhile. Modules become bytecode when they are imported first: most never are.
$(VENV)/demo.stamp: pyproject.toml $(VENV)/build.stamp
	@echo "make: installing leveret and the demo's packages (Spark, Arrow, a Java …) into $(VENV): about a minute"
	@$(BIN)/python setup.py -q core & core=$$!; $(PIP) --no-compile --no-build-isolation --editable '.[demo]'; \
		status=$$?; wait $$core && exit $$status
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/build.stamp
	@echo "make: installing leveret and all that its tests need into $(VENV): about two minutes"
	@$(BIN)/python setup.py -q core & core=$$!; $(PIP) --no-compile --no-build-isolation --editable '.[demo,dev]'; \
		status=$$?; wait $$core && exit $$status
	@touch $@ $(VENV)/demo.stamp

