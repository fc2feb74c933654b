# GNU make and Python 3.11 or newer are all that is needed: what else is, tools/setup puts into .venv.
#   ARGS    goes to what the target runs:                  make test ARGS='-k wire'
#   PYTHON  is the Python to make .venv with:              make test PYTHON=python3.13
#   EXTRAS  are further extras of pyproject.toml to have:  make test EXTRAS=docs

BIN := .venv/bin

# What runs when. `make test` runs all tests but those with these markers, in their short form; .ci/run runs
# that, test-smoke (one of each of what is left out), fuzz and test-attacks in their short forms, and one part
# of the rest. The rest is in six parts: test-sixth runs one of them, in the long form (tests/support/forms.py),
# and test-all runs everything, also what no part has: test-compat, other Pythons, all attacks, endurance.
# A marker that is new here belongs to a part.
APART := spark or load or containers
LEFT_OUT := $(APART) or compat or rest
PARTS := test-simulation test-models test-drivers test-spark test-load test-containers

# Of two cores: a third computes while one waits for processes that it has started.
PARALLEL := -n 3 --dist loadfile
LONG := KCAST_SEEDS=all $(BIN)/pytest -n 2 --dist
OF_REST := (rest or seeds) and not ($(APART) or compat)
# Where they are: to look for them in all files takes each process twenty seconds.
SPARK := tests/docs/test_shell_blocks.py tests/spark
CONTAINERS := tests/docs/test_shell_blocks.py tests/containers
LOAD := tests/docs/test_shell_blocks.py tests/processes tests/loadtest
SMOKE := tests/spark/test_analysis.py tests/processes/test_locust.py tests/containers

# A PYTHONPATH, or another active environment, must not decide what is imported here.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV MYPYPATH
# Tests start hundreds of processes, and each would compile all of kcast. Unbuffered output hides faults of the last flush.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

PYTHON ?=
OLDEST ?= python3.11
IMAGE := kcast-test
SETUP := PYTHON='$(PYTHON)' sh tools/setup $(EXTRAS)

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two set-ups of one .venv would collide
.PHONY: help demo load analyse docs man test test-fast test-smoke test-sixth $(PARTS) test-all test-seeds test-pythons test-compat test-attacks fuzz \
	lint format bench bench-peers constraints lock dist clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

demo:  ## a cluster on this machine, servers killed, delivery measured against prediction
	@$(SETUP)
	@$(BIN)/kcast demo $(ARGS)

load:  ## load tests: kcast load, with all that it needs
	@$(SETUP) load
	@$(BIN)/kcast load $(ARGS)

analyse:  ## captures of load tests against theory: make analyse ARGS=RUN
	$(if $(strip $(ARGS)),,$(error give the capture to analyse: make analyse ARGS=RUN, where RUN is a folder such as \
		load-out/20261120-171341, or ARGS=--simulate))
	@$(SETUP) spark
	@$(BIN)/kcast analyse $(ARGS)

test: lint  ## all checks and tests but the slow ones: see test-sixth
	$(BIN)/pytest $(PARALLEL) -m 'not ($(LEFT_OUT))' $(ARGS)
	@echo 'left out, for their time or because they need a Docker engine: make $(PARTS).' \
		'make test-sixth runs one of these, and make test-all runs all that there is'

test-fast:  ## the sans-IO cores, codec, ring and simulation: no socket
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest -n 2 --dist worksteal -m 'not (world or long or rest)' --ignore tests/client/cli \
		tests/hashring tests/pubsub tests/client tests/simulation $(ARGS)

test-smoke:  ## one of each: a capture through Spark, a run of locust, compose.yaml, load tests on containers
	@$(ENGINE)
	@$(SETUP) dev load spark trust list-log
	@$(ON_IMAGE) -m smoke $(ARGS) $(SMOKE)

# The number of commits says which part is next; in a clone without history the day of the year does.
NUMBER = $(shell if [ "$$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; \
	then git rev-list --count HEAD; else date +%j; fi | awk '{ print $$1 % 6 }')

test-sixth:  ## the part of the rest whose turn it is: make test-sixth N=3, of 0 to 5
	$(if $(filter-out 0 1 2 3 4 5,$(N)),$(error N is the number of a part: 0 to 5))
	@number=$(or $(N),$(NUMBER)); set -- $(PARTS); shift $$number; \
		echo "part $$number of 0 to 5: make $$1"; exec $(MAKE) --no-print-directory $$1

test-simulation:  ## part 0: the simulation with all seeds
	@$(SETUP) dev load spark trust list-log
	$(LONG) worksteal -m '$(OF_REST)' tests/simulation $(ARGS)

test-models:  ## part 1: long forms of what opens no socket: cores against models, forms, figures
	@$(SETUP) dev load spark trust list-log
	$(LONG) worksteal -m '$(OF_REST) and not world' --ignore tests/simulation $(ARGS)

test-drivers:  ## part 2: uvloop, gevent, portable sockets, and what documents tell to type
	@$(SETUP) dev load spark trust list-log
	$(LONG) loadfile -m '$(OF_REST) and world' --ignore tests/simulation $(ARGS)

test-spark:  ## part 3: the analysis on Spark: jobs, whole ways through, on a cluster of Spark's
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m spark $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(SPARK))

test-load:  ## part 4: load tests with real locust, from servers to results
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest -n 3 --dist worksteal -m load $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(LOAD))

test-containers:  ## part 5, on a Docker engine: the cluster of compose.yaml, and load tests on containers
	@$(ENGINE)
	@$(SETUP) dev load spark trust list-log
	@$(ON_IMAGE) -n 2 --dist loadfile -m containers $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(CONTAINERS))

ENGINE = { docker info && { docker compose version || docker-compose version; }; } >/dev/null 2>&1 || { \
	echo 'kcast needs a Docker engine that answers `docker info`, and docker compose or docker-compose.' \
	'On Debian run: apt-get install docker.io docker-compose. DOCKER_HOST names an engine elsewhere' >&2; exit 1; }

# Runs pytest where an image of this checkout is there. Arguments follow; what ends the line removes the image.
ON_IMAGE = sh tools/on-image $(IMAGE) $(BIN)/pytest

test-all: test $(PARTS) test-compat test-pythons  ## everything there is: some hours; make -k goes on after a failure
	$(MAKE) test-attacks ARGS=--full
	$(BIN)/python -m tests.endurance --virtual-hours 8
	$(BIN)/python -m tests.endurance --real-minutes 20

test-seeds:  ## many seeds of the simulation, with progress: make test-seeds ARGS='--seeds 10000'
	@$(SETUP) dev load spark trust list-log
	$(BIN)/python -m tests.simulation $(ARGS)

test-pythons:  ## the tests of `make test` on every Python from 3.11 that is installed
	@set -e; for python in $(or $(PYTHON),$$(sh tools/pythons)); do \
		name=$$($$python -c 'import sys; print("python3.%d" % sys.version_info[1])'); \
		echo "== $$name"; \
		VENV=build/$$name PYTHON=$$python sh tools/setup dev load spark trust list-log $(EXTRAS); \
		build/$$name/bin/pytest $(PARALLEL) -m 'not ($(LEFT_OUT))' $(ARGS); done

test-compat:  ## this version and 0.1.0 in one cluster, both ways round; needs the history
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest $(PARALLEL) -m compat $(ARGS)

test-attacks:  ## real servers and clients under attack, 3 min; the longer form: make test-attacks ARGS=--full
	@$(SETUP) dev load spark trust list-log
	$(BIN)/python -m tests.attacks $(ARGS)

fuzz:  ## look for inputs that break a promise, for a minute; or: make fuzz ARGS='server --runs 10000000'
	@$(SETUP) dev load spark trust list-log fuzz
	@$(BIN)/python -m tests.fuzz $(or $(ARGS),--seconds 60)

lint:  ## ruff and mypy, changing nothing
	@$(SETUP) dev load spark trust list-log
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy docs/examples/*.py

format:  ## lay the code out, and mend what ruff can
	@$(SETUP) dev load spark trust list-log
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench:  ## the benchmarks of bench/, one after the other
	@$(SETUP) dev load spark trust list-log
	@set -e; for bench in $(filter-out __init__,$(patsubst bench/%.py,%,$(wildcard bench/*.py))); do \
		echo "== $$bench"; $(BIN)/python -m "bench.$$bench" $(ARGS); done

bench-peers:  ## kcast beside nats-server, redis-server, mosquitto and nats-py, 25 min; ARGS=--short: some
	@$(SETUP) dev load spark trust list-log peers
	@$(BIN)/python -m bench.peers $(ARGS)

# Resolved on the oldest Python that is supported, since newer ones take its versions but not the reverse.
# The comment on top of the file stays.
constraints:  ## bring constraints.txt up to date (needs python3.11 and a network)
	@rm -rf build/constraints && mkdir -p build
	$(OLDEST) -m venv build/constraints
	build/constraints/bin/pip install --quiet -e '.[dev,docs,load,spark,trust,list-log,fuzz,peers]'
	@{ sed '/^#/!d' constraints.txt && build/constraints/bin/pip freeze --all --exclude pip --exclude kcast; } >build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints
	-git --no-pager diff --stat constraints.txt

lock:  ## bring requirements*.lock, what the image is built from, up to date (needs a network)
	@$(SETUP)
	$(BIN)/python tools/lock
	-git --no-pager diff --stat requirements.lock requirements-build.lock

docs:  ## the documentation as a static site, into build/site; links are checked
	@$(SETUP) docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

man:  ## man pages of all commands, into build/man/man1
	@$(SETUP) man
	@$(BIN)/kcast help --man build/man/man1
	@echo 'written into build/man/man1: man -M build/man kcast-sub'

dist:  ## build the wheel and the source distribution into dist/
	@$(SETUP) dev load spark trust list-log
	@rm -rf dist
	$(BIN)/python -m build

clean:  ## remove all that make made, .venv too
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
