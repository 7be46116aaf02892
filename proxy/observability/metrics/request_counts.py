"""Counts of requests: number, size and latency by protocol, code, response code and topic.

Latencies are collected, and sorted into the buckets of histograms when many are there or the counts are read: to sort
many at once costs less than to search the bucket of each.
"""

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from operator import sub
from typing import Final

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.events import LONG_POLLS, MAX_NAME_LENGTH, Observation
from proxy.observability.metrics.dead_letters import DeadLetterCounts
from proxy.observability.metrics.family import Distribution
from proxy.observability.metrics.label_limiter import OTHER
from proxy.observability.metrics.request_families import BOUNDS, DELIVERIES
from remoting.codes import ResponseCode

# Rows after which requests with further topics are counted under `OTHER`. Failed requests may use half of the rows, so
# that invented names cannot displace existing topics.
_MAX_ROWS = 10_000
# Latencies that are collected before they are sorted into buckets.
_BATCH: Final = 256
# Weight of the latest response in a broker's moving average.
_LATEST_WEIGHT = 0.05
# Responses that say that the topic does not or cannot exist, so that its name may be invented.
_NO_TOPIC = frozenset(
    {
        ("remoting", int(ResponseCode.TOPIC_NOT_EXIST)),
        ("grpc", int(Code.TOPIC_NOT_FOUND)),
        ("grpc", int(Code.ILLEGAL_TOPIC)),
    }
)

# Protocol, code and response code; with the topic, the key of a row.
CellKey = tuple[str, str, int]
RowKey = tuple[str, str, int, str | None]


class CodeTotals:
    """Totals of one request code or rpc. failed: answered with an error; seconds: sum of the latencies."""

    __slots__ = ("answered", "failed", "seconds")

    def __init__(self) -> None:
        self.answered = self.failed = 0
        self.seconds = 0.0


def _count(samples: list[float], buckets: list[int]) -> float:
    """Count samples in their buckets of `BOUNDS`; return their sum."""
    total = sum(samples)
    samples.sort()
    size = len(samples)
    counted = index = 0
    while counted < size and index < len(BOUNDS):
        covered = bisect_right(samples, BOUNDS[index], counted)
        buckets[index] += covered - counted
        counted = covered
        index += 1
    buckets[-1] += size - counted
    return total


class Cell:
    """Latencies of one protocol, code and response code.

    latency, broker, queueing: counts by bucket of `BOUNDS`; with the suffix `_seconds`, sums. `fold` adds what has been
    collected since: latencies of requests that no broker served, and of the others with the brokers' part of them.
    """

    __slots__ = (
        *("broker", "broker_seconds", "exemplars", "latency", "latency_seconds", "ok"),
        *("of_brokers", "of_forwarded", "of_local", "poll", "queueing", "queueing_seconds"),
    )

    def __init__(self, ok: bool, poll: bool) -> None:
        self.ok = ok
        self.poll = poll
        self.latency, self.broker, self.queueing = ([0] * (len(BOUNDS) + 1) for _ in range(3))
        self.latency_seconds = self.broker_seconds = self.queueing_seconds = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}
        self.of_local: list[float] = []
        self.of_forwarded: list[float] = []
        self.of_brokers: list[float] = []

    def fold(self) -> None:
        """Add the collected latencies to the counts."""
        local, forwarded, brokers = self.of_local, self.of_forwarded, self.of_brokers
        if not local and not forwarded:
            return
        self.of_local, self.of_forwarded, self.of_brokers = [], [], []
        self.queueing_seconds += _count(list(map(sub, forwarded, brokers)), self.queueing)
        self.broker_seconds += _count(brokers, self.broker)
        self.latency_seconds += _count(local + forwarded, self.latency)


class Row:
    """Counts of one protocol, code, response code and topic.

    groups: messages and bytes delivered, by consumer group and whether the answer has a message that was delivered
    before; None if the code delivers none. redeliveries: answers with such a message. checked_count: the count at the
    last idle check; unchanged_since: time in seconds at which an idle check first found that count.
    """

    __slots__ = (
        *("bytes_in", "bytes_out", "cell", "checked_count", "count", "groups", "messages"),
        *("redeliveries", "unchanged_since"),
    )

    def __init__(self, cell: Cell, delivers: bool) -> None:
        self.cell = cell
        self.count = self.messages = self.bytes_in = self.bytes_out = self.redeliveries = self.checked_count = 0
        self.unchanged_since = 0.0
        self.groups: dict[tuple[str, bool], list[int]] | None = {} if delivers else None


class BrokerCounts:
    """Counts of the requests that one broker served.

    answers: those that are not long polls. average, longest: their moving average and maximum in seconds. `fold` adds
    the latencies that have been collected since.
    """

    __slots__ = ("answers", "average", "buckets", "errors", "longest", "of_answers", "of_polls", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = self.average = self.longest = 0.0
        self.errors = self.answers = 0
        self.of_answers: list[float] = []
        self.of_polls: list[float] = []

    def fold(self) -> None:
        """Add the collected latencies to the counts."""
        answers, polls = self.of_answers, self.of_polls
        if not answers and not polls:
            return
        self.of_answers, self.of_polls = [], []
        if answers:
            average = self.average if self.answers else answers[0]
            for seconds in answers:
                average += (seconds - average) * _LATEST_WEIGHT
            self.average = average
            self.answers += len(answers)
            self.longest = max(self.longest, max(answers))
        self.seconds += _count(answers + polls, self.buckets)


class RequestCounts:
    """Counts observations.

    idle: seconds without a request after which `evict_idle` removes a row. cells, rows, brokers: the counts. evicted:
    sums of removed rows, so that sums over topics never fall: bytes in, bytes out, messages, redeliveries.
    dead_letters: counted apart, since the commands of rpcs are not observed.
    """

    def __init__(self, idle: float = 3_600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle
        self._clock = clock
        self.rows: dict[RowKey, Row] = {}
        self._cells: dict[CellKey, Cell] = {}
        self._brokers: dict[str, BrokerCounts] = {}
        self.evicted: dict[CellKey, list[int]] = {}
        self.dead_letters = DeadLetterCounts()

    @property
    def cells(self) -> dict[CellKey, Cell]:
        for cell in self._cells.values():
            cell.fold()
        return self._cells

    @property
    def brokers(self) -> dict[str, BrokerCounts]:
        for broker in self._brokers.values():
            broker.fold()
        return self._brokers

    def observe(self, observation: Observation) -> None:
        """Observer: count an answered request."""
        row = self.rows.get((observation.protocol, observation.code, observation.response, observation.topic))
        if row is None:
            row = self._new_row(observation)
        row.count += 1
        row.bytes_in += observation.bytes_in
        row.bytes_out += observation.bytes_out
        messages = observation.messages
        if messages:
            row.messages += messages
            if row.groups is not None:
                self._count_delivery(row, observation)
        cell, seconds, broker_seconds = row.cell, observation.seconds, observation.broker_seconds
        if observation.trace_id is not None:
            cell.exemplars[bisect_left(BOUNDS, seconds)] = (observation.trace_id, seconds, time.time())
        if broker_seconds is None:
            samples = cell.of_local
            samples.append(seconds)
        else:
            samples = cell.of_forwarded
            samples.append(seconds)
            cell.of_brokers.append(broker_seconds)
            self._count_broker(cell, observation.broker or "", broker_seconds)
        if len(samples) >= _BATCH:
            cell.fold()

    def _count_broker(self, cell: Cell, name: str, seconds: float) -> None:
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._new_broker(name)
        samples = broker.of_polls if cell.poll else broker.of_answers
        samples.append(seconds)
        if len(samples) >= _BATCH:
            broker.fold()
        if not cell.ok:
            broker.errors += 1

    def _count_delivery(self, row: Row, observation: Observation) -> None:
        groups = row.groups
        assert groups is not None
        retry = observation.attempt is not None and observation.attempt > 1
        if retry:
            row.redeliveries += 1
        group = observation.group or ""
        counts = groups.get((group, retry))
        if counts is None:
            if len(groups) >= _MAX_ROWS or len(group) > MAX_NAME_LENGTH:
                group = OTHER
            counts = groups.setdefault((group, retry), [0, 0])
        counts[0] += observation.messages
        counts[1] += observation.bytes_out

    def _new_row(self, observation: Observation) -> Row:
        # An empty topic has the same time series as none.
        topic = observation.topic or None
        if topic is not None:
            max_rows = _MAX_ROWS if observation.ok else _MAX_ROWS // 2
            if (observation.protocol, observation.response) in _NO_TOPIC:
                topic = None
            elif len(self.rows) >= max_rows or len(topic) > MAX_NAME_LENGTH:
                topic = OTHER
        key = (observation.protocol, observation.code, observation.response, topic)
        row = self.rows.get(key)
        if row is None:
            cell = self._cells.get(key[:3])
            if cell is None:
                cell = self._cells[key[:3]] = Cell(observation.ok, observation.code in LONG_POLLS)
            row = self.rows[key] = Row(cell, observation.code in DELIVERIES)
        return row

    def _new_broker(self, name: str) -> BrokerCounts:
        if len(self._brokers) >= _MAX_ROWS or len(name) > MAX_NAME_LENGTH:
            name = OTHER
        return self._brokers.setdefault(name, BrokerCounts())

    def evict_idle(self) -> None:
        """Remove the rows of topics without a request for the idle time, so that invented names do not accumulate."""
        now = self._clock()
        idle = []
        for key, row in self.rows.items():
            if row.checked_count != row.count:
                row.checked_count, row.unchanged_since = row.count, now
            elif now - row.unchanged_since > self._idle and key[3] is not None:
                idle.append(key)
        for key in idle:
            row = self.rows.pop(key)
            sums = self.evicted.setdefault(key[:3], [0, 0, 0, 0])
            for position, count in enumerate((row.bytes_in, row.bytes_out, row.messages, row.redeliveries)):
                sums[position] += count

    # Totals.

    def answers(self) -> Counter[CellKey]:
        """Return the number of requests by protocol, code and response code."""
        counts: Counter[CellKey] = Counter()
        for key, cell in self.cells.items():
            counts[key] = sum(cell.latency)
        return counts

    def codes(self) -> dict[tuple[str, str], CodeTotals]:
        """Return the totals by protocol and code."""
        totals: dict[tuple[str, str], CodeTotals] = {}
        for (protocol, code, _), cell in self.cells.items():
            of_code = totals.setdefault((protocol, code), CodeTotals())
            answered = sum(cell.latency)
            of_code.answered += answered
            of_code.seconds += cell.latency_seconds
            if not cell.ok:
                of_code.failed += answered
        return totals

    def outcomes(self, protocol: str) -> Counter[bool]:
        """Return the number of a protocol's requests, by whether they succeeded."""
        counts: Counter[bool] = Counter()
        for (name, _, _), cell in self.cells.items():
            if name == protocol:
                counts[cell.ok] += sum(cell.latency)
        return counts

    def served(self, protocol: str) -> int:
        """Return the number of a protocol's requests that were sent to a broker."""
        return sum(sum(cell.broker) for (name, _, _), cell in self.cells.items() if name == protocol)

    def latency(self, protocol: str) -> Distribution:
        """Return the latencies in seconds of all requests of a protocol."""
        merged = Distribution.empty(BOUNDS)
        for (name, _, _), cell in self.cells.items():
            if name == protocol:
                merged.add(Distribution(cell.latency, cell.latency_seconds))
        return merged
