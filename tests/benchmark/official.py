"""Official clients as the load: CPU time of the proxy per message."""

import json
import subprocess
import sys
from dataclasses import dataclass

from tests.benchmark.operations import GRPC_CPU_RATIO, REMOTING_CPU_RATIO, Aims, Operation
from tests.benchmark.outcome import Row, Sample, middle
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import PEERS, Attributes, Kit, say

IN_FLIGHT = 64
SIZE = 256
TOPIC = "official"
RECEIVERS = 4
_TIMEOUT = 120


@dataclass(frozen=True)
class Load:
    """A program of the kit: client, action, mode of consumers."""

    client: str
    action: str
    mode: str = "push"

    @property
    def name(self) -> str:
        """The name of the operation."""
        words = [self.client, self.action.removeprefix("bench-")]
        return "-".join(words + ([self.mode] if self.action == "bench-consume" else []))

    @property
    def operation(self) -> Operation:
        """The load as an operation; its messages per second depend on the client more than on the proxy."""
        ratio = GRPC_CPU_RATIO if self.client.endswith("grpc") else REMOTING_CPU_RATIO
        return Operation(self.name, "", 1, IN_FLIGHT, "send", aims=Aims(cpu_ratio=ratio))


LOADS = (
    Load("java-remoting", "bench-send"),
    Load("java-remoting", "bench-consume"),
    Load("java-grpc", "bench-send"),
    Load("go-grpc", "bench-send"),
    Load("java-grpc", "bench-consume"),
    Load("java-grpc", "bench-consume", "simple"),
)


def measure(running: Kit, subjects: list[Attributes], rounds: int, messages: int) -> tuple[list[Row], list[str]]:
    """Run all clients against the subjects in turns; return the rows, and errors before Gantry."""
    running.add_topic(TOPIC)
    rows, failures = [], []
    for load in LOADS:
        samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
        remarks: dict[str, str] = {}
        for number in range(rounds):
            for subject in subjects if number % 2 else subjects[::-1]:
                try:
                    samples[subject.name].append(_run(running, load, subject, messages))
                except _Failed as error:
                    remarks[subject.name] = str(error)
                    if subject.name == "gantry":
                        failures.append(f"{load.name}: {error}")
                    say(f"{load.name} {subject.name}: {error}", progress=True)
        for name, found in samples.items():
            sample = middle(found) if found else None
            rows.append(Row(load.operation, SIZE, name, sample, remarks.get(name, "")))
    return rows, failures


class _Failed(Exception):
    """A client that met errors."""


def _run(running: Kit, load: Load, subject: Attributes, messages: int) -> Sample:
    assert subject.pid
    group = f"official-{load.name}-{subject.name}"
    running.add_group(group)
    before, broker = cpu_seconds(subject.pid), cpu_seconds(running.broker_pid)
    endpoint = subject.grpc if "grpc" in load.client else subject.route
    words = [sys.executable, str(PEERS), "client", load.client, load.action, str(messages), "--endpoint", endpoint]
    words += ["--topic", TOPIC, "--group", group, "--mode", load.mode, "--size", str(SIZE), "--timeout", str(_TIMEOUT)]
    words += ["--concurrency", str(IN_FLIGHT), *(["--receivers", str(RECEIVERS)] if load.mode == "simple" else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * _TIMEOUT, check=False)
    spent, broker_spent = cpu_seconds(subject.pid) - before, cpu_seconds(running.broker_pid) - broker
    lines = done.stdout.splitlines()
    if not lines:
        raise _Failed(done.stderr.strip()[-300:] or "no result")
    result = json.loads(lines[-1])
    count = result.get("messages") or 0
    if result.get("error") or result.get("failures") or not count:
        raise _Failed(str(result.get("error") or f"{result.get('failures')} failures"))
    sample = Sample(
        cpu_us_per_message=spent * 1e6 / count,
        messages_per_second=float(result["per_second"]),
        p50_ms=None,
        p99_ms=None,
        p999_ms=None,
        rss_mb=rss_mb(subject.pid),
        broker_cpu_us_per_message=broker_spent * 1e6 / count,
    )
    say(f"{load.name} {subject.name}: {sample.cpu_us_per_message:.1f} µs, {result['per_second']}/s", progress=True)
    return sample
