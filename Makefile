# Two commands do everything: `make demo` and `make test`. Both need Python 3.11 and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
LOCK := $(BIN)/uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

# Numba stores what it compiles beside the sources: workers of the tests then compile nothing twice.
COMPILE_KERNELS = $(BIN)/newsstand simulate examples/tiny-trace --engine local >/dev/null && \
	$(BIN)/newsstand replay tests/vectors/bad2018/01_basic.csv --cache-bytes 100000 --implementation compiled --engine local >/dev/null && \
	$(BIN)/newsstand plan examples/storage-network.json >/dev/null && \
	$(BIN)/newsstand survive --brokers 3 --slots 4 --method balanced simulate >/dev/null && \
	$(BIN)/python -c 'from newsstand.workload.bad2018 import events, generator; \
		generator.draw(events.SimulationSettings(2, 2, 1, hours=0.5), 0); \
		from newsstand.workload.chen2003 import publishing, requests; \
		requests.generate_columns(publishing.News(requests=60, proxies=2, pages=2))'

# Python keeps what it compiles, also where the environment says otherwise: each worker of the tests, and each process
# that they start, would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE
# Matrices in tests are small: threads of OpenBLAS would only wait for each other, and take the cores of the workers.
test test-unit test-all: export OPENBLAS_NUM_THREADS = 1

.PHONY: help demo compare test test-unit test-all check format bench bench-lab bench-week bench-cluster bench-stages bench-broker bench-results bench-plan lock clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(READY)  ## a whole platform for a minute: a city in trouble, 300 subscribers, a page to watch them
	@$(BIN)/newsstand demo --duration 60

compare: $(READY)  ## a week of news, replayed under every policy: a table, a figure, what it teaches
	@$(BIN)/newsstand compare --out compare-out

test: $(READY)  ## the tests
	@$(BIN)/python -m pytest -n 4 --no-loadscope-reorder --durations 15

test-unit: $(READY)  ## the tests that start neither Spark nor a process
	@$(BIN)/python -m pytest -n 2 --unit

test-all: $(READY)  ## also the tests that take minutes, and property tests with four times the examples
	@$(BIN)/python -m pytest -m '' --hypothesis-profile thorough

check: $(READY)  ## lint, format, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_import_rules.py

format: $(READY)  ## put the sources into shape
	@$(BIN)/ruff check --fix-only -q . ; $(BIN)/ruff format -q .

bench: $(READY) .venv/.bench  ## replay against libCacheSim, side by side
	@$(BIN)/python benchmarks/replay_vs_libcachesim.py

bench-lab: $(READY) .venv/.bench  ## the lab's commands as typed, start-up included, against libCacheSim
	@$(BIN)/python benchmarks/end_to_end.py

bench-week: $(READY)  ## the full week, 175 million requests at 100,000 proxies, generated and replayed
	@$(BIN)/python benchmarks/full_week.py

bench-cluster: $(READY)  ## the data cluster: matching up to a million subscriptions, publish to result
	@$(BIN)/python benchmarks/matching.py
	@$(BIN)/python benchmarks/publish_to_result.py

bench-stages: $(READY)  ## where a publication spends its time, from publisher to subscriber, on a whole platform
	@$(BIN)/python benchmarks/publication_stages.py

bench-broker: $(READY) .venv/.bench  ## fan-out of notifications against Tornado, by the server's CPU time
	@$(BIN)/python benchmarks/fan_out.py
	@$(BIN)/python benchmarks/get_results.py

bench-results: $(READY)  ## six hours of broker events under every policy, by the broker's core and compiled
	@$(BIN)/python benchmarks/replay_results.py

bench-plan: $(READY)  ## planning: greedy compiled, side by side with plain loops, and on 2,000 brokers
	@$(BIN)/python benchmarks/plan_storages.py

lock: $(READY)  ## pin the dependencies again
	@$(LOCK) --group bootstrap -o bootstrap.lock
	@$(LOCK) pyproject.toml --all-extras --group dev -o requirements.lock

clean:  ## remove what make made
	rm -rf .venv demo-out compare-out build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Nothing is installed that a lock does not pin with its hash, and nothing else builds packages.
# Spark starts faster with an archive of its classes (decision 0031); without one it starts, too.
$(READY): bootstrap.lock requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed"; exit 1; }
	@echo "Setting up .venv …"
	@$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes --only-binary :all: -r bootstrap.lock
	@$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m newsstand.spark.class_training >/dev/null 2>&1 || true
	@$(COMPILE_KERNELS)
	@touch $@

.venv/.bench: benchmarks/requirements.lock $(READY)
	@$(PIP) --no-deps --require-hashes -r benchmarks/requirements.lock
	@touch $@
