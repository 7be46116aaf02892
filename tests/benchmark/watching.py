"""Cost of observation: Gantry with all observability and rules on, beside Gantry with them off.

On: traffic records, the admin API with the live page polled each second, metrics scraped every five seconds, traces of
one request in a hundred, JSON logs, a rules file whose rules let everything pass. Metrics are counted in both; they
cannot be turned off.
"""

import contextlib
import json
import shlex
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

from tests.benchmark import generator
from tests.benchmark.processes import cpu_seconds
from tests.benchmark.servers import HOST, Attributes, BenchmarkError, Kit, gantry, say
from tests.ports import free_port

MAX_LOST = 0.15
"""The share of throughput that all of it may cost."""
OPERATIONS = (("send-sync", 16, 1), ("send-async", 4, 32), ("pull", 4, 1), ("grpc-send-async", 4, 32))
SUBJECTS = ("off", "on")
_SIZE = 300
_STORED = 20_000
_WARM_UP = 20_000

_OFF = """
[admin]
listen = "off"
"""
_ON = """
[admin]
listen = "{admin}"
[logs]
format = "json"
[traffic]
directory = "{directory}/traffic"
interval = 10.0
[tracing]
endpoint = "{collector}"
share = 0.01
[rules]
file = "{directory}/rules.toml"
"""
# None of these rules matches the load.
RULES = """
[[rule]]
name = "private"
kind = "deny"
match.topics = ["salaries-*"]

[[rule]]
name = "per-client"
kind = "limit"
messages = 10_000_000
per = ["client"]
match.actions = ["Pub"]

[[rule]]
name = "closed"
kind = "maintenance"
match.topics = ["invoices"]
"""


@dataclass(frozen=True)
class Row:
    """One operation: messages per second, CPU time per message in µs and p99 in ms, off and on; medians."""

    operation: str
    clients: int
    window: int
    rate: dict[str, float]
    cpu: dict[str, float]
    p99: dict[str, float]

    @property
    def kept(self) -> float:
        """Return the remaining share of the throughput."""
        return self.rate["on"] / self.rate["off"]


@dataclass(frozen=True)
class Outcome:
    """All operations."""

    rows: list[Row]

    @property
    def missed(self) -> list[str]:
        """Return the operations above the limit."""
        return [
            f"watching {row.operation}: {1 - row.kept:.0%} of the throughput, over {MAX_LOST:.0%}"
            for row in self.rows
            if 1 - row.kept > MAX_LOST
        ]

    def as_json(self) -> list[dict[str, object]]:
        """Return the rows in the form of the output file."""
        return [{**vars(row), "kept": round(row.kept, 3)} for row in self.rows]

    def closing_line(self) -> str:
        """Return the figures of the target."""
        return "throughput kept: " + ", ".join(f"{row.operation} {row.kept:.2f}" for row in self.rows)

    def table(self) -> str:
        """Return the rows as a Markdown table."""
        lines = [
            "| watching | clients | messages/s off | on | kept | CPU µs/message off | on | p99 ms off | on |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            pairs = [f"{row.cpu['off']:.1f} | {row.cpu['on']:.1f}", f"{row.p99['off']:.2f} | {row.p99['on']:.2f}"]
            lines.append(
                f"| {row.operation} | {row.clients} x {row.window} | {row.rate['off']:.0f} | {row.rate['on']:.0f} "
                f"| {row.kept:.2f} | {' | '.join(pairs)} |"
            )
        return "\n".join(lines)


def measure(running: Kit, command: str, rounds: int, seconds: float) -> Outcome:
    """Run all operations against both in turns; the load generator is built first."""
    running.add_topic("watching")
    running.add_group("watching")
    stored = generator.run("send-async", running.subjects["none"], topic="watching", size=_SIZE, messages=_STORED)
    stored.checked("storing messages")
    with ExitStack() as stack:
        subjects = {
            "off": stack.enter_context(_gantry(running, command, "off", _OFF)),
            "on": stack.enter_context(_watched(running, command)),
        }
        for subject in subjects.values():
            for operation in OPERATIONS:
                _load(running, subject, operation, messages=_WARM_UP)
        return Outcome([_compare(running, subjects, operation, rounds, seconds) for operation in OPERATIONS])


def _compare(
    running: Kit, subjects: dict[str, Attributes], operation: tuple[str, int, int], rounds: int, seconds: float
) -> Row:
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SUBJECTS}
    for number in range(rounds):
        for name in SUBJECTS if number % 2 else SUBJECTS[::-1]:
            subject = subjects[name]
            assert subject.pid is not None
            before = cpu_seconds(subject.pid)
            result = _load(running, subject, operation, seconds=seconds, warmup=0.5)
            cpu = (cpu_seconds(subject.pid) - before) * 1e6 / max(1, result.all_messages)
            say(f"{operation[0]} {name}: {result.messages_per_second:.0f}/s, {cpu:.1f} µs", progress=True)
            found[name].append((result.messages_per_second, cpu, result.latency.p99))
    rate, cpu_us, p99 = (
        {name: round(median(one[place] for one in found[name]), 2) for name in SUBJECTS} for place in range(3)
    )
    return Row(*operation, rate, cpu_us, p99)


def _load(running: Kit, subject: Attributes, operation: tuple[str, int, int], **limits: float) -> generator.Result:
    name, clients, window = operation
    result = generator.run(
        name, subject, topic="watching", group="watching", size=_SIZE, connections=clients, window=window, **limits
    )
    return result.checked(f"{name} {subject.name}")


@contextmanager
def _gantry(running: Kit, command: str, name: str, settings: str) -> Iterator[Attributes]:
    file = running.directory / f"{name}.toml"
    file.write_text(settings)
    with gantry(running, f"{command} --config {shlex.quote(str(file))}") as subject:
        yield subject


@contextmanager
def _watched(running: Kit, command: str) -> Iterator[Attributes]:
    """Start Gantry with everything on, and the clients of its observability."""
    admin = f"{HOST}:{free_port()}"
    (running.directory / "rules.toml").write_text(RULES)
    with _collector() as collector:
        settings = _ON.format(admin=admin, directory=running.directory, collector=collector)
        with _gantry(running, command, "on", settings) as subject, _looking(admin):
            yield subject
        written = sum(file.stat().st_size for file in Path(running.directory, "traffic").rglob("*.parquet"))
        if not written:
            raise BenchmarkError("no traffic records were written: nothing was measured")


@contextmanager
def _looking(admin: str) -> Iterator[None]:
    """Poll as a browser with the live page and as Prometheus."""
    over = threading.Event()
    looked = [0]

    def look() -> None:
        turn = since = 0
        while not over.wait(1.0):
            with contextlib.suppress(OSError):
                # The page requests only the seconds that it lacks.
                for second in json.loads(_read(f"http://{admin}/v1/live?since={since}"))["seconds"]:
                    since = second["at"]
                if turn % 5 == 0:
                    looked[0] += bool(_read(f"http://{admin}/metrics"))
            turn += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if not looked[0]:
        raise BenchmarkError("the admin API never answered: nothing was measured")


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def _collector() -> Iterator[str]:
    """Serve a collector that discards spans."""

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, 0), Take)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
