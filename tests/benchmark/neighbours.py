"""Watch a good client beside bad ones: its latency, and the proxy's memory for the bad ones.

A slow reader requests big messages and never reads them. A flood sends without end; an unread one leaves the answers in
its socket, a drained one discards them.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.benchmark import generator
from tests.benchmark.generator import Result
from tests.benchmark.processes import rss_mb
from tests.benchmark.servers import Attributes, BenchmarkError, Kit, add_gantry_option, end_on_sigterm, one_subject, say

GOOD_TOPIC = "bench-good"
BIG_TOPIC = "bench-big"
FLOOD_TOPIC = "bench-flood"
BIG_MESSAGES = 2000
GOOD_CLIENTS = 4
LEAD_SECONDS = 1.0
SETTLE_SECONDS = 30.0
SETTLED_FACTOR = 3.0


@dataclass(frozen=True)
class Neighbour:
    """A client that behaves badly."""

    name: str
    operation: str
    topic: str
    size: int
    discard: bool = False


SLOW_READER = Neighbour("slow reader", "slow-reader", BIG_TOPIC, 4096)
UNREAD_FLOOD = Neighbour("unread flood", "flood", FLOOD_TOPIC, 300)
DRAINED_FLOOD = Neighbour("drained flood", "flood", FLOOD_TOPIC, 300, discard=True)
SCENARIOS = (
    (),
    (SLOW_READER,),
    (UNREAD_FLOOD,),
    (DRAINED_FLOOD,),
    (SLOW_READER, UNREAD_FLOOD, DRAINED_FLOOD),
)


@dataclass(frozen=True)
class Outcome:
    """Measurements of the good client and the proxy in one scenario."""

    name: str
    good: Result
    growth_mb: float
    rows: tuple[str, ...]


class PeakMemory:
    """The peak memory of a process, sampled in a thread."""

    def __init__(self, pid: int | None) -> None:
        self.peak = 0.0
        self._pid = pid
        self._ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator["PeakMemory"]:
        """Sample while the block runs."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        while self._pid is not None and not self._ended.wait(0.05):
            self.peak = max(self.peak, rss_mb(self._pid))


def prepare(running: Kit) -> None:
    """Create the topics and store the big messages."""
    for topic in (GOOD_TOPIC, BIG_TOPIC, FLOOD_TOPIC):
        running.add_topic(topic)
    running.add_group("bench-slow-reader")
    generator.run(
        "send-async", running.subjects["none"], topic=BIG_TOPIC, size=SLOW_READER.size, messages=BIG_MESSAGES
    ).checked("storing messages")


def observe(subject: Attributes, neighbours: tuple[Neighbour, ...], baseline: float, seconds: float) -> Outcome:
    """Run the good client beside these neighbours, which start before it and end after it."""
    with ExitStack() as stack:
        memory = stack.enter_context(PeakMemory(subject.pid).watching())
        others = [
            stack.enter_context(
                generator.started(
                    one.operation,
                    subject,
                    topic=one.topic,
                    group=f"bench-{one.operation}",
                    size=one.size,
                    seconds=seconds + 2 * LEAD_SECONDS,
                    discard=str(one.discard).lower(),
                )
            )
            for one in neighbours
        ]
        good = generator.run(
            "send-sync", subject, topic=GOOD_TOPIC, connections=GOOD_CLIENTS, seconds=seconds, warmup=LEAD_SECONDS
        )
        outputs = [other.communicate()[0] for other in others]
    rows = tuple(_activity(one, text) for one, text in zip(neighbours, outputs, strict=True))
    name = "beside " + ", ".join(one.name for one in neighbours) if neighbours else "alone"
    return Outcome(name, good, memory.peak - baseline if subject.pid else 0.0, rows)


def settled(subject: Attributes, alone: Outcome) -> bool:
    """Wait until the servers have processed the neighbours' backlog, so that scenarios do not mix."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        probe = generator.run("send-sync", subject, topic=GOOD_TOPIC, connections=GOOD_CLIENTS, seconds=1, timeout=5)
        if not probe.errors and probe.latency.p50 < SETTLED_FACTOR * alone.good.latency.p50:
            return True
    return False


def observe_all(subject: Attributes, baseline: float, seconds: float) -> tuple[list[Outcome], list[str]]:
    """Run every scenario from a quiet start; return the outcomes, and reasons for skipped scenarios."""
    outcomes: list[Outcome] = []
    for neighbours in SCENARIOS:
        if outcomes and not settled(subject, outcomes[0]):
            return outcomes, [f"{outcomes[-1].name}: {SETTLE_SECONDS:.0f} s later the servers had not recovered"]
        outcomes.append(observe(subject, neighbours, baseline, seconds))
        say(f"{outcomes[-1].name}: done", progress=True)
    return outcomes, []


def _activity(neighbour: Neighbour, output: str) -> str:
    """Describe the work of a neighbour."""
    if not output:
        raise BenchmarkError(f"the {neighbour.name} failed")
    found = generator.parse(output)
    if found.errors:
        return f"{neighbour.name}: {found.first_error}"
    closed = found.counts.get("closed", 0)
    return f"{neighbour.name}: {found.counts.get('frames', 0)} requests taken, {closed} connections closed"


def failures(outcomes: list[Outcome], bound: float) -> Iterator[str]:
    """Return violations of the limits."""
    for one in outcomes:
        if one.good.errors:
            yield f"{one.name}: the good client met {one.good.errors} errors, the first: {one.good.first_error}"
        if one.growth_mb > bound:
            yield f"{one.name}: memory grew by {one.growth_mb:.0f} MB, over {bound:.0f} MB"


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = [
        "| good client | messages/s | p50 ms | p99 ms | max ms | RSS growth MB | neighbours |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in outcomes:
        latency = one.good.latency
        lines.append(
            f"| {one.name} | {one.good.messages_per_second:.0f} | {latency.p50:.2f} | {latency.p99:.2f} "
            f"| {latency.max:.2f} | {one.growth_mb:.1f} | {'; '.join(one.rows)} |"
        )
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmark.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--subject", default="gantry", choices=("gantry", "java", "none"))
    parser.add_argument("--seconds", type=float, default=8.0, help="of each scenario (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=256.0, metavar="MB", help="allowed growth of the RSS")
    add_gantry_option(parser)
    return parser.parse_args()


def main() -> int:
    """Run the measurement from the command line."""
    args = parse_arguments()
    end_on_sigterm()
    try:
        generator.build()
        with one_subject(args.subject, args.gantry_command) as (running, subject):
            prepare(running)
            generator.run("send-sync", subject, topic=GOOD_TOPIC, seconds=args.seconds / 2).checked("the warm-up")
            baseline = rss_mb(subject.pid) if subject.pid else 0.0
            outcomes, broken = observe_all(subject, baseline, args.seconds)
    except BenchmarkError as error:
        say(f"benchmark: {error}", progress=True)
        return 2
    say(table(outcomes))
    say()
    broken += failures(outcomes, args.memory)
    for text in broken:
        say(f"FAILED {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
