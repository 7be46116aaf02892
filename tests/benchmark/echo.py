"""Compare bare gRPC servers: our transport, grpcio on the same event loop, grpc-go.

    python -m tests.benchmark.echo [--quick] [--subjects inprocess,grpcio,grpc-go]

Each server is one process, the client is the load generator. The exit code is 1 when our transport takes
20 µs of CPU time per request or more with 4 x 32 requests in flight, or more than grpc-go with 16 x 1.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.benchmark import generator
from tests.benchmark.comparison import RUN_WARMUP_SECONDS, describe, sample
from tests.benchmark.idle import peak_rss, raise_file_limit
from tests.benchmark.operations import Operation
from tests.benchmark.outcome import Found, Row, Sample, as_json, cpu_ratio, middle, number
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import HOST, ROOT, Attributes, BenchmarkError, end, end_on_sigterm, say
from tests.cluster.servers import accepts
from tests.ports import free_port

OURS, REFERENCE = "inprocess", "grpc-go"
SUBJECTS = (OURS, "immediate", "grpcio", REFERENCE)
MANY_IN_FLIGHT = Operation("echo", "", 4, 32, "send")
ONE_IN_FLIGHT = Operation("echo", "", 16, 1, "send")
STREAMED = Operation("echo-stream", "", 4, 8, "send")
UNARY_ONLY = {"immediate"}
"""Servers that differ from another in the unary method only."""
CASES = ((MANY_IN_FLIGHT, 300), (ONE_IN_FLIGHT, 300), (MANY_IN_FLIGHT, 4096), (ONE_IN_FLIGHT, 4096), (STREAMED, 300))
CPU_LIMIT_US = 20.0
IDLE_CONNECTIONS = 1000
IDLE_SECONDS = 3.0
READY_SECONDS = 20.0


@dataclass(frozen=True)
class Idle:
    """Cost of idle connections with one open stream."""

    subject: str
    connections: int
    bytes_per_connection: float


@dataclass(frozen=True)
class Outcome:
    """Measurements of the servers."""

    rows: list[Row]
    idle: list[Idle]

    @property
    def missed(self) -> list[str]:
        """Return the targets that our transport misses."""
        ours = self._cpu(MANY_IN_FLIGHT, OURS)
        one, reference = self._cpu(ONE_IN_FLIGHT, OURS), self._cpu(ONE_IN_FLIGHT, REFERENCE)
        found = []
        if ours is not None and ours >= CPU_LIMIT_US:
            found.append(f"echo 4 x 32: {ours:.1f} µs of CPU time per request, not below {CPU_LIMIT_US:.0f}")
        if one is not None and reference is not None and one > reference:
            found.append(f"echo 16 x 1: {one:.1f} µs of CPU time per request, more than grpc-go's {reference:.1f}")
        return found

    def _cpu(self, operation: Operation, subject: str, size: int = 300) -> float | None:
        found = Found(self.rows).sample(operation, size, subject)
        return found.cpu_us_per_message if found else None

    def as_json(self) -> list[dict[str, object]]:
        """Return the rows in the form of the output file."""
        return [*map(as_json, self.rows), *({"operation": "echo-idle", **vars(one)} for one in self.idle)]

    def closing_line(self) -> str:
        """Return the figures of the targets."""
        parts = []
        for operation in (MANY_IN_FLIGHT, ONE_IN_FLIGHT):
            each = ((name, self._cpu(operation, name)) for name in SUBJECTS)
            figures = ", ".join(f"{name} {cpu:.1f}" for name, cpu in each if cpu is not None)
            parts.append(f"{operation.clients} x {operation.window} µs/request: {figures}")
        if self.idle:
            memory = ", ".join(f"{one.subject} {one.bytes_per_connection / 1000:.1f}" for one in self.idle)
            parts.append(f"kB per idle connection: {memory}")
        return "; ".join(parts)

    def table(self) -> str:
        """Return the rows as Markdown tables."""
        known = Found(self.rows)
        lines = [
            "| echo | bytes | clients | server | CPU µs/message | of grpc-go's | messages/s | p50 ms | p99 ms "
            "| RSS MB |",
            "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            operation, size = row.operation, row.size
            cells = _cells(row.sample, known.sample(operation, size, REFERENCE)) if row.sample else row.remark
            clients = f"{operation.clients} x {operation.window}"
            lines.append(f"| {operation.name} | {size} | {clients} | {row.subject} | {cells} |")
        lines += ["", "| server | idle connections | bytes each |", "|---|---:|---:|"]
        lines += [f"| {one.subject} | {one.connections} | {one.bytes_per_connection:.0f} |" for one in self.idle]
        return "\n".join(lines)


def _cells(found: Sample, reference: Sample | None) -> str:
    return " | ".join(
        (
            number(found.cpu_us_per_message, 1),
            number(cpu_ratio(found, reference), 2),
            number(found.messages_per_second, 0),
            number(found.p50_ms, 2),
            number(found.p99_ms, 2),
            number(found.rss_mb, 0),
        )
    )


@contextmanager
def server(name: str) -> Iterator[Attributes]:
    """Start one of the servers; it is ready when it accepts a connection."""
    port = free_port()
    address = f"{HOST}:{port}"
    if name == REFERENCE:
        words = [str(generator.PROGRAM), "echo-serve", "--endpoint", address]
    else:
        words = [sys.executable, "-m", "tests.benchmark.echo_server", name, address]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not accepts(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    tail = log.read().decode(errors="replace").strip()[-2000:]
                    raise BenchmarkError(f"the {name} echo server did not get ready:\n{tail}")
                time.sleep(0.05)
            yield Attributes(name, "", "", process.pid, address)
        finally:
            end(process)


def measure(rounds: int, seconds: float, names: tuple[str, ...] = SUBJECTS) -> Outcome:
    """Run all cases against all servers in turns; the load generator is built first."""
    with ExitStack() as stack:
        subjects = [stack.enter_context(server(name)) for name in names]
        rows = [row for operation, size in CASES for row in _compare(operation, size, subjects, rounds, seconds)]
    return Outcome(rows, [_idle(name) for name in names if name not in UNARY_ONLY])


def _compare(operation: Operation, size: int, subjects: list[Attributes], rounds: int, seconds: float) -> list[Row]:
    if operation is STREAMED:
        subjects = [subject for subject in subjects if subject.name not in UNARY_ONLY]
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for round_number in range(rounds):
        turn = round_number % len(subjects)
        for subject in subjects[turn:] + subjects[:turn]:
            samples[subject.name].append(_run(operation, size, subject, seconds))
    return [Row(operation, size, subject.name, middle(samples[subject.name])) for subject in subjects]


def _run(operation: Operation, size: int, subject: Attributes, seconds: float) -> Sample:
    assert subject.pid
    before = cpu_seconds(subject.pid)
    clients = {"connections": operation.clients, "window": operation.window}
    result = generator.run(operation.name, subject, size=size, seconds=seconds, warmup=RUN_WARMUP_SECONDS, **clients)
    result.checked(f"{operation.name} of {subject.name}")
    found = sample(result, subject, cpu_seconds(subject.pid) - before)
    where = f"{operation.name} {size} {operation.clients} x {operation.window} {subject.name}"
    say(f"{where}: {describe(found)}", progress=True)
    return found


def _idle(name: str) -> Idle:
    """Return the growth of a fresh server that has answered calls before."""
    raise_file_limit(IDLE_CONNECTIONS)
    with server(name) as subject:
        assert subject.pid
        generator.run("echo", subject, size=300, seconds=0.5, connections=16, window=1).checked(f"warming {name}")
        before = rss_mb(subject.pid)
        options = {"connections": IDLE_CONNECTIONS, "seconds": IDLE_SECONDS}
        with generator.started("echo-idle", subject, size=300, **options) as process:
            peak = peak_rss(process, subject.pid)
            output, errors = process.communicate()
    if not output:
        raise BenchmarkError(f"the load generator failed: {errors.strip()}")
    generator.parse(output).checked(f"idle connections of {name}")
    found = Idle(name, IDLE_CONNECTIONS, round((peak - before) * 1e6 / IDLE_CONNECTIONS))
    say(f"idle {name}: {found.bytes_per_connection:.0f} bytes per connection", progress=True)
    return found


def main() -> int:
    """Run the echo benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmark.echo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measured run (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one round; only errors make it fail")
    args = parser.parse_args()
    end_on_sigterm()
    rounds, seconds = (1, 1.0) if args.quick else (args.rounds, args.seconds)
    try:
        generator.build()
        found = measure(rounds, seconds, tuple(name for name in SUBJECTS if name in args.subjects.split(",")))
    except BenchmarkError as error:
        say(f"benchmark: {error}", progress=True)
        return 2
    say(found.table() + "\n")
    for text in found.missed:
        say(f"FAILED {text}")
    say(found.closing_line())
    return 1 if found.missed and not args.quick else 0


if __name__ == "__main__":
    sys.exit(main())
