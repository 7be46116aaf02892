"""The outcome of a benchmark: medians, comparisons, tables."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SUBJECTS = ("none", "java", "gantry")
CPU_RATIO_LIMIT = 0.5


@dataclass(frozen=True)
class Operation:
    """One kind of load."""

    name: str
    clients: int
    window: int
    consumes: bool
    """Reads the messages that were stored before; otherwise it sends."""
    drains: bool = False
    """Ends when every stored message was read; otherwise it ends after a time."""


@dataclass(frozen=True)
class Sample:
    """The measurements of one run, or the medians of several."""

    cpu_us_per_message: float | None
    messages_per_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    rss_mb: float | None


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
    """A comparison of Gantry with the Java proxy."""

    where: str
    cpu_ratio: float
    added_p99_gantry: float | None
    added_p99_java: float | None

    def failures(self) -> Iterable[str]:
        """What is not as good as it must be."""
        if self.cpu_ratio > CPU_RATIO_LIMIT:
            yield f"{self.where}: CPU per message is {self.cpu_ratio:.2f} of Java's, over {CPU_RATIO_LIMIT}"
        if self.added_p99_gantry is None or self.added_p99_java is None:
            return
        if self.added_p99_gantry >= self.added_p99_java:
            yield (
                f"{self.where}: adds {self.added_p99_gantry:.2f} ms to the p99, "
                f"not less than Java's {self.added_p99_java:.2f} ms"
            )


def middle(samples: list[Sample]) -> Sample:
    """The median of each measurement; memory is that of the last run."""
    cpu = [one.cpu_us_per_message for one in samples if one.cpu_us_per_message is not None]
    return Sample(
        cpu_us_per_message=round(median(cpu), 2) if cpu else None,
        messages_per_second=round(median(one.messages_per_second for one in samples), 1),
        p50_ms=round(median(one.p50_ms for one in samples), 3),
        p99_ms=round(median(one.p99_ms for one in samples), 3),
        p999_ms=round(median(one.p999_ms for one in samples), 3),
        rss_mb=samples[-1].rss_mb,
    )


def as_json(row: Row) -> dict[str, object]:
    """A row as the output file has it."""
    found: dict[str, object] = {
        "operation": row.operation.name,
        "size": row.size,
        "clients": row.operation.clients,
        "window": row.operation.window,
        "subject": row.subject,
        "supported": row.sample is not None,
    }
    return found | ({"remark": row.remark} if row.sample is None else vars(row.sample))


def findings(rows: list[Row]) -> list[Finding]:
    """Gantry beside Java, wherever both were measured."""
    known = {(row.operation.name, row.size, row.subject): row.sample for row in rows}
    found = []
    for operation, size in dict.fromkeys((row.operation.name, row.size) for row in rows):
        none, java, ours = (known.get((operation, size, name)) for name in SUBJECTS)
        ratio = cpu_ratio(ours, java)
        if ratio is not None:
            found.append(Finding(f"{operation} {size}", ratio, added(ours, none), added(java, none)))
    return found


def cpu_ratio(found: Sample | None, other: Sample | None) -> float | None:
    """How many times the other's CPU time per message."""
    if not found or not other or found.cpu_us_per_message is None or not other.cpu_us_per_message:
        return None
    return found.cpu_us_per_message / other.cpu_us_per_message


def added(found: Sample | None, direct: Sample | None) -> float | None:
    """What a proxy adds to the 99th percentile of the way without one."""
    return found.p99_ms - direct.p99_ms if found and direct else None


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table; ratios are Gantry to Java."""
    known = {(row.operation.name, row.size, row.subject): row.sample for row in rows}
    lines = [
        "| operation | bytes | clients | subject | CPU µs/message | of Java's | messages/s | p50 ms | p99 ms "
        "| added p99 ms | p99.9 ms | RSS MB |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        operation, size = row.operation, row.size
        head = f"| {operation.name} | {size} | {operation.clients} x {operation.window} | {row.subject} |"
        if row.sample is None:
            lines.append(f"{head} not supported | | | | | | | |")
        else:
            others = (known.get((operation.name, size, name)) for name in ("java", "none"))
            lines.append(f"{head} {_cells(row.subject, row.sample, *others)} |")
    return "\n".join(lines)


def _cells(subject: str, found: Sample, java: Sample | None, none: Sample | None) -> str:
    ratio = cpu_ratio(found, java) if subject == "gantry" else None
    extra = None if subject == "none" else added(found, none)
    return " | ".join(
        (
            _number(found.cpu_us_per_message, 1),
            _number(ratio, 2),
            _number(found.messages_per_second, 0),
            _number(found.p50_ms, 2),
            _number(found.p99_ms, 2),
            _number(extra, 2),
            _number(found.p999_ms, 2),
            _number(found.rss_mb, 0),
        )
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def closing_line(rows: list[Row], compared: list[Finding]) -> str:
    """The whole outcome in one line of figures."""
    if not compared:
        return f"{len(rows)} rows; nothing to compare: the java and gantry subjects did not both run"
    ratios = [one.cpu_ratio for one in compared]
    pairs = [(one.added_p99_gantry, one.added_p99_java) for one in compared]
    known = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    better = sum(ours < theirs for ours, theirs in known)
    memory = {name: max(_memory(rows, name), default=0.0) for name in ("gantry", "java")}
    return (
        f"gantry/java CPU per message {min(ratios):.2f} to {max(ratios):.2f}, median {median(ratios):.2f}; "
        f"added p99 lower in {better} of {len(known)}; "
        f"RSS {memory['gantry']:.0f} MB against {memory['java']:.0f} MB"
    )


def _memory(rows: list[Row], subject: str) -> Iterable[float]:
    return (row.sample.rss_mb for row in rows if row.subject == subject and row.sample and row.sample.rss_mb)


def write(rows: list[Row], path: Path) -> None:
    """Write the rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([as_json(row) for row in rows], indent=2, ensure_ascii=False) + "\n")
