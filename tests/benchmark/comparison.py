"""Run the loads of one protocol against its subjects, in turns."""

from dataclasses import dataclass, replace

from tests.benchmark import generator
from tests.benchmark.generator import Result
from tests.benchmark.operations import GRPC, REMOTING, Operation, Section
from tests.benchmark.outcome import Row, Sample, middle
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import Attributes, BenchmarkError, Kit, say
from tests.benchmark.system_calls import counting

PROBE_MESSAGES = 64
RUN_WARMUP_SECONDS = 0.5
PULL_BATCH = 32
PACED_WARMUP_SECONDS = 1.5
SYSCALL_SECONDS = 2.0
# Of the messages that a run which drains reads: larger bodies are fewer.
DRAINED_BYTES = 100_000_000
_BASE_SECTIONS = (REMOTING.name, GRPC.name)
RIVALS = ("java", "rust", "haproxy")
ENDS_WITH_THE_TOPIC = {"pop-ack"}
"""Loads that are told by the broker when nothing is left."""


@dataclass(frozen=True)
class Plan:
    """Number and length of runs."""

    rounds: int
    seconds: float
    messages: int
    warmup_messages: int
    sizes: tuple[int, ...]
    count_syscalls: bool = False


class Comparison:
    """Runs the loads of a section against subjects."""

    def __init__(
        self,
        running: Kit,
        section: Section,
        subjects: list[Attributes],
        plan: Plan,
        maxima: dict[str, float] | None = None,
    ) -> None:
        """maxima: messages per second that each load with a share of the maximum is a share of."""
        self.kit = running
        self.section = section
        self.subjects = subjects
        self.plan = plan
        self.failures: list[str] = []
        self.maxima = maxima or {}
        self.remarks: dict[tuple[str, Operation], str] = {}
        self._groups = 0

    def rows(self) -> list[Row]:
        """Prepare, warm up and measure everything."""
        for size in sorted({size for operation in self.section.operations for size in self._sizes(operation)}):
            self._prepare(size)
        # The other sections have the loads of these with other parameters.
        if self.section.name in _BASE_SECTIONS:
            self._probe()
            self._warm_up()
        rows = []
        for size in dict.fromkeys(size for operation in self.section.operations for size in self._sizes(operation)):
            for operation in self.section.operations:
                if size in self._sizes(operation):
                    rows += self._compare(operation, size)
        return rows

    def _sizes(self, operation: Operation) -> tuple[int, ...]:
        return operation.sizes or self.plan.sizes

    def _messages(self, size: int) -> int:
        """Return the number of messages that a run drains."""
        return min(self.plan.messages, max(500, DRAINED_BYTES // max(1, size)))

    def _topic(self, kind: str, size: int) -> str:
        return f"{self.section.name}-{kind}-{size}"

    def _mixed(self, subject: Attributes, size: int) -> str:
        return self._topic(f"mixed-{subject.name}", size)

    def _prepare(self, size: int) -> None:
        """Create the topics and store the messages for consumers."""
        kinds = {operation.topic for operation in self.section.operations if size in self._sizes(operation)}
        for kind in sorted(kinds - {"mixed"}):
            self.kit.add_topic(self._topic(kind, size), kind="FIFO" if kind == "fifo" else "NORMAL")
        for number in {operation.topics for operation in self.section.operations if operation.topics}:
            self.kit.add_topics(f"{self._topic('send', size)}-{number}", number)
        if "mixed" in kinds:
            # One group for all runs of a subject: each run leaves the topic empty for it.
            for subject in self.subjects:
                self.kit.add_topic(self._mixed(subject, size))
                self.kit.add_group(self._mixed(subject, size))
        if "read" in kinds:
            stored = generator.run(
                "send-async",
                self.kit.subjects["none"],
                topic=self._topic("read", size),
                size=size,
                messages=self._messages(size),
            )
            stored.checked("storing messages")

    def _probe(self) -> None:
        """Find out which operations each subject supports."""
        size = self.plan.sizes[0]
        for subject in self.subjects:
            for operation in self.section.operations:
                if not operation.load(subject.name):
                    continue
                result = self._load(operation, size, subject, messages=PROBE_MESSAGES, timeout=5)
                if not result.errors:
                    continue
                if subject.name == "none":
                    result.checked(f"{operation.name} without a proxy")
                self.remarks[subject.name, operation] = result.first_error
                if subject.name == "gantry":
                    self.failures.append(f"{operation.name}: {result.first_error}")
                say(f"{subject.name} does not support {operation.name}: {result.first_error}", progress=True)

    def _warm_up(self) -> None:
        """Warm up just-in-time compilers and caches."""
        size = self.plan.sizes[0]
        for subject in self.subjects:
            for operation in self.section.operations:
                if subject.pid is None or (subject.name, operation) in self.remarks:
                    continue
                result = self._load(operation, size, subject, messages=self._warm_up_messages(operation))
                say(f"warm-up {subject.name} {operation.name}: {result.messages_per_second:.0f}/s", progress=True)

    def _warm_up_messages(self, operation: Operation) -> int:
        if operation.topic != "read":
            return self.plan.warmup_messages
        if operation.drains:
            return min(self.plan.warmup_messages, self._messages(self.plan.sizes[0]))
        # A pull returns many messages, and requests warm up a proxy.
        return self.plan.warmup_messages * PULL_BATCH // 4

    def _compare(self, operation: Operation, size: int) -> list[Row]:
        """Return the rows of one operation and size, one for each subject."""
        subjects = [
            subject
            for subject in self.subjects
            if operation.load(subject.name) and (not operation.subjects or subject.name in operation.subjects)
        ]
        samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
        for number in range(self.plan.rounds):
            turn = number % len(subjects)
            for subject in subjects[turn:] + subjects[:turn]:
                if (subject.name, operation) not in self.remarks:
                    samples[subject.name] += self._measure(operation, size, subject)
        return [self._row(operation, size, subject.name, samples[subject.name]) for subject in subjects]

    def _row(self, operation: Operation, size: int, subject: str, samples: list[Sample]) -> Row:
        if samples:
            return Row(operation, size, subject, middle(samples))
        remark = self.remarks.get((subject, operation), "every run met errors")
        return Row(operation, size, subject, None, remark)

    def _measure(self, operation: Operation, size: int, subject: Attributes) -> list[Sample]:
        """Run one measurement; return no sample if it met errors."""
        if operation.workers > 1 and subject.name == "gantry":
            subject = self.kit.subjects["gantry-workers"]
        where = f"{operation.name} {operation.pattern} {size} {operation.clients} clients {subject.name}"
        before, broker = (cpu_seconds(pid) if pid else 0.0 for pid in (subject.pid, self.kit.broker_pid))
        limits = self._limits(operation, subject, size)
        try:
            result = self._load(operation, size, subject, **limits)
        except BenchmarkError as error:
            result = None
            failure = str(error)
        spent = cpu_seconds(subject.pid) - before if subject.pid else 0.0
        broker_spent = cpu_seconds(self.kit.broker_pid) - broker
        if result is not None:
            failure = self._failure(operation, result, size)
        if result is None or failure:
            if subject.name in RIVALS:
                self.remarks[subject.name, operation] = failure  # Errors of a rival are no failure of Gantry.
            else:
                self.failures.append(f"{where}: {failure}")
            say(f"{where}: {failure}", progress=True)
            return []
        found = replace(
            sample(result, subject, spent),
            broker_cpu_us_per_message=broker_spent * 1e6 / max(1, result.all_messages),
            generator_cpu_us_per_message=result.cpu_seconds * 1e6 / max(1, result.all_messages),
            syscalls_per_message=self._syscalls(operation, size, subject),
            rate=limits.get("rate"),
        )
        say(f"{where}: {describe(found)}", progress=True)
        return [found]

    def _syscalls(self, operation: Operation, size: int, subject: Attributes) -> float | None:
        """Return the system calls per message of a short run under strace, which is not measured otherwise."""
        if not self.plan.count_syscalls or subject.pid is None or size != self.plan.sizes[0]:
            return None
        limits = self._limits(operation, subject, size)
        if not operation.drains:
            limits["seconds"] = SYSCALL_SECONDS
        with counting(subject.pid) as count:
            result = self._load(operation, size, subject, **limits)
            calls = count()
        return calls / result.all_messages if result.all_messages and not result.errors else None

    def _limits(self, operation: Operation, subject: Attributes, size: int) -> dict[str, float]:
        """Return the limits of a measured run."""
        rate = operation.rate or operation.share * self.maxima.get(operation.name, 0.0)
        if operation.share and not rate:
            raise BenchmarkError(f"the maximum of {operation.name} was not measured")
        if rate:
            # Each topic and each connection is used before the measurement.
            warmup = max(PACED_WARMUP_SECONDS, 1.2 * max(operation.topics, operation.clients) / rate)
            return {"seconds": self.plan.seconds, "warmup": warmup, "rate": round(rate, 1)}
        if not operation.drains:
            return {"seconds": self.plan.seconds, "warmup": RUN_WARMUP_SECONDS}
        if operation.load(subject.name) in ENDS_WITH_THE_TOPIC:
            return {}
        return {"messages": self._messages(size)}

    def _failure(self, operation: Operation, result: Result, size: int) -> str:
        if result.errors:
            return f"{result.errors} errors, the first: {result.first_error}"
        if operation.drains and result.all_messages != self._messages(size):
            return f"{result.all_messages} of {self._messages(size)} messages arrived"
        return ""

    def _load(self, operation: Operation, size: int, subject: Attributes, **limits: float) -> Result:
        """Run the generator; readers of stored messages use their own group."""
        self._groups += 1
        topic, group = self._topic(operation.topic, size), f"{self.section.name}-{self._groups}"
        if operation.topic == "read":
            self.kit.add_group(group)
        elif operation.topic == "mixed":
            topic = group = self._mixed(subject, size)
        if operation.topics:
            topic += f"-{operation.topics}"
            limits["topics"] = operation.topics
        if operation.tls:
            limits["tls"] = 1
        return generator.run(
            operation.load(subject.name),
            subject,
            topic=topic,
            group=group,
            size=size,
            connections=operation.clients,
            window=operation.window,
            **limits,
        )


def sample(result: Result, subject: Attributes, spent: float) -> Sample:
    """Return the measurements of one run."""
    return Sample(
        cpu_us_per_message=None if subject.pid is None else spent * 1e6 / max(1, result.all_messages),
        messages_per_second=result.messages_per_second,
        p50_ms=result.latency.p50,
        p99_ms=result.latency.p99,
        p999_ms=result.latency.p999,
        rss_mb=None if subject.pid is None else rss_mb(subject.pid),
    )


def describe(found: Sample) -> str:
    """Describe a sample in a few words."""
    cpu = "" if found.cpu_us_per_message is None else f"{found.cpu_us_per_message:.1f} µs/message, "
    return f"{cpu}{found.messages_per_second:.0f}/s, p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms"
