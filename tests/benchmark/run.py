"""Compare Gantry with the official Java proxy and with no proxy at all.

Each operation runs several times for each subject, in rotating order; medians count. The exit code is 1
when Gantry's CPU time per message is more than half of the Java proxy's, when it adds more to the
99th percentile than the Java proxy, or when a load met errors.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark import generator
from tests.benchmark.generator import Result
from tests.benchmark.outcome import SUBJECTS, Operation, Row, Sample, closing_line, findings, middle, table, write
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import (
    ROOT,
    BenchmarkError,
    Kit,
    Subject,
    add_gantry_option,
    end_on_sigterm,
    gantry,
    kit,
    say,
)

OUTPUT = ROOT / "build" / "bench.json"
SIZES = (300, 4096)
PROBE_MESSAGES = 64
RUN_WARMUP_SECONDS = 0.5
PULL_BATCH = 32


OPERATIONS = (
    Operation("send-sync", 16, 1, consumes=False),
    Operation("send-async", 4, 32, consumes=False),
    Operation("pull", 4, 1, consumes=True),
    Operation("pop-ack", 4, 32, consumes=True, drains=True),
)


@dataclass(frozen=True)
class Plan:
    """How much to run."""

    rounds: int
    seconds: float
    messages: int
    warmup_messages: int
    sizes: tuple[int, ...]
    operations: tuple[Operation, ...]


class Bench:
    """Runs the loads of a plan against subjects."""

    def __init__(self, running: Kit, subjects: list[Subject], plan: Plan) -> None:
        self.kit = running
        self.subjects = subjects
        self.plan = plan
        self.failures: list[str] = []
        self.remarks: dict[tuple[str, str], str] = {}
        self._groups = 0

    def rows(self) -> list[Row]:
        """Prepare, warm up and measure everything."""
        for size in self.plan.sizes:
            self._fill(size)
        self._probe()
        self._warm_up()
        return [
            row
            for size in self.plan.sizes
            for operation in self.plan.operations
            for row in self._compare(operation, size)
        ]

    def _fill(self, size: int) -> None:
        """Store the messages that consumers will read."""
        self.kit.add_topic(f"send-{size}")
        self.kit.add_topic(f"read-{size}")
        direct = self.kit.subjects["none"]
        generator.run("send-async", direct, topic=f"read-{size}", size=size, messages=self.plan.messages).checked(
            "storing messages"
        )

    def _probe(self) -> None:
        """Find out which operations each subject supports."""
        size = self.plan.sizes[0]
        for subject in self.subjects:
            for operation in self.plan.operations:
                result = self._load(operation, size, subject, messages=PROBE_MESSAGES, timeout=5)
                if not result.errors:
                    continue
                if subject.name == "none":
                    result.checked(f"{operation.name} without a proxy")
                self.remarks[subject.name, operation.name] = result.first_error
                if subject.name == "gantry":
                    self.failures.append(f"{operation.name}: {result.first_error}")
                say(f"{subject.name} does not support {operation.name}: {result.first_error}", progress=True)

    def _warm_up(self) -> None:
        """Give just-in-time compilers and caches what they need."""
        size = self.plan.sizes[0]
        for subject in self.subjects:
            for operation in self.plan.operations:
                if subject.pid is None or (subject.name, operation.name) in self.remarks:
                    continue
                # A pull carries many messages, and it is requests that warm a proxy.
                factor = PULL_BATCH // 4 if operation.consumes and not operation.drains else 1
                messages = self.plan.warmup_messages * factor
                result = self._load(operation, size, subject, messages=messages)
                say(f"warm-up {subject.name} {operation.name}: {result.messages_per_second:.0f}/s", progress=True)

    def _compare(self, operation: Operation, size: int) -> list[Row]:
        """The rows of one operation and size, one for each subject."""
        samples: dict[str, list[Sample]] = {subject.name: [] for subject in self.subjects}
        for number in range(self.plan.rounds):
            turn = number % len(self.subjects)
            for subject in self.subjects[turn:] + self.subjects[:turn]:
                if (subject.name, operation.name) not in self.remarks:
                    samples[subject.name] += self._measure(operation, size, subject)
        return [self._row(operation, size, subject.name, samples[subject.name]) for subject in self.subjects]

    def _row(self, operation: Operation, size: int, subject: str, samples: list[Sample]) -> Row:
        if samples:
            return Row(operation, size, subject, middle(samples))
        remark = self.remarks.get((subject, operation.name), "every run met errors")
        return Row(operation, size, subject, None, remark)

    def _measure(self, operation: Operation, size: int, subject: Subject) -> list[Sample]:
        """One measured run; no sample if it met errors."""
        limits: dict[str, float] = (
            {} if operation.drains else {"seconds": self.plan.seconds, "warmup": RUN_WARMUP_SECONDS}
        )
        before = cpu_seconds(subject.pid) if subject.pid else 0.0
        result = self._load(operation, size, subject, **limits)
        spent = cpu_seconds(subject.pid) - before if subject.pid else 0.0
        where = f"{operation.name} {size} {subject.name}"
        if failure := self._failure(operation, result):
            self.failures.append(f"{where}: {failure}")
            say(f"{where}: {failure}", progress=True)
            return []
        found = sample(result, subject, spent)
        say(f"{where}: {describe(found)}", progress=True)
        return [found]

    def _failure(self, operation: Operation, result: Result) -> str:
        if result.errors:
            return f"{result.errors} errors, the first: {result.first_error}"
        if operation.drains and result.all_messages != self.plan.messages:
            return f"{result.all_messages} of {self.plan.messages} messages arrived"
        return ""

    def _load(self, operation: Operation, size: int, subject: Subject, **limits: float) -> Result:
        """Run the generator, consumers with a group of their own."""
        self._groups += 1
        group = f"bench-{self._groups}"
        if operation.consumes:
            self.kit.add_group(group)
        return generator.run(
            operation.name,
            subject,
            topic=f"{'read' if operation.consumes else 'send'}-{size}",
            group=group,
            size=size,
            connections=operation.clients,
            window=operation.window,
            **limits,
        )


def sample(result: Result, subject: Subject, spent: float) -> Sample:
    """The measurements of one run."""
    return Sample(
        cpu_us_per_message=None if subject.pid is None else spent * 1e6 / max(1, result.all_messages),
        messages_per_second=result.messages_per_second,
        p50_ms=result.latency.p50,
        p99_ms=result.latency.p99,
        p999_ms=result.latency.p999,
        rss_mb=None if subject.pid is None else rss_mb(subject.pid),
    )


def describe(found: Sample) -> str:
    """A sample in a few words."""
    cpu = "" if found.cpu_us_per_message is None else f"{found.cpu_us_per_message:.1f} µs/message, "
    return f"{cpu}{found.messages_per_second:.0f}/s, p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms"


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmark.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="default: %(default)s")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a message; default: %(default)s")
    parser.add_argument("--operations", default=",".join(one.name for one in OPERATIONS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measured run (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=20000, help="stored for a pop-ack run (default: %(default)s)")
    parser.add_argument("--warmup-messages", type=int, default=30000, help="per operation (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test of seconds: one round, and only errors make it fail"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="default: build/bench.json")
    add_gantry_option(parser)
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds, args.messages, args.warmup_messages = 1, 1.0, 2000, 3000
    return args


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the command line asks for."""
    wanted = set(args.operations.split(","))
    if unknown := wanted - {one.name for one in OPERATIONS}:
        raise BenchmarkError(f"no operation {', '.join(sorted(unknown))}")
    if unknown := set(args.subjects.split(",")) - set(SUBJECTS):
        raise BenchmarkError(f"no subject {', '.join(sorted(unknown))}")
    return Plan(
        rounds=args.rounds,
        seconds=args.seconds,
        messages=args.messages,
        warmup_messages=args.warmup_messages,
        sizes=tuple(int(size) for size in args.sizes.split(",")),
        operations=tuple(one for one in OPERATIONS if one.name in wanted),
    )


def run(args: argparse.Namespace) -> int:
    """Run the benchmark; return the exit code."""
    plan = plan_of(args)
    names = [name for name in SUBJECTS if name in args.subjects.split(",")]
    generator.build()
    with ExitStack() as stack:
        running = stack.enter_context(kit(java="java" in names))
        subjects = dict(running.subjects)
        if "gantry" in names:
            subjects["gantry"] = stack.enter_context(gantry(running, args.gantry_command))
        bench = Bench(running, [subjects[name] for name in names], plan)
        rows = bench.rows()
    write(rows, args.output)
    compared = findings(rows)
    verdicts = [text for one in compared for text in one.failures()]
    say(table(rows))
    say()
    for text in bench.failures + verdicts:
        say(f"FAILED {text}")
    say(closing_line(rows, compared))
    return 1 if bench.failures or (verdicts and not args.quick) else 0


def main() -> int:
    """Run the benchmark from the command line."""
    end_on_sigterm()
    try:
        return run(parse_arguments())
    except BenchmarkError as error:
        say(f"benchmark: {error}", progress=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
