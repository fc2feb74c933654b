# GNU make and Python 3.11 or newer are all that is needed: what else is, tools/setup puts into .venv.
#   ARGS    goes to what the target runs:                  make test ARGS='-k wire'
#   PYTHON  is the Python to make .venv with:              make test PYTHON=python3.13
#   EXTRAS  are further extras of pyproject.toml to have:  make test EXTRAS=docs

# What `make test` leaves out, and the target that runs it.
SLOW := spark or load or containers or compat
PARALLEL := -n 2 --dist loadfile
# Where the tests with Spark are: to look for them in all files takes each process twenty seconds.
SPARK := tests/docs/test_shell_blocks.py tests/spark

# A PYTHONPATH, or another active environment, must not decide what is imported here.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV MYPYPATH
# Tests start hundreds of processes, and each would compile all of kcast.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?=
OLDEST ?= python3.11
BIN := .venv/bin
IMAGE := kcast-test
SETUP := PYTHON='$(PYTHON)' sh tools/setup $(EXTRAS)

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two set-ups of one .venv would collide
.PHONY: help demo load analyse docs man test test-fast test-seeds test-pythons test-spark test-load test-compat test-containers test-attacks fuzz \
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

test: lint  ## all checks and tests but the slow ones, which it names at its end
	$(BIN)/pytest $(PARALLEL) -m 'not ($(SLOW))' $(ARGS)
	@echo 'left out, for their time or because they need a Docker engine: make test-spark (the analysis on Spark,' \
		'5 min), make test-load (locust, 8 min), make test-containers (compose.yaml, load tests on containers, 8 min),' \
		'make test-compat (beside version 0.1.0, 1 min). make test-attacks floods real servers (3 min),' \
		'make fuzz looks for inputs that no test has'

test-fast:  ## the sans-IO cores, codec, ring and simulation, in three minutes: 20 of 200 seeds, no socket
	@$(SETUP) dev load spark trust list-log
	KCAST_SIM_SEEDS=20 $(BIN)/pytest -n 2 --dist worksteal -m 'not (world or long)' --ignore tests/client/cli \
		tests/hashring tests/pubsub tests/client tests/simulation $(ARGS)

test-seeds:  ## many seeds of the simulation, with progress: make test-seeds ARGS='--seeds 10000'
	@$(SETUP) dev load spark trust list-log
	$(BIN)/python -m tests.simulation $(ARGS)

test-pythons:  ## the tests of `make test` on every Python from 3.11 that is installed
	@set -e; for python in $(or $(PYTHON),$$(sh tools/pythons)); do \
		name=$$($$python -c 'import sys; print("python3.%d" % sys.version_info[1])'); \
		echo "== $$name"; \
		VENV=build/$$name PYTHON=$$python sh tools/setup dev load spark trust list-log $(EXTRAS); \
		build/$$name/bin/pytest $(PARALLEL) -m 'not ($(SLOW))' $(ARGS); done

test-spark:  ## the analysis on Spark: jobs, whole ways through, on a cluster of Spark's
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m spark $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(SPARK))

test-load:  ## load tests with real locust, from servers to results
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest -n 2 --dist worksteal -m load $(ARGS)

test-compat:  ## this version and 0.1.0 in one cluster, both ways round; needs the history
	@$(SETUP) dev load spark trust list-log
	$(BIN)/pytest $(PARALLEL) -m compat $(ARGS)

test-containers:  ## on a Docker engine: the cluster of compose.yaml, and load tests on containers
	@{ docker info && { docker compose version || docker-compose version; }; } >/dev/null 2>&1 || { \
		echo 'kcast needs a Docker engine that answers `docker info`, and docker compose or docker-compose.' \
		'On Debian run: apt-get install docker.io docker-compose. DOCKER_HOST names an engine elsewhere' >&2; exit 1; }
	@$(SETUP) dev load spark trust list-log
	@docker build --quiet --network host --tag $(IMAGE) . && \
		KCAST_IMAGE=$(IMAGE) $(BIN)/pytest -m containers $(ARGS); code=$$?; \
		docker image rm --force $(IMAGE) >/dev/null; exit $$code

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
	build/constraints/bin/pip install --quiet -e '.[dev,docs,load,spark,trust,list-log,fuzz,peers,notebook]'
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
