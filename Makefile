# Everything sets itself up: the virtual environment is made on first use and again when
# pyproject.toml changes. Users get what they run; `make test` and the like add what developers need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEVELOP := $(VENV)/.develop
KERNEL := $(VENV)/.kernel
# Where the environment has Mercury from; other than these sources it is installed again.
FOUND := $(shell $(BIN)/python -Ic 'import mercury; print(mercury.__file__)' 2>/dev/null)
JAVA := command -v java >/dev/null || [ -n "$$JAVA_HOME" ]
# One line for each package that is fetched, so that nobody wonders what takes so long.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
SHOW := sed -un 's/^ *Downloading \([^ ]*\) \(([^)]*)\).*/  \1 \2/p; s/^Building wheel for \([^ ]*\).*/  building \1 …/p; /ERROR/p; s/^Installing collected.*/  installing: half a minute …/p'

.PHONY: lost demo test test-quick coverage check style types spelling lock docs proto release clean java kernel

demo: $(READY) $(KERNEL) java
	@rm -rf out/demo && mkdir -p out/demo
	@$(BIN)/mercury demo --bus embedded:out/demo/mercury.db

# Three at a time: much of a test run is waiting, for Java to start and for time to pass.
test: $(DEVELOP) $(KERNEL) java
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# All tests that do not start Java: without it, there is room for a fourth.
test-quick: $(DEVELOP) $(KERNEL)
	$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not jvm"

coverage: $(DEVELOP) $(KERNEL) java
	$(BIN)/python -m pytest -q -n 3 --dist loadfile \
		--cov=mercury --cov-report=term:skip-covered --cov-report=html:out/coverage

check: style types spelling

style: $(DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEVELOP)
	$(BIN)/mypy --strict src

spelling: $(DEVELOP)
	$(BIN)/codespell

# The versions that development and the hosted checks use; `make lock` renews them.
lock: $(DEVELOP)
	$(PIP) --quiet uv
	$(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --extra dev --output-file requirements-dev.lock pyproject.toml

proto: $(DEVELOP)
	$(BIN)/python -m grpc_tools.protoc -I src/mercury/wire --python_out=src/mercury/wire \
		--pyi_out=src/mercury/wire src/mercury/wire/mercury.proto

# Builds what is published and checks it; `git tag` and the upload stay a person's decision.
release: check test
	@git diff --quiet HEAD || { echo "commit first: a release is built from a commit" >&2; exit 1; }
	@rm -rf dist
	$(PIP) --quiet build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python -c 'from mercury import __version__ as v; print(f"dist/ holds version {v}: git tag v{v}, then twine upload dist/*")'

# Spark and Kafka need Java; without it everything else still runs, and says so.
java:
	@$(JAVA) || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing Java 17 for Spark …" >&2; \
			{ apt-get -qq update && apt-get -qq install -y openjdk-17-jdk-headless; } >/dev/null; \
		fi; } || true
	@$(JAVA) || echo "the data pipeline needs Java 17: apt-get install openjdk-17-jdk-headless" >&2

kernel: $(KERNEL)

# The matching engine's machine code is made once, so that no process has to make it while others wait.
$(KERNEL): $(READY) src/mercury/geo/machine_code.py $(wildcard src/mercury/matching/*.py src/mercury/roads/*.py)
	@echo "compiling the matching engine, once: about half a minute …" >&2
	@$(BIN)/python -c 'from mercury.matching import warm_up; warm_up()'
	@touch $@

# The documents as a site in out/site; what the code can tell is made from the code.
docs: $(DEVELOP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

ifneq ($(FOUND),$(realpath src/mercury/__init__.py))
$(READY): lost
endif

lost:

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Mercury needs Python 3.11 or later; set PYTHON=python3.11 or the like" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing Mercury with Spark into $(VENV), about 1 GB: a minute or two …" >&2
	@bash -o pipefail -c "$(PIP) --editable '.[pipeline]' | $(SHOW)" >&2
	@touch $@

$(DEVELOP): pyproject.toml requirements-dev.lock | $(READY)
	@echo "installing what developers need …" >&2
	@bash -o pipefail -c "$(PIP) --requirement requirements-dev.lock --editable '.[dev]' | $(SHOW)" >&2
	@touch $@

clean:
	rm -rf $(VENV) out build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
