"""Counts of traffic records, by outcome."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.observability.metrics.family import Family, Kind, Samples, by_label

WRITTEN = Family("gantry_traffic_written", Kind.COUNTER, "Traffic records in complete files, by table.", ("table",))
FILES = Family("gantry_traffic_files", Kind.COUNTER, "Complete files of traffic records, by table.", ("table",))
BYTES = Family(
    "gantry_traffic_bytes", Kind.COUNTER, "Bytes of complete files of traffic records, by table.", ("table",)
)
DROPPED = Family(
    "gantry_traffic_dropped",
    Kind.COUNTER,
    "Lost traffic records, by reason: full buffer, failed store, or a fault in the conversion.",
    ("reason",),
)
LEFT_OUT = Family(
    "gantry_traffic_left_out",
    Kind.COUNTER,
    "Requests without a traffic record because of sampling, by the rule's topic pattern.",
    ("pattern",),
)
REMOVED = Family(
    "gantry_traffic_removed",
    Kind.COUNTER,
    "Files of traffic records removed by retention, by reason: age, size or leftover.",
    ("reason",),
)


class DropReason(StrEnum):
    """Reasons for which records are lost; the values are metric labels."""

    FULL = "full"  # the buffer is full because the store is slower than the traffic
    STORE = "store"  # the store failed
    FAULT = "fault"  # the conversion failed, which is a bug


@dataclass(slots=True)
class RecordCounts:
    """Totals since the start.

    Attributes:
        written, files, bytes: records, number and size of complete files, by table.
        dropped: lost records by reason.
        left_out: requests without a record, by pattern of the sampling rule.
        removed: files that retention removed, by reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of the counts."""
        yield WRITTEN, by_label(self.written)
        yield FILES, by_label(self.files)
        yield BYTES, by_label(self.bytes)
        yield DROPPED, by_label(self.dropped)
        yield LEFT_OUT, by_label(self.left_out)
        yield REMOVED, by_label(self.removed)
