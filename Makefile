# All commands of this repository. `make help` lists the targets. Each target first installs into .venv.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PYTEST_ARGS ?=
CHAOS_ARGS ?=
PULSAR_CHAOS_ARGS ?=
SURFACE_ARGS ?= --steps 20000
POWER_ARGS ?=
MUTANTS_ARGS ?=
FUZZ_ARGS ?=
VERSIONS_ARGS ?=
PEERS_ARGS ?=

# The first Python that is 3.11 or newer. `make venv PYTHON=/path/to/python3` selects another one.
PYTHON ?=
define FIND_PYTHON
python=""; \
for candidate in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11; do \
  if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    python="$$candidate"; break; \
  fi; \
done; \
if [ -z "$$python" ]; then \
  echo "txnsegment needs Python 3.11 or newer; found: $$(python3 --version 2>&1 || true)." >&2; \
  echo "Install it (Debian, Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
fi; \
if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
  echo "$$python cannot make virtual environments." >&2; \
  echo "Install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; \
fi
endef

# Spark needs Java 17 or newer; the same check as txnsegment/java.py, before the installation.
define CHECK_JAVA
java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
if ! found="$$("$$java" -version 2>&1)"; then \
  echo "Spark needs Java 17 or newer, and $$java cannot be run." >&2; \
  echo "Install it (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to where it is." >&2; exit 1; \
fi; \
major="$$(sed -n 's/.*version "\([0-9]*\)[."-].*/\1/p' <<<"$$found" | head -n 1)"; \
if [ "$${major:-0}" -lt 17 ]; then \
  echo "Spark needs Java 17 or newer; $$java is: $$(head -n 1 <<<"$$found")." >&2; \
  echo "Install it (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to a newer one." >&2; exit 1; \
fi
endef

# A Pulsar broker comes from Maven's registry; the tests compile Java clients. The same check as conformance/pulsar_jars.py.
define CHECK_MAVEN
for program in mvn javac; do \
  if ! command -v "$$program" >/dev/null; then \
    echo "make $@ needs Maven and a JDK, and there is no $$program on PATH." >&2; \
    echo "Install them (Debian, Ubuntu: apt install maven openjdk-17-jdk-headless)." >&2; exit 1; \
  fi; \
done
endef

# VersityGW is built from its Go module. The same check as conformance/object_stores.py.
define CHECK_GO
if ! command -v versitygw >/dev/null && ! command -v go >/dev/null; then \
  echo "make $@ needs Go, which builds the object store VersityGW, and there is no go on PATH." >&2; \
  echo "Install Go 1.25 or newer, or put a versitygw on PATH." >&2; exit 1; \
fi
endef

# `make browser` drives a real Chromium. The same search as tests/support/browser.py.
define CHECK_CHROMIUM
found=""; \
for candidate in "$${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do \
  if [ -n "$$candidate" ] && command -v "$$candidate" >/dev/null; then found="$$candidate"; break; fi; \
done; \
if [ -z "$$found" ]; then \
  echo "make $@ needs Chromium, and there is none on PATH." >&2; \
  echo "Install it (Debian, Ubuntu: apt install chromium), or name it: make $@ CHROMIUM=/path/to/chromium" >&2; exit 1; \
fi
endef

# Tests make thousands of clusters and flush each of their files. In a file system in memory, if it has room, they take a third of the
# time. TMPDIR selects another place.
define FILES_IN_MEMORY
if [ -z "$${TMPDIR:-}" ] && [ -w /dev/shm ] && ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts \
  && [ "$$(df -Pk /dev/shm | sed -n '2s/  */ /gp' | cut -d ' ' -f 4)" -ge 4194304 ]; then export TMPDIR=/dev/shm; fi
endef

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

.PHONY: venv
venv: $(STAMP)  ## create the environment in .venv and install into it; repeated when pyproject.toml changes

$(STAMP): pyproject.toml
	@$(FIND_PYTHON); $(CHECK_JAVA); \
	echo "Making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV)
	@echo "Installing txnsegment and what it needs into $(VENV): 1 to 3 minutes"
	@quiet=--quiet; if [ -t 1 ]; then quiet=; fi; set -x; \
	$(BIN)/python -m pip install $$quiet --disable-pip-version-check -e '.[dev,demo]'
	@touch $@

.PHONY: lint
lint: venv  ## check style, formatting, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests that need no Spark, no ZooKeeper and no other process: rules, records, golden scripts, files, options, hostile input.
PURE := tests/scripts $(filter-out %_processes.py,$(wildcard tests/ledgers/test_*.py tests/metadata/common/test_*.py)) tests/conformance/history tests/spark_txn_source/test_reading_rules.py \
  $(addprefix tests/spark_txn_source/test_,options_page.py option_values.py source_options.py) \
  tests/spark_txn_sink/test_sink_options.py tests/metadata/store/test_memory.py tests/pulsar/test_captured_records.py \
  $(addprefix tests/metadata/,cursors log read records rules maintenance/test_scaling.py maintenance/test_sweeping.py \
  maintenance/test_torn_trims.py maintenance/test_trimming.py cluster/test_elapsed.py topics \
  write/test_round_trips.py instream/test_instream_rules.py)

.PHONY: check
check: venv lint  ## lint, then the tests that need no other process (90 seconds)
	@$(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -q -n 2 $(PURE) $(PYTEST_ARGS)

# Three processes on two cores: about a quarter of the time each test process waits for a server, a driver or a process it started.
.PHONY: test
test: venv lint  ## lint, then all tests but those of make pulsar, make objects and make browser
	@$(FILES_IN_MEMORY); \
	echo "Left out: tests that need a Pulsar broker (make pulsar), an object store (make objects) or Chromium (make browser)."; set -x; \
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not pulsar and not objects and not browser" $(PYTEST_ARGS)

# Playwright is installed by these targets alone. It drives the browser of the machine and downloads none.
INSTALL_PLAYWRIGHT := $(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]'

.PHONY: browser
browser: venv  ## test the web page of txnsegment ui in a real headless Chromium (docs/ui.md)
	@$(CHECK_CHROMIUM); export CHROMIUM="$$found"; $(INSTALL_PLAYWRIGHT); $(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -m browser tests/txnsegment/ui $(PYTEST_ARGS)

.PHONY: screenshots
screenshots: venv  ## take the screenshots of docs/ui.md again, of a live cluster in a real Chromium
	@$(CHECK_CHROMIUM); export CHROMIUM="$$found"; $(INSTALL_PLAYWRIGHT); \
	$(BIN)/python docs/screenshots.py

.PHONY: pulsar
pulsar: venv  ## run the tests that need a real Pulsar 5 broker, which Maven downloads (docs/pulsar.md)
	@$(CHECK_MAVEN); $(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "pulsar and not chaos" $(PYTEST_ARGS)

# The first run builds VersityGW (some five minutes). Later runs find it in the user's cache.
.PHONY: objects
objects: venv  ## run the tests that need a real object store, which Go builds, and the jars of s3a (docs/deployment.md)
	@$(CHECK_GO); $(CHECK_MAVEN); $(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m objects tests/objects $(PYTEST_ARGS)

.PHONY: properties
properties: venv  ## run the property tests with new random inputs (make test always uses the same ones)
	@$(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile new-draws $(PYTEST_ARGS)

.PHONY: versions
versions: venv  ## run most tests with the oldest, then with the newest versions of all dependencies (VERSIONS_ARGS=--help)
	@$(FILES_IN_MEMORY); $(BIN)/python -m tests.versions $(VERSIONS_ARGS)

.PHONY: fuzz
fuzz: venv  ## fuzz all parsers of untrusted input, guided by coverage, a minute for each target (FUZZ_ARGS=--help; Linux x86-64)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]' || true
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

.PHONY: scripts
scripts: venv  ## rewrite the answers of the golden scripts in tests/scripts; review them with git diff
	$(BIN)/python -m conformance.scripts --rewrite

.PHONY: quickstart
quickstart: venv  ## run the quick start of README.md and compare its output
	$(BIN)/python docs/readme.py quickstart

.PHONY: demo
demo: venv  ## stream a year of flights through a driver that is killed in the middle of a commit
	$(BIN)/python examples/flights.py

.PHONY: examples
examples: venv  ## run a stream and a scheduled job with transactions over several topics, kill them, count every row (long)
	$(BIN)/python examples/split_flights.py
	$(BIN)/python examples/etl_killed.py

.PHONY: bench
bench: venv  ## measure the figures of docs/speed.md again (long)
	$(BIN)/python -m benchmarks

.PHONY: peers
peers: venv  ## measure txnsegment beside Kafka, Delta and Parquet, 4 M rows, three rounds (hours; needs Maven; PEERS_ARGS=--help)
	$(BIN)/python -m benchmarks.peers $(PEERS_ARGS)

.PHONY: longevity
longevity: venv  ## run streams, consumers and a sweeper for two hours and check that memory, descriptors and threads stay flat (long)
	$(BIN)/python -m benchmarks.longevity --minutes 120 --out out/longevity

.PHONY: soak
soak: venv  ## simulate a million schedules, 400,000 wide ones and 20,000 with migrations; exhaustive search; properties (long)
	@echo "$$(date -u +%F) $$(git describe --always --dirty) $$(nproc) cores"
	$(BIN)/python -m conformance --simulate 1000000 --seed 0 --cores $$(nproc)
	$(BIN)/python -m conformance --simulate 400000 --seed 0 --kind wide --cores $$(nproc)
	$(BIN)/python -m conformance --simulate 20000 --seed 0 --kind migrating --cores $$(nproc)
	$(BIN)/python -m conformance --exhaustive --cores $$(nproc)
	$(MAKE) properties

.PHONY: power
power: venv  ## simulate power cuts at every crash point of all code that writes files (POWER_ARGS=--help)
	$(BIN)/python -m conformance.power $(POWER_ARGS)

.PHONY: chaos
chaos: venv power  ## power cuts, SIGKILL at every store call on SQLite and ZooKeeper, 100 faults on a real cluster (long; CHAOS_ARGS=--help)
	$(BIN)/python -m conformance.scenarios $(CHAOS_ARGS)

.PHONY: pulsar-chaos
pulsar-chaos: venv  ## kill Spark programs and the broker of a Pulsar stream, split segments, eight writers (long; PULSAR_CHAOS_ARGS=--help)
	@$(CHECK_MAVEN); $(FILES_IN_MEMORY); set -x; \
	$(BIN)/python -m pytest -m chaos && \
	$(BIN)/python -m conformance.pulsar_chaos $(PULSAR_CHAOS_ARGS)

.PHONY: surface
surface: venv  ## call the public API at random and compare with a model (SURFACE_ARGS="--steps N --seed S --store zookeeper")
	$(BIN)/python -m conformance.surface $(SURFACE_ARGS)

.PHONY: mutants
mutants: venv  ## plant every fault of the catalogue in the real code and show which suite detects it (MUTANTS_ARGS=--help)
	$(BIN)/python -m conformance --mutants --cores $$(nproc) $(MUTANTS_ARGS)

.PHONY: docs
docs: venv  ## write the pages that are generated from the code
	$(BIN)/python docs/generate.py

# Zensical is installed by this target alone.
.PHONY: site
site: venv  ## build the site of the documentation into out/site; dead links and missing anchors are errors
	@$(BIN)/python -c 'import zensical' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	$(BIN)/python docs/website.py

.PHONY: wheel
wheel: venv  ## build the wheel into dist/
	$(BIN)/python -m build --wheel

.PHONY: clean
clean:  ## remove all generated files
	rm -rf $(VENV) build dist out *.egg-info spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
