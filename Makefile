# Everything a developer or operator does with the project; CONTRIBUTING.md explains the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := $(PYTHON) tests/peers/peers
BACKEND ?= cluster
# Tests start the same programs hundreds of times: a third of a start would be the compilation of the sources.
unexport PYTHONDONTWRITEBYTECODE
# Processes of `make test` and `make unit`. Most tests wait for servers and timers, so more than there are cores.
JOBS ?= 5
PARALLEL := --numprocesses $(JOBS) --dist loadscope --no-loadscope-reorder
# PySpark is published as sources only. The wheel that pip builds of them is unpacked at once: compressing its 450 MB
# takes longer than all the rest of the installation.
STORED := --config-settings=--build-option=--compression=stored
SOAK_SECONDS ?= 1800
RUN_DIR ?= build/demo
LISTEN ?= 127.0.0.1:8080

.PHONY: install run programs test unit compile pure compiled-test instructions protos check screenshots docs clients \
	acl-table limits conformance bench bench-publish faults soak contract crash bench-store dashboard attacks fuzz audit \
	lock exactness s3 scale bench-analytics analytics-demo analytics-package clean
.DEFAULT_GOAL := run

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile $(STORED) --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# The dependencies of a replica, without those of developers; a venv with everything will do as well.
$(VENV)/.runs: pyproject.toml deploy/requirements.lock deploy/build.lock
	test -f $(VENV)/.installed || ( \
	    $(PYTHON) -m venv $(VENV) && \
	    $(BIN)/python -m pip install --quiet --require-hashes -r deploy/requirements.lock -r deploy/build.lock && \
	    $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . )
	touch $@

# Everything on an embedded broker, with code to paste, until interrupted.
run: $(VENV)/.runs
	$(BIN)/gantry demo --dir $(RUN_DIR) --listen $(LISTEN)

# Programs of other languages for the tests. They are built first and one after the other, since tests wait for them with
# deadlines.
programs:
	$(PEERS) install-clients java-remoting java-remoting-494 java-grpc go-remoting go-grpc node-grpc python-grpc >/dev/null
	$(PEERS) install-archive >/dev/null
	$(PYTHON) -m tests.tools

# The whole suite. pip uses one processor, so that programs are built meanwhile.
test:
	$(MAKE) --no-print-directory --jobs=2 install programs
	$(BIN)/python -m pytest $(PARALLEL)

# Everything that is fast and needs only the Python environment: no Java, Go, Spark, browser or network.
unit: install
	$(BIN)/python -m pytest $(PARALLEL) -m "not external and not cluster and not slow"

# Compile the hot path in place with mypyc; changes of the sources take effect after the next compilation. `make pure`
# removes the compiled modules.
compile: install
	$(BIN)/python hatch_build.py

pure: install
	$(BIN)/python hatch_build.py --clean

# A compiled wheel, and the tests of the compiled rooms on its modules, in a copy of the sources; the build of the
# compiled image; also .ci/run with CI_COMPILED=1.
compiled-test: install
	$(BIN)/python -m tests.compiled.run
	GANTRY_PURE=0 $(BIN)/python -m pytest -q tests/deploy/test_container.py

# Counted instructions per message of the hot paths, against their bounds; needs valgrind.
instructions: install
	$(BIN)/python -m tests.benchmark.instructions

# The Python code of the .proto files.
protos: install
	$(BIN)/python -m protos.generate

check: install
	$(BIN)/python -m protos.generate --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.style.prose
	@echo "check: format, lint, types, layers and prose hold"

# The images of the live page in docs/images/live.
screenshots: install
	$(BIN)/python -m tests.proxy.admin.live.screenshots

# The documentation site in build/site: reference pages from the code, no dead links.
docs: install
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.build

# The matrix of official clients through the one port; BACKEND=embedded runs it without a cluster, VERSION=5.5.0 before
# servers of that version, TENANT=on in a namespace with topic aliases, ACL=on with users whom the backend keeps, and
# credentials of each client, PART=2/5 the second of five equal parts of the rows.
clients: install
	$(BIN)/python -m tests.clients.run --backend $(BACKEND) $(if $(VERSION),--version $(VERSION)) $(if $(PART),--part $(PART)) $(if $(filter on,$(TENANT)),--tenant) $(if $(filter on,$(ACL)),--acl)

# Each request with each kind of credential, through Gantry and the official Java proxy.
acl-table: install
	$(BIN)/python -m tests.acl_table.run

# Limits, codes and texts of the official Java proxy and of Gantry side by side.
limits: install
	$(BIN)/python -m tests.official_limits.run

# Outside judges of the gRPC transport (h2spec, grpc-go's interop client), with grpcio beside it.
conformance: install
	$(BIN)/python -m tests.conformance.run

# Against the compiled build; plots in build/bench.html. AUTH=on: brokers and proxies require credentials, and the loads
# sign. MATRIX=full: all sizes, numbers of clients, TLS and workers; hours. `make bench-publish` writes the figures into
# docs/benchmarks.md and README.md.
bench: compile
	$(BIN)/python -m tests.benchmark.run $(if $(filter on,$(AUTH)),--auth) $(if $(MATRIX),--matrix $(MATRIX))

bench-publish: compile
	$(BIN)/python -m tests.benchmark.publish

# Guarantees that hold while brokers, name servers, clients and replicas are killed.
faults: install
	$(BIN)/python -m pytest tests/faults

# Three replicas behind HAProxy under load for SOAK_SECONDS: no failed call, no lost or repeated message, flat memory,
# descriptors and tasks.
soak: install
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/faults/test_fleet.py -k soak

# The embedded broker and a real cluster, by the same scenarios and the same questions.
contract: install
	$(BIN)/python -m pytest -m contract tests/cluster

# The embedded broker killed under load, fifty times; then all that it has confirmed must hold.
crash: install
	$(BIN)/python -m tests.proxy.embedded.kill

# The embedded broker's figures beside the disk's; needs room for a log of 5 GiB.
bench-store: install
	$(BIN)/python -m tests.proxy.embedded.measure

# The pages of the official dashboard with the embedded broker behind it, or with CLUSTER=on before a real cluster;
# JAR: see tests/dashboard/README.md.
dashboard: install
	$(BIN)/python -m tests.dashboard.walk $(JAR) --images build/dashboard \
		$(if $(CLUSTER),--cluster) $(if $(STATIC),--static $(STATIC))

# Hostile clients beside good ones: one process, two workers, and before a real cluster.
attacks: install
	$(BIN)/python -m tests.attacks.run

# The property tests with many more examples; then a coverage-guided search in every parser of clients' bytes, for
# FUZZ_SECONDS each.
fuzz: install
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -m hypothesis --timeout 1200
	$(BIN)/python -m tests.fuzz.run

# Known vulnerabilities of dependencies, bills of materials in build/sbom, security rules. The former need the OSV database,
# that of the package index, or ADVISORIES=DIR, a clone of PyPA's advisory database.
audit: install
	$(BIN)/python -m tests.audit.run $(if $(ADVISORIES),--advisories $(ADVISORIES))

lock: install
	$(BIN)/uv pip compile --quiet --generate-hashes --extra dev --extra tracing --extra tokens --extra analytics --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header pyproject.toml -o requirements.lock
	# The packages of the image, at the same versions: those of a replica, and those that build it.
	$(BIN)/uv pip compile --quiet --generate-hashes --extra tracing --extra tokens --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header -c requirements.lock pyproject.toml -o deploy/requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header -c requirements.lock deploy/build.in -o deploy/build.lock

# Roll-ups, report tables and SQL against an independent count of many random sets of records.
exactness: install
	$(BIN)/python -m pytest tests/analytics -m complete

# Jobs of analytics, and the store of traffic records, with a real S3 server, which it installs into build/s3; needs Go
# and 3 GB of disk.
s3: install
	$(BIN)/python -m tests.analytics.s3

# Incremental roll-ups of 1, 10 and 100 days on a local Spark cluster with two workers.
scale: install
	$(BIN)/python -m tests.analytics.scale

# Spark, DuckDB and pandas over 1, 10 and 100 million generated records.
bench-analytics: install
	$(BIN)/python -m tests.analytics.benchmark

# From nothing to a page about traffic in the browser; fails if the detectors miss what was planted.
analytics-demo: install
	$(BIN)/gantry analytics demo build/analytics-demo

# The files for spark-submit: dist/gantry-analytics.py and, as --py-files, dist/gantry-analytics.zip.
analytics-package: install
	$(BIN)/python -m analytics.jobs.package dist

clean:
	rm -rf $(VENV) build dist
