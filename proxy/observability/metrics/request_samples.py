"""Samples of the request metrics, made from the counts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.events import LONG_POLLS
from proxy.observability.metrics import request_families as families
from proxy.observability.metrics.family import Distribution, Family, Labels, Samples, Value
from proxy.observability.metrics.request_counts import Cell, CellKey, RequestCounts
from remoting.codes import ResponseCode
from remoting.names import RETRY_PREFIX, is_system

_BOOLEANS = {True: "true", False: "false"}
_RESPONSES = frozenset(map(int, ResponseCode))


def read(counts: RequestCounts) -> Iterator[tuple[Family, Samples]]:
    """Yield every family of requests, after the rows of idle topics are evicted."""
    counts.evict_idle()
    yield (
        families.REQUEST_COUNT,
        {
            (protocol, code, str(response), topic or ""): row.count
            for (protocol, code, response, topic), row in counts.rows.items()
        },
    )
    yield families.LATENCY, {_rpc_labels(key, cell): _milliseconds(cell) for key, cell in counts.cells.items()}
    yield families.BROKER_SECONDS, _by_request(counts, lambda cell: Distribution(cell.broker, cell.broker_seconds))
    yield (
        families.QUEUEING_SECONDS,
        _by_request(counts, lambda cell: Distribution(cell.queueing, cell.queueing_seconds)),
    )
    brokers = counts.brokers.items()
    yield (
        families.UPSTREAM_SECONDS,
        {(name,): Distribution(list(broker.buckets), broker.seconds) for name, broker in brokers},
    )
    yield families.UPSTREAM_ERRORS, {(name,): broker.errors for name, broker in brokers if broker.errors}
    yield from _without_topics(counts)
    yield from _by_topic(counts)


def _by_request(counts: RequestCounts, distribution_of: Callable[[Cell], Distribution]) -> Samples:
    merged: dict[Labels, Value] = {}
    for (protocol, code, _), cell in counts.cells.items():
        distribution = merged.setdefault((protocol, code), Distribution.empty(families.BOUNDS))
        assert isinstance(distribution, Distribution)
        distribution.add(distribution_of(cell))
    return {key: value for key, value in merged.items() if isinstance(value, Distribution) and any(value.counts)}


def _without_topics(counts: RequestCounts) -> Iterator[tuple[Family, Samples]]:
    """Yield the families without a topic label, from current and evicted rows."""
    sums = {key: list(evicted) for key, evicted in counts.evicted.items()}
    for (protocol, code, response, _), row in counts.rows.items():
        key = protocol, code, response
        of_key = sums.get(key)
        if of_key is None:
            of_key = sums[key] = [0, 0, 0, 0]
        of_key[0] += row.bytes_in
        of_key[1] += row.bytes_out
        of_key[2] += row.messages
        of_key[3] += row.redeliveries
    body_bytes: Counter[Labels] = Counter()
    by_action: Counter[Labels] = Counter()
    redelivered: Counter[Labels] = Counter()
    for (protocol, code, _), (bytes_in, bytes_out, messages, redeliveries) in sums.items():
        body_bytes[protocol, code, "in"] += bytes_in
        body_bytes[protocol, code, "out"] += bytes_out
        if code in families.ACTIONS:
            by_action[protocol, families.ACTIONS[code]] += messages
        redelivered[protocol,] += redeliveries
    dead_letters: Counter[Labels] = Counter()
    for (protocol, group, topic), count in counts.dead_letters.rows.items():
        by_action[protocol, "dead_letter"] += count
        dead_letters[topic, group, _BOOLEANS[is_system(topic)]] += count
    yield families.DEAD_LETTERS, dict(dead_letters)
    yield families.BODY_BYTES, {key: count for key, count in body_bytes.items() if count}
    yield families.MESSAGES, {key: count for key, count in by_action.items() if count}
    yield families.REDELIVERIES, {key: count for key, count in redelivered.items() if count}


def _by_topic(counts: RequestCounts) -> Iterator[tuple[Family, Samples]]:
    messages_in: defaultdict[Labels, int] = defaultdict(int)
    bytes_in: defaultdict[Labels, int] = defaultdict(int)
    messages_out: defaultdict[Labels, int] = defaultdict(int)
    bytes_out: defaultdict[Labels, int] = defaultdict(int)
    for (_, code, _, topic), row in counts.rows.items():
        if topic is None or not row.messages:
            continue
        system = _BOOLEANS[is_system(topic)]
        if row.groups is not None:
            from_retry_topic = topic.startswith(RETRY_PREFIX)
            for (group, redelivered), (messages, size) in row.groups.items():
                # Retries are mapped back to the original topic for consumers that pop.
                labels = topic, group, system, _BOOLEANS[from_retry_topic or redelivered]
                messages_out[labels] += messages
                bytes_out[labels] += size
        elif families.ACTIONS.get(code) == "sent":
            messages_in[topic, system] += row.messages
            bytes_in[topic, system] += row.bytes_in
    yield families.MESSAGES_IN, messages_in
    yield families.MESSAGES_OUT, messages_out
    yield families.THROUGHPUT_IN, bytes_in
    yield families.THROUGHPUT_OUT, bytes_out


def _rpc_labels(key: CellKey, cell: Cell) -> Labels:
    """Return the labels of RIP-46's latency histogram."""
    protocol, code, response = key
    result = "success" if cell.ok else "process_request_failed"
    name = code.lower() if protocol == "remoting" else code
    return protocol, name, _response_name(protocol, response), str(code in LONG_POLLS).lower(), result


def _response_name(protocol: str, number: int) -> str:
    if protocol == "remoting":
        return ResponseCode(number).name.lower() if number in _RESPONSES else str(number)
    return Code.Name(number).lower() if number in Code.values() else str(number)


def _milliseconds(cell: Cell) -> Distribution:
    exemplars = {bucket: (trace, seconds * 1000, time) for bucket, (trace, seconds, time) in cell.exemplars.items()}
    return Distribution(list(cell.latency), cell.latency_seconds * 1000, exemplars)
