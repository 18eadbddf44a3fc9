# What a newcomer types. Needs python3 (3.11 or later) with venv, and make; the rest it brings.
#
# The environment lives in .venv. Two stamps in it remember what was installed: they are older
# than a lock file or pyproject.toml exactly when something has to be installed again, so a warm
# run installs nothing.

PYTHON ?= python3
ENVIRONMENT := .venv
BIN := $(ENVIRONMENT)/bin
RUNTIME := $(ENVIRONMENT)/.installed-runtime
DEVELOPMENT := $(ENVIRONMENT)/.installed-development
LOCKER := build/lock
RELEASE := build/release
# The program, what builds it, and the Postgres of a wheel for hosts that have none.
LOCKS := deploy/requirements.txt deploy/requirements-build.txt node/runtime/requirements/embedded.txt

CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Parley needs Python 3.11 or later as $(PYTHON); name another one with make PYTHON=python3.12" >&2; exit 1; }

# Tests of one file share servers and worlds, so one process has them all (tests/conftest.py).
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# The tests start hundreds of processes of the same code: without cached bytecode each compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

# Programs of the system that an ordinary user's shell does not look for.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# Hashes must be those of the registry's own files, whatever mirror or wheel folder this host uses.
COMPILE := env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/pip-compile --quiet --no-config --upgrade \
	--generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: client archives package repository release released booted beside contained playbook audit sbom help docs screenshots demo test check lint bench soak fleets points chaos hostile described accuracy nightly lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(RUNTIME) ## three nodes that measure each other, and their page; CHECK=1 stops after one round
	@$(BIN)/parley lab demo $(if $(CHECK),--check)

test: $(DEVELOPMENT) ## the tests, with a real Postgres and real processes; ARGS="-k word" chooses, ARGS="-m ''" runs the longest, too
	@$(BIN)/python -m deploy.packages
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

check: lint ## what must hold before a commit: lint, format, types, layers, fast tests
	$(BIN)/python -m pytest --quiet $(PARALLEL) tests/architecture tests/unit

docs: $(DEVELOPMENT) ## the documentation: build/docs/html, and man pages in build/docs/man
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs build/docs/html
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder man docs build/docs/man
	$(BIN)/python -m deploy.manual build/docs/man

screenshots: $(DEVELOPMENT) ## the pictures of the page in the documentation, made anew (1 min)
	@$(BIN)/python -m deploy.packages
	$(BIN)/python -m pytest --quiet tests/acceptance/page/test_pictures.py -k each_view
	cp build/pictures/docs/* docs/static/page/

lint: $(DEVELOPMENT) ## lint, format, types, layers, spelling; the page's JavaScript, too, where there is npm
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	@$(BIN)/python -m deploy.page

soak: $(DEVELOPMENT) ## simulate many worlds with faults, seed by seed; SEEDS=10000 FIRST=1 SCENARIO=pools
	$(BIN)/python -m tests.soak --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),1) \
		$(if $(SCENARIO),--scenario $(SCENARIO))

fleets: $(DEVELOPMENT) ## shares, guarantees, deadlines of simulated fleets, ten seeds each; ARGS="leads --seeds 1"
	$(BIN)/python -m tests.fleets $(ARGS)

points: $(DEVELOPMENT) ## kill a process at each await point of what books, in simulated worlds; ARGS="--visits 3 --down 3 40"
	$(BIN)/python -m tests.points $(ARGS)

bench: $(DEVELOPMENT) ## benchmarks of real nodes, beside the last figures (35 min); ARGS="single claim" chooses, --small runs each through
	$(BIN)/python -m tests.bench $(ARGS)

accuracy: $(DEVELOPMENT) ## each test over WANs of known delay, loss and rate, and broken ones, as root (16 min); writes node/plugins/ACCURACY.md
	$(BIN)/python -m tests.accuracy $(ARGS)

chaos: $(DEVELOPMENT) ## 100,000 operations under kills, hangs, cuts, restores; ARGS="--operations 5000 --report FILE", or ARGS=--boots
	@$(BIN)/python -m deploy.packages
	$(BIN)/python -m tests.chaos $(ARGS)

described: $(DEVELOPMENT) ## schemathesis asks a real node for all that its API describes (3 min); ARGS="--seed 7 --examples 5"
	$(BIN)/python -m tests.described $(ARGS)

nightly: $(DEVELOPMENT) ## all long checks in small rounds, and a table of them (2 h); ARGS="chaos bench" chooses, --list prints
	@$(BIN)/python -m tests.nightly $(ARGS)

hostile: $(DEVELOPMENT) ## 21,000 hostile requests to three real nodes (4 min); ARGS="--seed 7 --only roles targets"
	$(BIN)/python -m tests.hostile $(ARGS)

client: $(DEVELOPMENT) ## the wheel of the Python client, into dist/
	$(BIN)/python -m deploy.client

archives: $(DEVELOPMENT) ## the wheels, the source distribution, and the archives of the source and of the role, into dist/
	$(BIN)/python -m deploy.archives

package: ## the Debian package, into dist/; as root it installs what the build needs; ARGS=--twice compares two builds
	@$(CHECK_PYTHON)
	$(PYTHON) -m deploy.package $(ARGS)

repository: ## signed repositories of the packages in dist/, for apt and dnf, into build/repository; KEY=FINGERPRINT
	$(PYTHON) -m deploy.repository --key $(KEY)

release: ## all of a release that needs no key of the project: builds, notes, checksums, the tag; says what is left
	@$(CHECK_PYTHON)
	$(PYTHON) -m deploy.release

released: ## the Debian package of the last release, from the history of this clone, into build/released
	@$(CHECK_PYTHON)
	$(PYTHON) -m deploy.released

booted: $(DEVELOPMENT) ## the package in two booted systemds, from install to purge, as root (8 min); needs make package released
	$(BIN)/python -m tests.booted $(ARGS)

beside: $(DEVELOPMENT) ## the last release and this program changed for each other, node and lead one by one (3 min)
	$(BIN)/python -m tests.releases.beside

contained: $(DEVELOPMENT) $(RELEASE) ## the images, built and run as two nodes by compose, as root (8 min); ARGS=--keep
	$(BIN)/python -m tests.contained $(ARGS)

playbook: $(DEVELOPMENT) ## the Ansible role on two booted systemds, as root (6 min); needs make package
	$(BIN)/python -m tests.booted.playbook $(ARGS)

audit: $(RELEASE) ## whether the locked packages have known faults; needs the registry's list of them
	$(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements.txt
	$(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements-build.txt
	$(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements-dev.txt

sbom: $(RELEASE) ## the list of all Python packages in each Debian package of dist/ (CycloneDX), beside it
	@set -e; for package in dist/parley_*.deb; do \
		rm -rf build/sbom; dpkg-deb --extract "$$package" build/sbom; \
		$(RELEASE)/bin/cyclonedx-py environment build/sbom/opt/parley --pyproject pyproject.toml \
			--output-reproducible --of JSON --validate --output-file "$${package%.deb}.cdx.json"; \
	done

lock: ## resolve pyproject.toml again into deploy/requirements*.txt and node/runtime/requirements (takes minutes)
	$(PYTHON) -m venv $(LOCKER)
	$(LOCKER)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip pip-tools
	$(COMPILE) --output-file deploy/requirements.txt pyproject.toml
	$(COMPILE) --only-build-deps --build-deps-for editable --build-deps-for wheel \
		--output-file deploy/requirements-build.txt pyproject.toml
	$(COMPILE) --all-extras --build-deps-for editable --constraint deploy/requirements.txt \
		--constraint deploy/requirements-build.txt --output-file deploy/requirements-dev.txt pyproject.toml
	$(COMPILE) --output-file deploy/requirements-release.txt deploy/requirements-release.in
	$(MAKE) $(DEVELOPMENT)
	$(BIN)/python -m deploy.extras

clean: ## remove the environment and everything else that was made here
	rm -rf $(ENVIRONMENT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .coverage
	rm -rf docs/generated
	find deploy docs lead node parley_client tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The development lock holds all of the other locks.
$(RUNTIME): $(LOCKS) pyproject.toml
	@$(CHECK_PYTHON)
	@$(PYTHON) -m deploy.environment $(ENVIRONMENT) $(LOCKS)
	@touch $@

$(DEVELOPMENT): deploy/requirements-dev.txt $(LOCKS) pyproject.toml
	@$(CHECK_PYTHON)
	@$(PYTHON) -m deploy.environment $(ENVIRONMENT) deploy/requirements-dev.txt
	@touch $(RUNTIME) $@

$(RELEASE): deploy/requirements-release.txt
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@
