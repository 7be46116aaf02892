"""What became of records, counted."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.observability.metrics import Metrics


class Drop(StrEnum):
    """Why a record was lost; the values are metric labels."""

    FULL = "full"  # the buffer: the store is slower than the traffic
    STORE = "store"  # it could not be written
    FAULT = "fault"  # it could not be converted, which would be our mistake


@dataclass(slots=True)
class Counts:
    """Totals since the start.

    written, files, bytes: in complete files, by table. dropped: records by reason. left_out: by the pattern of the
    sampling rule. removed: files by retention, by reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    def watch(self, metrics: Metrics) -> None:
        """Show them."""
        for name, text, label, counts in (
            ("gantry_traffic_written", "Traffic records in complete files.", "table", self.written),
            ("gantry_traffic_files", "Complete files of traffic records.", "table", self.files),
            ("gantry_traffic_bytes", "Bytes of complete files of traffic records.", "table", self.bytes),
            ("gantry_traffic_dropped", "Traffic records that were lost, by reason.", "reason", self.dropped),
            ("gantry_traffic_left_out", "Requests without a record by a sampling rule.", "pattern", self.left_out),
            ("gantry_traffic_removed", "Files of traffic records that retention removed.", "reason", self.removed),
        ):
            metrics.counter(name, text, label, counts)
