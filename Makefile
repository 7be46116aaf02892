# Everything a developer or operator does with the project; CONTRIBUTING.md explains the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := $(PYTHON) tests/peers/peers
BACKEND ?= cluster
RUN_DIR ?= build/demo
LISTEN ?= 127.0.0.1:8080

.PHONY: install run test check protos clients conformance bench faults fuzz lock clean
.DEFAULT_GOAL := run

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# Everything on an embedded broker, with code to paste, until interrupted.
run: install
	$(BIN)/gantry demo --dir $(RUN_DIR) --listen $(LISTEN)

test: install
	$(BIN)/python -m pytest

# The Python code of the .proto files.
protos: install
	$(BIN)/python -m protos.generate

check: install
	$(BIN)/python -m protos.generate --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@echo "check: format, lint, types and layers hold"

# The matrix of official clients through the one port; BACKEND=embedded runs it without a cluster.
clients: install
	$(BIN)/python -m tests.clients.run --backend $(BACKEND)

# Outside judges of the gRPC transport (h2spec, grpc-go's interop client), with grpcio beside it.
conformance: install
	$(BIN)/python -m tests.conformance.run

bench: install
	$(BIN)/python -m tests.benchmark.run

# What must survive brokers, name servers, clients and replicas that are killed.
faults: install
	$(BIN)/python -m pytest tests/faults

fuzz: install
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -m hypothesis --timeout 1200

lock: install
	$(BIN)/uv pip compile --quiet --generate-hashes --extra dev --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 --no-header pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist
