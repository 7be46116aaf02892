"""Counts of traffic records, by outcome."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.observability.metrics import Metrics


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

    def register(self, metrics: Metrics) -> None:
        """Add the counts to the metrics."""
        for name, text, label, counts in (
            ("gantry_traffic_written", "Traffic records in complete files, by table.", "table", self.written),
            ("gantry_traffic_files", "Complete files of traffic records, by table.", "table", self.files),
            ("gantry_traffic_bytes", "Bytes of complete files of traffic records, by table.", "table", self.bytes),
            (
                "gantry_traffic_dropped",
                "Lost traffic records, by reason: full buffer, failed store, or a fault in the conversion.",
                "reason",
                self.dropped,
            ),
            (
                "gantry_traffic_left_out",
                "Requests without a traffic record because of sampling, by the rule's topic pattern.",
                "pattern",
                self.left_out,
            ),
            (
                "gantry_traffic_removed",
                "Files of traffic records removed by retention, by reason: age, size or leftover.",
                "reason",
                self.removed,
            ),
        ):
            metrics.counter(name, text, label, counts)
