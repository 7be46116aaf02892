"""The outcome of a benchmark: medians, comparisons, tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from tests.benchmark.operations import Operation


@dataclass(frozen=True)
class Sample:
    """The measurements of one run, or the medians of several."""

    cpu_us_per_message: float | None
    messages_per_second: float
    p50_ms: float | None
    """Latencies are None where the load does not measure them."""
    p99_ms: float | None
    p999_ms: float | None
    rss_mb: float | None
    broker_cpu_us_per_message: float | None = None
    generator_cpu_us_per_message: float | None = None
    syscalls_per_message: float | None = None
    rate: float | None = None
    """Messages per second that arrived, in open loop."""


@dataclass(frozen=True)
class Row:
    """One line of the outcome; without a sample where the subject does not support the operation."""

    operation: Operation
    size: int
    subject: str
    sample: Sample | None
    remark: str = ""


@dataclass(frozen=True)
class Finding:
    """Gantry beside the Java proxy in one operation and size."""

    operation: Operation
    size: int
    cpu_ratio: float
    speed_ratio: float
    added_p99_gantry: float | None
    added_p99_java: float | None
    cpu_ratio_to_rust: float | None

    def failures(self) -> Iterable[str]:
        """Return the missed targets."""
        where, aims = f"{self.operation.name} {self.size}", self.operation.aims
        if aims.cpu_ratio is not None and self.cpu_ratio > aims.cpu_ratio:
            yield f"{where}: CPU per message is {self.cpu_ratio:.2f} of Java's, over {aims.cpu_ratio:.2f}"
        if aims.more_throughput and self.speed_ratio <= 1:
            yield f"{where}: {self.speed_ratio:.2f} times Java's messages per second, not more than Java"
        if not aims.lower_added_p99 or self.added_p99_gantry is None or self.added_p99_java is None:
            return
        if self.added_p99_gantry >= self.added_p99_java:
            yield (
                f"{where}: adds {self.added_p99_gantry:.2f} ms to the p99, "
                f"not less than Java's {self.added_p99_java:.2f} ms"
            )


def middle(samples: list[Sample]) -> Sample:
    """Return the median of each measurement; memory is that of the last run."""

    def optional(name: str, digits: int = 2) -> float | None:
        values = [value for one in samples if (value := getattr(one, name)) is not None]
        return round(median(values), digits) if values else None

    return Sample(
        cpu_us_per_message=optional("cpu_us_per_message"),
        messages_per_second=round(median(one.messages_per_second for one in samples), 1),
        p50_ms=optional("p50_ms", 3),
        p99_ms=optional("p99_ms", 3),
        p999_ms=optional("p999_ms", 3),
        rss_mb=samples[-1].rss_mb,
        broker_cpu_us_per_message=optional("broker_cpu_us_per_message"),
        generator_cpu_us_per_message=optional("generator_cpu_us_per_message"),
        syscalls_per_message=optional("syscalls_per_message"),
        rate=optional("rate"),
    )


def as_json(row: Row) -> dict[str, object]:
    """Return a row in the form of the output file."""
    found: dict[str, object] = {
        "operation": row.operation.name,
        "size": row.size,
        "clients": row.operation.clients,
        "window": row.operation.window,
        "tls": row.operation.tls,
        "workers": row.operation.workers,
        "topics": row.operation.topics or 1,
        "load": row.operation.pattern,
        "subject": row.subject,
        "supported": row.sample is not None,
    }
    return found | ({"remark": row.remark} if row.sample is None else vars(row.sample))


class Found:
    """The samples of rows, by operation, size and subject."""

    def __init__(self, rows: list[Row]) -> None:
        self._samples = {(row.operation, row.size, row.subject): row.sample for row in rows}

    def sample(self, operation: Operation, size: int, subject: str) -> Sample | None:
        """Return a subject's sample; None if it was not measured."""
        return self._samples.get((operation, size, subject))


def findings(rows: list[Row]) -> list[Finding]:
    """Return Gantry beside Java, wherever both were measured."""
    known, found = Found(rows), []
    for operation, size in dict.fromkeys((row.operation, row.size) for row in rows):
        none, java, rust, ours = (known.sample(operation, size, name) for name in ("none", "java", "rust", "gantry"))
        ratio = cpu_ratio(ours, java)
        if ratio is not None and ours and java:
            speed = ours.messages_per_second / java.messages_per_second
            beside = added(ours, none), added(java, none)
            found.append(Finding(operation, size, ratio, speed, *beside, cpu_ratio(ours, rust)))
    return found


def cpu_ratio(found: Sample | None, other: Sample | None) -> float | None:
    """Return the ratio of CPU times per message."""
    if not found or not other or found.cpu_us_per_message is None or not other.cpu_us_per_message:
        return None
    return found.cpu_us_per_message / other.cpu_us_per_message


def added(found: Sample | None, direct: Sample | None) -> float | None:
    """Return the latency that a proxy adds to the 99th percentile of the direct path."""
    if not found or not direct or found.p99_ms is None or direct.p99_ms is None:
        return None
    return found.p99_ms - direct.p99_ms


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table; ratios are to Java."""
    known = Found(rows)
    lines = [
        "| operation | bytes | clients | subject | CPU µs/message | of Java's | messages/s | p50 ms | p99 ms "
        "| added p99 ms | p99.9 ms | RSS MB |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        operation, size = row.operation, row.size
        words = [operation.name, *(["TLS"] if operation.tls else [])]
        words += [f"{operation.workers} workers"] if operation.workers > 1 else []
        words += [f"{operation.topics} topics"] if operation.topics else []
        words += [operation.pattern] if operation.pattern != "closed" else []
        head = f"| {' '.join(words)} | {size} | {operation.clients} x {operation.window} | {row.subject} |"
        if row.sample is None:
            lines.append(f"{head} not supported | | | | | | | |")
        else:
            others = (known.sample(operation, size, name) for name in ("java", "none"))
            lines.append(f"{head} {_cells(row.subject, row.sample, *others)} |")
    return "\n".join(lines)


def _cells(subject: str, found: Sample, java: Sample | None, none: Sample | None) -> str:
    ratio = None if subject == "java" else cpu_ratio(found, java)
    extra = None if subject == "none" else added(found, none)
    return " | ".join(
        (
            number(found.cpu_us_per_message, 1),
            number(ratio, 2),
            number(found.messages_per_second, 0),
            number(found.p50_ms, 2),
            number(found.p99_ms, 2),
            number(extra, 2),
            number(found.p999_ms, 2),
            number(found.rss_mb, 0),
        )
    )


def number(value: float | None, digits: int) -> str:
    """Return a cell of a table; empty without a value."""
    return "" if value is None else f"{value:.{digits}f}"


def closing_line(rows: list[Row], compared: list[Finding]) -> str:
    """Return the outcome of one protocol in one line of figures."""
    if not compared:
        return f"{len(rows)} rows; nothing to compare: the java and gantry subjects did not both run"
    parts = [f"gantry/java CPU per message {_span([one.cpu_ratio for one in compared])} ({_by_operation(compared)})"]
    parts.append(f"messages per second {_span([one.speed_ratio for one in compared])} times")
    pairs = [(one.added_p99_gantry, one.added_p99_java) for one in compared]
    known = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    if known:
        parts.append(f"added p99 lower in {sum(ours < theirs for ours, theirs in known)} of {len(known)}")
    if rust := [one.cpu_ratio_to_rust for one in compared if one.cpu_ratio_to_rust is not None]:
        parts.append(f"gantry/rust CPU per message {_span(rust)}")
    memory = {name: max(_memory(rows, name), default=0.0) for name in ("gantry", "java", "rust")}
    parts.append("RSS " + ", ".join(f"{name} {size:.0f} MB" for name, size in memory.items() if size))
    return "; ".join(parts)


def _span(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}, median {median(values):.2f}"


def _by_operation(compared: list[Finding]) -> str:
    ratios: dict[str, list[str]] = {}
    for one in compared:
        ratios.setdefault(one.operation.name, []).append(f"{one.cpu_ratio:.2f}")
    return ", ".join(f"{name} {' and '.join(each)}" for name, each in ratios.items())


def _memory(rows: list[Row], subject: str) -> Iterable[float]:
    return (row.sample.rss_mb for row in rows if row.subject == subject and row.sample and row.sample.rss_mb)
