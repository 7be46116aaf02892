"""Differences of the request counts between two reads."""

from collections.abc import Iterator

from proxy.observability.metrics.request_counts import CellKey, RequestCounts, Row, RowKey
from proxy.operations.history.second import Second, Sums, add_to
from remoting.names import is_system

# Topics, and groups, that one second has sums for.
MAX_NAMES = 2_000


class _Seen:
    """The counts of a row at the last read; groups: messages and bytes by group and redelivery."""

    __slots__ = ("bytes_in", "bytes_out", "count", "groups", "messages")

    def __init__(self) -> None:
        self.count = self.messages = self.bytes_in = self.bytes_out = 0
        self.groups: dict[tuple[str, bool], tuple[int, int]] = {}


class CounterReader:
    """Reads what was counted since the last read, in time proportional to the rows that have changed.

    Requests before the first read do not count.
    """

    def __init__(self, counts: RequestCounts) -> None:
        self._counts = counts
        self._rows: dict[RowKey, _Seen] = {}
        self._latencies: dict[CellKey, list[int]] = {}
        self.read(0)

    def read(self, at: int) -> Second:
        """Return the difference as a second with this time."""
        second = Second(at)
        rows = self._counts.rows
        for key, row in rows.items():
            seen = self._rows.get(key)
            if seen is None:
                seen = self._rows[key] = _Seen()
            if row.count != seen.count:
                self._add_row(second, key, row, seen)
        if len(self._rows) > len(rows):
            self._rows = {key: seen for key, seen in self._rows.items() if key in rows}
        self._add_latencies(second)
        return second

    def _add_row(self, second: Second, key: RowKey, row: Row, seen: _Seen) -> None:
        protocol, code, _, topic = key
        if row.count < seen.count:
            # It was evicted, and made again.
            seen = self._rows[key] = _Seen()
        sums = Sums.of(
            code,
            row.cell.ok,
            row.count - seen.count,
            row.messages - seen.messages,
            row.bytes_in - seen.bytes_in,
            row.bytes_out - seen.bytes_out,
        )
        if row.groups and row.messages != seen.messages:
            for name, delivered in _deliveries(row.groups, seen):
                add_to(second.groups, name, delivered, MAX_NAMES)
        seen.count, seen.messages = row.count, row.messages
        seen.bytes_in, seen.bytes_out = row.bytes_in, row.bytes_out
        second.protocols[protocol].add(sums)
        second.codes[code] = second.codes.get(code, 0) + sums.requests
        # Only messages of a system topic count: tools ask for the route of one to find the brokers.
        if topic and (row.messages or not is_system(topic)):
            add_to(second.topics, topic, sums, MAX_NAMES)

    def _add_latencies(self, second: Second) -> None:
        for key, cell in self._counts.cells.items():
            if cell.poll or key[1] == "Telemetry":
                continue
            seen = self._latencies.get(key)
            if seen == cell.latency:
                continue
            self._latencies[key] = list(cell.latency)
            for bucket, count in enumerate(cell.latency):
                more = count - (seen[bucket] if seen else 0)
                if more:
                    second.latencies[bucket] = second.latencies.get(bucket, 0) + more


def _deliveries(groups: dict[tuple[str, bool], list[int]], seen: _Seen) -> Iterator[tuple[str, Sums]]:
    """Yield the deliveries to each group since the last read; a message counts as one request."""
    for key, (messages, size) in groups.items():
        former_messages, former_size = seen.groups.get(key, (0, 0))
        if messages == former_messages:
            continue
        seen.groups[key] = messages, size
        sums = Sums()
        sums.requests = sums.delivered = messages - former_messages
        sums.bytes_out = size - former_size
        yield key[0], sums
