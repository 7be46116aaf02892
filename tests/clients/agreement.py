"""Compare a replica's traffic records with its metrics, to the last request.

The metrics are Prometheus' text, scraped after all connections and requests ended; the records are those that the
replica had written at its end, summed by the analytics' own transform. Compared are

- requests, by protocol, code, response and topic, and errors by protocol and code;
- messages by protocol and action, and bytes of bodies by protocol, code and direction;
- messages and bytes in, by topic, and out, by topic and consumer group;
- connections opened and closed, by protocol, listener and cause.

Records name topics as clients did. Metrics fold some topics, and `_Fold` does the same here: a topic that does not
exist, or cannot, has no name; and beyond the maximum number of rows (`metrics/request_counts.py`), requests of further
topics belong to the topic `__other__`. The replica must neither drop series (`metrics.top`, `metrics.idle`) nor sample
records (`traffic.sample`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.records import Records, read
from analytics.transforms.load import load
from analytics.transforms.operations import RECEIVE, is_operation
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.observability.metrics.label_limiter import OTHER
from remoting.codes import ResponseCode

Counts = Counter[tuple[str, ...]]


class Count(StrEnum):
    """Counts of both sources; the values name the keys of the `Counts`."""

    REQUESTS = "requests by protocol, code, response and topic"
    ERRORS = "errors by protocol and code"
    MESSAGES = "messages by protocol and action"
    BODY_BYTES = "body bytes by protocol, code and direction"
    MESSAGES_IN = "messages in by topic"
    BYTES_IN = "bytes in by topic"
    MESSAGES_OUT = "messages out by topic and group"
    BYTES_OUT = "bytes out by topic and group"
    CONNECTIONS = "connections by event, protocol, listener and cause"


Counted = Mapping[Count, Counts]

# Responses after which a topic has no name, by protocol.
_NO_TOPIC = {
    ("remoting", str(int(ResponseCode.TOPIC_NOT_EXIST))),
    ("grpc", str(int(Code.TOPIC_NOT_FOUND))),
    ("grpc", str(int(Code.ILLEGAL_TOPIC))),
}
_CODES = {
    "sent": "SEND_MESSAGE SEND_MESSAGE_V2 SEND_BATCH_MESSAGE SEND_REPLY_MESSAGE SEND_REPLY_MESSAGE_V2 SendMessage",
    "pulled": "PULL_MESSAGE LITE_PULL_MESSAGE PullMessage",
    "popped": "POP_MESSAGE POP_LITE_MESSAGE ReceiveMessage",
    "acknowledged": "ACK_MESSAGE BATCH_ACK_MESSAGE AckMessage",
    "invisible_changed": "CHANGE_MESSAGE_INVISIBLETIME ChangeInvisibleDuration",
    "sent_back": "CONSUMER_SEND_MSG_BACK",
}
_ACTIONS = {code: action for action, codes in _CODES.items() for code in codes.split()}
_ROW = ("protocol", "code", "response", "topic")
# Maximum number of differences of one kind in the report.
_TOLD = 10


@dataclass(frozen=True, slots=True)
class Agreement:
    """Number of compared records, and the differences as sentences, none if equal.

    topics: those of the metrics' series; connections: opened ones.
    """

    requests: int
    errors: int
    messages: int
    topics: int
    connections: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        held = (
            f"records: {self.requests:,} requests, {self.errors:,} errors, {self.messages:,} messages, "
            f"{self.topics:,} topics, {self.connections:,} connections"
        )
        if not self.differences:
            return f"{held}, agree with the metrics"
        return "\n".join((f"{held}, DIFFER from the metrics:", *self.differences))


def compare(spark: SparkSession, metrics: str, directory: str) -> Agreement:
    """Compare the metrics (text) with the records in a directory (path or URI). Raises NoRecords."""
    samples = Samples(metrics)
    requests, connections = (read(spark, directory, name, thorough=True) for name in ("requests", "connections"))
    theirs = _of_metrics(samples)
    ours = _of_records(requests.frame, connections.frame, _Fold(theirs[Count.REQUESTS]))
    return Agreement(
        requests=requests.rows,
        errors=ours[Count.ERRORS].total(),
        messages=ours[Count.MESSAGES].total(),
        topics=len({key[-1] for key in ours[Count.REQUESTS]} - {""}),
        connections=sum(count for key, count in ours[Count.CONNECTIONS].items() if key[0] == "open"),
        differences=(
            *_losses(samples, requests, connections),
            *(line for what in Count for line in _unlike(what, theirs[what], ours[what])),
        ),
    )


def _losses(samples: "Samples", *tables: Records) -> Iterator[str]:
    dropped = samples.sums("gantry_traffic_dropped_total").total()
    if dropped:
        yield f"{dropped} records were dropped"
    for each in tables:
        for file in each.skipped:
            yield f"{file.path}: {file.reason}"


def _unlike(what: Count, metrics: Counts, records: Counts) -> Iterator[str]:
    keys = sorted(key for key in metrics.keys() | records.keys() if metrics[key] != records[key])
    for key in keys[:_TOLD]:
        yield f"{what}: {', '.join(map(repr, key))}: {metrics[key]} by the metrics, {records[key]} by the records"
    if len(keys) > _TOLD:
        yield f"{what}: {len(keys) - _TOLD} more differ"


class Samples:
    """The samples of a text in Prometheus' format."""

    def __init__(self, text: str) -> None:
        self._named: dict[str, list[Any]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._named.setdefault(sample.name, []).append(sample)

    def sums(self, name: str, *labels: str, **wanted: str) -> Counts:
        """Sum a sample by these labels, over the series with the given label values."""
        counts: Counts = Counter()
        for sample in self._named.get(name, ()):
            if wanted.items() <= sample.labels.items():
                counts[tuple(sample.labels[label] for label in labels)] += int(sample.value)
        return +counts


def _of_metrics(samples: Samples) -> Counted:
    where = ("protocol", "listener")
    opened = samples.sums("gantry_connections_opened_total", *where)
    closed = samples.sums("gantry_connections_closed_total", *where, "cause")
    return {
        Count.REQUESTS: samples.sums("gantry_requests_total", *_ROW),
        Count.ERRORS: samples.sums(
            "rocketmq_rpc_latency_count", "protocol_type", "request_code", result="process_request_failed"
        ),
        Count.MESSAGES: Counter(
            {
                key: count
                for key, count in samples.sums("gantry_messages_total", "protocol", "action").items()
                # Records do not contain the delay level of a message that was sent back.
                if key[1] != "dead_letter"
            }
        ),
        Count.BODY_BYTES: samples.sums("gantry_body_bytes_total", "protocol", "code", "direction"),
        Count.MESSAGES_IN: samples.sums("rocketmq_messages_in_total", "topic"),
        Count.BYTES_IN: samples.sums("rocketmq_throughput_in_total", "topic"),
        Count.MESSAGES_OUT: samples.sums("rocketmq_messages_out_total", "topic", "consumer_group"),
        Count.BYTES_OUT: samples.sums("rocketmq_throughput_out_total", "topic", "consumer_group"),
        Count.CONNECTIONS: Counter(
            {("open", *key, ""): count for key, count in opened.items()}
            | {("close", *key): count for key, count in closed.items()}
        ),
    }


class _Fold:
    """The metrics' folding of topics. known: their rows, `_ROW` of each."""

    def __init__(self, known: Iterable[tuple[str, ...]]) -> None:
        self._known = frozenset(known)

    def __call__(self, protocol: str, code: str, response: str, topic: str | None) -> str:
        if not topic or (protocol, response) in _NO_TOPIC:
            return ""
        row = (protocol, code, response)
        # A topic gets a row with its first such request, or never.
        return OTHER if (*row, topic) not in self._known and (*row, OTHER) in self._known else topic


def _of_records(requests: DataFrame, connections: DataFrame, fold: _Fold) -> Counted:
    counted: dict[Count, Counts] = {what: Counter() for what in Count}
    for row in load(requests, _ROW, every=None).collect():
        protocol, code, response = row.protocol, row.code, str(row.response)
        topic, action = fold(protocol, code, response, row.topic), _ACTIONS.get(code)
        counted[Count.REQUESTS][protocol, code, response, topic] += row.requests
        # RIP-46, which names this family, writes the codes of remoting in lower case.
        counted[Count.ERRORS][protocol, code.lower() if protocol == "remoting" else code] += row.errors
        counted[Count.BODY_BYTES][protocol, code, "in"] += row.bytes_in
        counted[Count.BODY_BYTES][protocol, code, "out"] += row.bytes_out
        if action is not None:
            counted[Count.MESSAGES][protocol, action] += row.messages
        if action == "sent" and topic and row.messages:
            counted[Count.MESSAGES_IN][topic,] += row.messages
            counted[Count.BYTES_IN][topic,] += row.bytes_in
    deliveries = requests.where(is_operation(RECEIVE) & (f.col("messages") > 0))
    for row in load(deliveries, (*_ROW, "group"), every=None).collect():
        topic = fold(row.protocol, row.code, str(row.response), row.topic)
        if topic:
            counted[Count.MESSAGES_OUT][topic, row.group or ""] += row.messages
            counted[Count.BYTES_OUT][topic, row.group or ""] += row.bytes_out
    events = connections.groupBy("event", "protocol", "listener", "cause").agg(f.count(f.lit(1)).alias("rows"))
    for row in events.collect():
        counted[Count.CONNECTIONS][row.event, row.protocol, row.listener, row.cause or ""] += row.rows
    return counted
