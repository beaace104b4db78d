# Everything sets itself up: the virtual environment is made on first use and again when
# pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check style types spelling docs proto clean java kernel

demo: $(READY) java kernel
	@rm -rf out/demo && mkdir -p out/demo
	$(BIN)/mercury up --config examples/city.toml --bus embedded:out/demo/mercury.db \
		--vehicles 1500 --event 2000,2000,100 --event-kind collision --event-after 12 \
		--jam 1000,3000,600 --jam-after 20 --for 60

# Three at a time: much of a test run is waiting, for Java to start and for time to pass.
test: $(READY) java kernel
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

check: style types spelling

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy --strict src

spelling: $(READY)
	$(BIN)/codespell

# Spark and Kafka need Java; without it everything else still runs, and says so.
java:
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing Java 17 for Spark" >&2; \
			{ apt-get -qq update && apt-get -qq install -y openjdk-17-jdk-headless; } >/dev/null; \
		fi; } || true
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || \
		echo "the data pipeline needs Java 17: apt-get install openjdk-17-jdk-headless" >&2

# The matching engine's machine code is made once, so that no process has to make it while others wait.
kernel: $(READY)
	@$(BIN)/python -c 'from mercury.matcher.hub import warm_up; warm_up()'

# The documents as a site in out/site; what the code can tell is made from the code.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

proto: $(READY)
	$(BIN)/python -m grpc_tools.protoc -I src/mercury/wire --python_out=src/mercury/wire \
		--pyi_out=src/mercury/wire src/mercury/wire/mercury.proto

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Mercury needs Python 3.11 or later; set PYTHON=python3.11 or the like" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
