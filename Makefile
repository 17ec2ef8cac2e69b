# leveret: `make run` sets everything up and does the main job; `make test` proves it.
# All targets work from a fresh clone on a machine that has Python 3.11 or newer and nothing else.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# best: compiled where a C compiler is found, else interpreted. CORE=compiled insists, CORE=interpreted forbids.
CORE ?= best
WITH_CORE = $(BIN)/python tools/with_core.py
# What `make run` hands to the demo, for example DEMO="--flights 5000".
DEMO ?=
SEEDS ?= 20
# Tests wait more than they compute: more files at a time than processors, but not so many that brokers starve.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
KILLS ?= 500
SPARK_KILLS ?= 200
FUZZ_S ?= 900
# In the order of tests/conftest.py, the longest files first.
PARALLEL = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What `make conformance` hands to the tool, for example SUITES="kombu --broker rabbitmq".
SUITES ?=
# What `make bench`, `make bench-spark` … hand to their tools, for example BENCH="--only sink,rpc --rounds 5".
BENCH ?=
# What `make bench-quick` hands to its tool.
GATE ?=
.DEFAULT_GOAL := help

.PHONY: help run test lint build compiled docs sbom audit fuzz bench bench-quick bench-admin bench-federation bench-streams bench-spark bench-curves bench-cliffs bench-day conformance soak mutants clean

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

run: $(VENV)/demo.stamp  ## install and run the demo: flights through broker and Spark, reconciled (DEMO="--flights 5000")
	$(WITH_CORE) $(CORE) $(BIN)/python -m leveret.cli.main demo $(DEMO)

test: $(VENV)/dev.stamp  ## all tests on the compiled core; unit and conformance tests of leveret on the interpreted one, too
	$(WITH_CORE) $(CORE) true & compiling=$$!; \
	$(WITH_CORE) interpreted $(BIN)/python -m pytest -q $(PARALLEL) -m "not rabbitmq" --ignore=tests/conformance/http --ignore=tests/conformance/with_celery tests/unit tests/conformance tests/fuzz tests/kit; \
	status=$$?; wait $$compiling && exit $$status
	$(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q $(PARALLEL) --durations=25

lint: $(VENV)/dev.stamp  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy --strict

build: $(VENV)/dev.stamp  ## the wheel, in dist/
	$(BIN)/python -m build --wheel

compiled: $(VENV)/dev.stamp  ## compile the core into build/compiled/ (skipped when nothing changed)
	$(WITH_CORE) best $(BIN)/python -c 'import leveret; print(leveret.core())'

docs: $(VENV)/dev.stamp  ## the documentation as a site, in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/mkdocs build --quiet --strict

sbom: $(VENV)/dev.stamp  ## what a broker consists of, as CycloneDX: dist/leveret.cdx.json
	PYTHONPATH=src $(BIN)/python tools/sbom.py dist/leveret.cdx.json

audit: $(VENV)/dev.stamp  ## known vulnerabilities of what leveret needs; says so where the service can't be asked
	$(BIN)/python tools/audit_dependencies.py

fuzz: $(VENV)/dev.stamp  ## fuzz wire, broker, journal and texts, FUZZ_S=900 seconds each, from the committed corpus
	for name in wire broker journal texts; do \
		PYTHONPATH=src $(BIN)/python -m tests.fuzz $$name -max_total_time=$(FUZZ_S) || exit 1; done

bench: $(VENV)/dev.stamp  ## everything in docs/PERFORMANCE.md, in turns with the brokers installed here: 35 minutes (BENCH=--resume)
	$(WITH_CORE) best $(BIN)/python bench/suite.py $(BENCH)
	$(WITH_CORE) best $(BIN)/python bench/report.py

bench-quick: $(VENV)/dev.stamp  ## has it become slower than bench/baseline.json? three minutes (GATE=--renew makes a new one)
	$(WITH_CORE) best $(BIN)/python bench/gate.py $(GATE)

bench-admin: $(VENV)/dev.stamp  ## what the HTTP API costs messages; fails where that is too much: two minutes
	$(WITH_CORE) best $(BIN)/python bench/admin_latency.py

bench-federation: $(VENV)/dev.stamp  ## one link of leveret's against one of RabbitMQ's; ten minutes
	$(WITH_CORE) best $(BIN)/python bench/federation.py

bench-streams: $(VENV)/dev.stamp  ## stream queues against RabbitMQ's, and their tables' readers; a quarter of an hour
	$(WITH_CORE) best $(BIN)/python bench/streams.py

bench-spark: $(VENV)/dev.stamp  ## the Spark source and sink against RabbitMQ, pika and Spark's own readers; twenty minutes
	$(WITH_CORE) best $(BIN)/python bench/spark_bench.py $(BENCH)

bench-curves: $(VENV)/dev.stamp  ## how cost grows with queues, bindings, octets …: docs/CURVES.md; ten minutes (BENCH="--only topic")
	$(WITH_CORE) best $(BIN)/python bench/curves.py $(BENCH)

bench-cliffs: $(VENV)/dev.stamp  ## what messages feel of what others do: docs/CLIFFS.md; a quarter of an hour (BENCH="--only import")
	$(WITH_CORE) best $(BIN)/python bench/cliffs.py $(BENCH)

bench-day: $(VENV)/dev.stamp  ## a day's messages of all kinds in ten minutes: memory and files must stay as they are (BENCH="--minutes 30")
	$(WITH_CORE) best $(BIN)/python bench/day.py $(BENCH)

conformance: $(VENV)/dev.stamp  ## clients' own test suites against leveret: an hour; fetches them (SUITES=kombu for one)
	$(WITH_CORE) $(CORE) $(BIN)/python -m tests.suites $(SUITES)

soak: $(VENV)/dev.stamp  ## property tests with SEEDS=20 other seeds, thousands of simulated worlds and scripts, KILLS=500 kills and cuts, SPARK_KILLS=200 of Spark queries
	LEVERET_SIM_SEEDS=$$(( 1000 * $(SEEDS) )) $(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q -s tests/sim/test_seeds.py
	LEVERET_FEDERATION_SEEDS=$$(( 1000 * $(SEEDS) )) $(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q -s tests/sim/test_federation.py -k random
	for seed in $$(seq $(SEEDS)); do \
		$(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q tests/unit --hypothesis-seed=$$seed || exit 1; \
	done
	LEVERET_CRASH_KILLS=$(KILLS) LEVERET_CRASH_CUTS=$(KILLS) LEVERET_CRASH_SEED=$$(date +%s) \
		$(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q -rP tests/crash/test_kill*.py tests/crash/test_power.py
	LEVERET_DIFF_SEED=$$(date +%s) LEVERET_DIFF_SCRIPTS=$$(( 1000 * $(SEEDS) )) \
		$(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q -s tests/interop/differential -k random
	LEVERET_SPARK_KILLS=$(SPARK_KILLS) LEVERET_SPARK_SEED=$$(date +%s) \
		$(WITH_CORE) $(CORE) $(BIN)/python -m pytest -q -s tests/spark/kills/soak.py tests/demo/soak.py

mutants: $(VENV)/dev.stamp  ## each listed defect must turn its test red
	$(BIN)/python tools/mutants.py

clean:  ## all that can be made again, but not the virtual environment
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "leveret needs Python 3.11 or newer"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The editable installation brings the dependencies; which core runs is decided by tools/with_core.py.
$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,compile]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	@touch $@ $(VENV)/demo.stamp
