"""Requests: how many, how large, how long, by protocol, code, answer and topic."""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.events import LONG_POLLS, Observation
from proxy.observability.metrics.family import Distribution, Family, Kind, Labels, Samples, Value
from proxy.observability.metrics.label_limiter import OTHER
from remoting.codes import ResponseCode
from remoting.names import RETRY_PREFIX, is_system

# Upper bounds of latencies in seconds. Between a few and a hundred milliseconds is where brokers differ.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Rows beyond which requests about further topics are counted as of `OTHER`. Those that fail find half of the room:
# names that are made up shall not take it from those that are not.
_MAX_ROWS = 10_000
# Weight of the newest answer in a broker's moving average.
_NEWEST = 0.05
# The longest name that a topic or group can have.
_LONGEST = 255
# What says that there is no such topic, or can be none: then the name is anybody's invention.
_NO_TOPIC = frozenset(
    {
        ("remoting", int(ResponseCode.TOPIC_NOT_EXIST)),
        ("grpc", int(Code.TOPIC_NOT_FOUND)),
        ("grpc", int(Code.ILLEGAL_TOPIC)),
    }
)

_IN = "SEND_MESSAGE SEND_MESSAGE_V2 SEND_BATCH_MESSAGE SEND_REPLY_MESSAGE SEND_REPLY_MESSAGE_V2 SendMessage"
_PULLED = "PULL_MESSAGE LITE_PULL_MESSAGE PullMessage"
_POPPED = "POP_MESSAGE POP_LITE_MESSAGE ReceiveMessage"
# What a request does with the messages that it counts.
_ACTIONS: dict[str, str] = {
    **dict.fromkeys(_IN.split(), "sent"),
    **dict.fromkeys(_PULLED.split(), "pulled"),
    **dict.fromkeys(_POPPED.split(), "popped"),
    **dict.fromkeys(("ACK_MESSAGE", "BATCH_ACK_MESSAGE", "AckMessage"), "acknowledged"),
    **dict.fromkeys(("CHANGE_MESSAGE_INVISIBLETIME", "ChangeInvisibleDuration"), "invisible_changed"),
    "CONSUMER_SEND_MSG_BACK": "sent_back",
    "ForwardMessageToDeadLetterQueue": "dead_letter",
}
_DELIVERIES = frozenset(code for code, action in _ACTIONS.items() if action in ("pulled", "popped"))

_BY_REQUEST = ("protocol", "code")
REQUEST_COUNT = Family(
    "gantry_requests",
    Kind.COUNTER,
    "Requests and rpcs that were answered, by response code (remoting's, or the v2 API's) and topic.",
    (*_BY_REQUEST, "response", "topic"),
)
LATENCY = Family(
    "rocketmq_rpc_latency",
    Kind.HISTOGRAM,
    "Milliseconds from a request's arrival to its answer.",
    ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    bounds=tuple(bound * 1000 for bound in BOUNDS),
)
BROKER_SECONDS = Family(
    "gantry_broker_seconds",
    Kind.HISTOGRAM,
    "The part of a request's time that brokers took, polls included.",
    _BY_REQUEST,
    bounds=BOUNDS,
)
QUEUEING_SECONDS = Family(
    "gantry_queueing_seconds",
    Kind.HISTOGRAM,
    "The rest of the time of requests that went to a broker: waiting for a route or a connection, and our own work.",
    _BY_REQUEST,
    bounds=BOUNDS,
)
UPSTREAM_SECONDS = Family(
    "gantry_upstream_seconds",
    Kind.HISTOGRAM,
    "Time that each broker took for requests of clients; their number is its count.",
    ("broker",),
    bounds=BOUNDS,
)
UPSTREAM_ERRORS = Family(
    "gantry_upstream_errors",
    Kind.COUNTER,
    "Requests that went to a broker and were answered with an error, the broker's or that it could not be reached.",
    ("broker",),
)
BODY_BYTES = Family(
    "gantry_body_bytes", Kind.COUNTER, "Bytes of bodies in requests and answers.", (*_BY_REQUEST, "direction")
)
MESSAGES = Family(
    "gantry_messages",
    Kind.COUNTER,
    "Messages by what was done: sent, pulled, popped, acknowledged, invisible_changed, sent_back, dead_letter.",
    ("protocol", "action"),
)
REDELIVERIES = Family(
    "gantry_redeliveries",
    Kind.COUNTER,
    "Answers with a message that had been delivered before.",
    ("protocol",),
)
_IN_LABELS = ("topic", "is_system")
_OUT_LABELS = ("topic", "consumer_group", "is_system", "is_retry")
MESSAGES_IN = Family("rocketmq_messages_in", Kind.COUNTER, "Messages that producers sent.", _IN_LABELS)
MESSAGES_OUT = Family("rocketmq_messages_out", Kind.COUNTER, "Messages that consumers were given.", _OUT_LABELS)
THROUGHPUT_IN = Family("rocketmq_throughput_in", Kind.COUNTER, "Bytes of bodies that producers sent.", _IN_LABELS)
THROUGHPUT_OUT = Family(
    "rocketmq_throughput_out", Kind.COUNTER, "Bytes of bodies that consumers were given.", _OUT_LABELS
)


@dataclass(slots=True)
class CodeSum:
    """Of one request code or rpc: how many were answered, how many of these by an error, and how long all took (s)."""

    answered: int = 0
    failed: int = 0
    seconds: float = 0.0


class _Cell:
    """Requests of one protocol, code and response code. Times are in seconds, lists are buckets."""

    __slots__ = (
        *("broker", "broker_seconds", "exemplars", "ok", "poll", "queueing"),
        *("queueing_seconds", "seconds", "total"),
    )

    def __init__(self, ok: bool, poll: bool) -> None:
        self.ok = ok
        self.poll = poll
        self.total, self.broker, self.queueing = ([0] * (len(BOUNDS) + 1) for _ in range(3))
        self.seconds = self.broker_seconds = self.queueing_seconds = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}


class _Row:
    """The same, of one topic. groups: messages and bytes delivered, by consumer group; None where nothing is.

    seen: the count at the last look; since: when a look first found it so, in seconds.
    """

    __slots__ = ("again", "bytes_in", "bytes_out", "cell", "count", "groups", "messages", "seen", "since")

    def __init__(self, cell: _Cell, delivers: bool) -> None:
        self.cell = cell
        self.count = self.messages = self.bytes_in = self.bytes_out = self.again = self.seen = 0
        self.since = 0.0
        self.groups: dict[str, list[int]] | None = {} if delivers else None


class Broker:
    """Requests that one broker served. answers: those but polls; average, longest: their moving average and the longest
    of them, in seconds."""

    __slots__ = ("answers", "average", "buckets", "errors", "longest", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = self.average = self.longest = 0.0
        self.errors = self.answers = 0


_Key = tuple[str, str, int, str | None]


class Requests:
    """Counts observations. idle: seconds without a request after which a row is dropped, when it is looked at."""

    def __init__(self, idle: float = 3_600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle
        self._clock = clock
        self._rows: dict[_Key, _Row] = {}
        self._cells: dict[tuple[str, str, int], _Cell] = {}
        self.brokers: dict[str, Broker] = {}
        # Of rows that were dropped, by protocol, code and response code, so that sums over topics never fall: bytes in,
        # bytes out, messages, redeliveries.
        self._dropped: dict[tuple[str, str, int], list[int]] = {}

    def observe(self, seen: Observation) -> None:
        """Observer: one request has been answered."""
        row = self._rows.get((seen.protocol, seen.code, seen.response, seen.topic))
        if row is None:
            row = self._new_row(seen)
        row.count += 1
        row.bytes_in += seen.bytes_in
        row.bytes_out += seen.bytes_out
        messages = seen.messages
        if messages:
            row.messages += messages
            if row.groups is not None:
                self._delivered(row, seen)
        cell, seconds = row.cell, seen.seconds
        slot = bisect_left(BOUNDS, seconds)
        cell.total[slot] += 1
        cell.seconds += seconds
        if seen.trace_id is not None:
            cell.exemplars[slot] = (seen.trace_id, seconds, time.time())
        broker_seconds = seen.broker_seconds
        if broker_seconds is not None:
            slot = bisect_left(BOUNDS, broker_seconds)
            cell.broker[slot] += 1
            cell.broker_seconds += broker_seconds
            rest = seconds - broker_seconds
            cell.queueing[bisect_left(BOUNDS, rest)] += 1
            cell.queueing_seconds += rest
            broker = self.brokers.get(seen.broker or "")
            if broker is None:
                broker = self._new_broker(seen.broker or "")
            broker.buckets[slot] += 1
            broker.seconds += broker_seconds
            if not cell.ok:
                broker.errors += 1
            if not cell.poll:
                broker.average += (broker_seconds - broker.average) * (_NEWEST if broker.answers else 1.0)
                broker.answers += 1
                if broker_seconds > broker.longest:
                    broker.longest = broker_seconds

    def _delivered(self, row: _Row, seen: Observation) -> None:
        groups = row.groups
        assert groups is not None
        if seen.attempt is not None and seen.attempt > 1:
            row.again += 1
        group = seen.group or ""
        counts = groups.get(group)
        if counts is None:
            if len(groups) >= _MAX_ROWS or len(group) > _LONGEST:
                group = OTHER
            counts = groups.setdefault(group, [0, 0])
        counts[0] += seen.messages
        counts[1] += seen.bytes_out

    def _new_row(self, seen: Observation) -> _Row:
        # In the series, none and an empty one are the same.
        topic = seen.topic or None
        if topic is not None:
            if (seen.protocol, seen.response) in _NO_TOPIC:
                topic = None
            elif len(self._rows) >= (_MAX_ROWS if seen.ok else _MAX_ROWS // 2) or len(topic) > _LONGEST:
                topic = OTHER
        key = (seen.protocol, seen.code, seen.response, topic)
        row = self._rows.get(key)
        if row is None:
            cell = self._cells.get(key[:3])
            if cell is None:
                cell = self._cells[key[:3]] = _Cell(seen.ok, seen.code in LONG_POLLS)
            row = self._rows[key] = _Row(cell, seen.code in _DELIVERIES)
        return row

    def _new_broker(self, name: str) -> Broker:
        if len(self.brokers) >= _MAX_ROWS or len(name) > _LONGEST:
            name = OTHER
        return self.brokers.setdefault(name, Broker())

    # What was counted.

    def answers(self) -> Counter[tuple[str, str, int]]:
        """Requests by protocol, code and response code."""
        counts: Counter[tuple[str, str, int]] = Counter()
        for key, cell in self._cells.items():
            counts[key] = sum(cell.total)
        return counts

    def codes(self) -> dict[tuple[str, str], CodeSum]:
        """Requests by protocol and code."""
        sums: dict[tuple[str, str], CodeSum] = {}
        for key, cell in self._cells.items():
            joint = sums.setdefault(_request(key), CodeSum())
            answered = sum(cell.total)
            joint.answered += answered
            joint.seconds += cell.seconds
            if not cell.ok:
                joint.failed += answered
        return sums

    def outcomes(self, protocol: str) -> Counter[bool]:
        """Requests of a protocol by whether all went well."""
        counts: Counter[bool] = Counter()
        for (name, _, _), cell in self._cells.items():
            if name == protocol:
                counts[cell.ok] += sum(cell.total)
        return counts

    def served(self, protocol: str) -> int:
        """Requests of a protocol that a broker was asked for."""
        return sum(sum(cell.broker) for (name, _, _), cell in self._cells.items() if name == protocol)

    def latency(self, protocol: str) -> Distribution:
        """Seconds of all requests of a protocol."""
        joint = Distribution.over(BOUNDS)
        for (name, _, _), cell in self._cells.items():
            if name == protocol:
                joint.add(Distribution(cell.total, cell.seconds))
        return joint

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module, as counted so far."""
        self._evict()
        yield REQUEST_COUNT, {(*_request(key), str(key[2]), key[3] or ""): row.count for key, row in self._rows.items()}
        yield LATENCY, {_rpc(key, cell): _milliseconds(cell) for key, cell in self._cells.items()}
        yield BROKER_SECONDS, self._by_request(lambda cell: Distribution(cell.broker, cell.broker_seconds))
        yield QUEUEING_SECONDS, self._by_request(lambda cell: Distribution(cell.queueing, cell.queueing_seconds))
        brokers = self.brokers.items()
        yield (
            UPSTREAM_SECONDS,
            {(name,): Distribution(list(broker.buckets), broker.seconds) for name, broker in brokers},
        )
        yield UPSTREAM_ERRORS, {(name,): broker.errors for name, broker in brokers if broker.errors}
        yield from self._sums()
        yield from self._topics()

    def _by_request(self, part: Callable[[_Cell], Distribution]) -> Samples:
        joint: dict[Labels, Value] = {}
        for key, cell in self._cells.items():
            distribution = joint.setdefault(_request(key), Distribution.over(BOUNDS))
            assert isinstance(distribution, Distribution)
            distribution.add(part(cell))
        return {key: value for key, value in joint.items() if isinstance(value, Distribution) and any(value.counts)}

    def _sums(self) -> Iterator[tuple[Family, Samples]]:
        """What needs no topic, of rows that there are and that there were."""
        sums = {key: list(counts) for key, counts in self._dropped.items()}
        for (protocol, code, response, _), row in self._rows.items():
            key = protocol, code, response
            joint = sums.get(key)
            if joint is None:
                joint = sums[key] = [0, 0, 0, 0]
            joint[0] += row.bytes_in
            joint[1] += row.bytes_out
            joint[2] += row.messages
            joint[3] += row.again
        body: Counter[Labels] = Counter()
        done: Counter[Labels] = Counter()
        again: Counter[Labels] = Counter()
        for (protocol, code, _), (bytes_in, bytes_out, messages, repeated) in sums.items():
            body[protocol, code, "in"] += bytes_in
            body[protocol, code, "out"] += bytes_out
            if code in _ACTIONS:
                done[protocol, _ACTIONS[code]] += messages
            again[protocol,] += repeated
        yield BODY_BYTES, {key: count for key, count in body.items() if count}
        yield MESSAGES, {key: count for key, count in done.items() if count}
        yield REDELIVERIES, {key: count for key, count in again.items() if count}

    def _topics(self) -> Iterator[tuple[Family, Samples]]:
        messages_in: defaultdict[Labels, int] = defaultdict(int)
        bytes_in: defaultdict[Labels, int] = defaultdict(int)
        messages_out: defaultdict[Labels, int] = defaultdict(int)
        bytes_out: defaultdict[Labels, int] = defaultdict(int)
        for (_, code, _, topic), row in self._rows.items():
            if topic is None or not row.messages:
                continue
            system = _TEXTS[is_system(topic)]
            if row.groups is not None:
                retry = _TEXTS[topic.startswith(RETRY_PREFIX)]
                for group, (messages, size) in row.groups.items():
                    out = topic, group, system, retry
                    messages_out[out] += messages
                    bytes_out[out] += size
            elif _ACTIONS.get(code) == "sent":
                messages_in[topic, system] += row.messages
                bytes_in[topic, system] += row.bytes_in
        yield MESSAGES_IN, messages_in
        yield MESSAGES_OUT, messages_out
        yield THROUGHPUT_IN, bytes_in
        yield THROUGHPUT_OUT, bytes_out

    def _evict(self) -> None:
        """Drop rows of topics that nobody has asked about for long: names that clients make up must not stay."""
        now = self._clock()
        silent = []
        for key, row in self._rows.items():
            if row.seen != row.count:
                row.seen, row.since = row.count, now
            elif now - row.since > self._idle and key[3] is not None:
                silent.append(key)
        for key in silent:
            row = self._rows.pop(key)
            sums = self._dropped.setdefault(key[:3], [0, 0, 0, 0])
            for position, count in enumerate((row.bytes_in, row.bytes_out, row.messages, row.again)):
                sums[position] += count


def _request(key: tuple[str, str, int] | _Key) -> tuple[str, str]:
    return key[0], key[1]


def _rpc(key: tuple[str, str, int], cell: _Cell) -> Labels:
    protocol, code, response = key
    result = "success" if cell.ok else "process_request_failed"
    name = code.lower() if protocol == "remoting" else code
    return protocol, name, _response(protocol, response), str(code in LONG_POLLS).lower(), result


def _response(protocol: str, number: int) -> str:
    if protocol == "remoting":
        return ResponseCode(number).name.lower() if number in _RESPONSES else str(number)
    return Code.Name(number).lower() if number in Code.values() else str(number)


_TEXTS = {True: "true", False: "false"}
_RESPONSES = frozenset(map(int, ResponseCode))


def _milliseconds(cell: _Cell) -> Distribution:
    exemplars = {slot: (trace, seconds * 1000, when) for slot, (trace, seconds, when) in cell.exemplars.items()}
    return Distribution(list(cell.total), cell.seconds * 1000, exemplars)
