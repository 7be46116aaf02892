"""The load generator: builds the Go program in load/ and runs it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmark.servers import ROOT, Attributes, BenchmarkError

SOURCE = Path(__file__).resolve().parent / "load"
PROGRAM = ROOT / "build" / "benchmark" / "load"


@dataclass(frozen=True)
class Latency:
    """A distribution of latencies in milliseconds."""

    p50: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class Result:
    """Measurements of one run of the generator."""

    messages: int
    all_messages: int
    """The messages of the warm-up and of the end included."""
    seconds: float
    messages_per_second: float
    latency: Latency
    cpu_seconds: float
    errors: int
    first_error: str
    counts: dict[str, int] = field(default_factory=dict)
    pop_latency: Latency | None = None

    def checked(self, what: str) -> "Result":
        """Return the result. Raises an exception if there were errors."""
        if self.errors:
            raise BenchmarkError(f"{what}: {self.errors} errors, the first: {self.first_error}")
        return self


def build() -> None:
    """Build the generator; Go reuses unchanged objects."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["go", "build", "-o", str(PROGRAM), "."], cwd=SOURCE, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(f"the load generator needs Go and could not be built: {error}") from error


def run(operation: str, subject: Attributes, **options: str | float) -> Result:
    """Run one load to its end."""
    with started(operation, subject, **options) as process:
        output, errors = process.communicate()
    if not output:
        raise BenchmarkError(f"the load generator failed: {errors.strip()}")
    return parse(output)


@contextmanager
def started(operation: str, subject: Attributes, **options: str | float) -> Iterator[subprocess.Popen[str]]:
    """Run one load in the background; end it when the block is left."""
    command = [str(PROGRAM), operation, *_addresses(operation, subject)]
    for name, value in options.items():
        command.append(f"--{name.replace('_', '-')}={value}")
    if subject.name == "haproxy" and not operation.startswith("grpc-"):
        # The route has the broker's address; the relay is in front of it.
        command.append("--dial-endpoint")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _addresses(operation: str, subject: Attributes) -> list[str]:
    if operation.startswith(("grpc-", "echo")):
        return ["--endpoint", subject.grpc]
    return ["--namesrv", subject.route, "--endpoint", subject.data]


def parse(line: str) -> Result:
    """Parse the generator's line of JSON."""
    found: dict[str, Any] = json.loads(line)
    pops = found.get("pop_latency_ms")
    return Result(
        messages=found["messages"],
        all_messages=found["all_messages"],
        seconds=found["seconds"],
        messages_per_second=found["messages_per_second"],
        latency=_latency(found["latency_ms"]),
        cpu_seconds=found["cpu_seconds"],
        errors=found["errors"],
        first_error=found["first_error"],
        counts=found.get("counts", {}),
        pop_latency=_latency(pops) if pops else None,
    )


def _latency(found: dict[str, Any]) -> Latency:
    return Latency(found["p50"], found["p99"], found["p99_9"], found["max"])
