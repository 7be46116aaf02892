"""The traffic records' schema, defined once: the writer makes Arrow of it, the analytics Spark's types.

Plain Python, so that whoever reads records needs nothing else of the proxy. Times are microseconds of the epoch, UTC.
A new column is nullable and goes to the end, with a new VERSION: readers take what an older file does not have as null.
"""

from dataclasses import dataclass
from enum import StrEnum

# Written into every file's metadata under VERSION_KEY, and into every row.
VERSION = 1
VERSION_KEY = "gantry.schema"


class Kind(StrEnum):
    """What a column holds."""

    TIMESTAMP = "timestamp"  # microseconds, UTC
    STRING = "string"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `few` values are worth a dictionary."""

    name: str
    kind: Kind
    text: str
    nullable: bool = True
    few: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a directory of its name, with partitions `date=YYYY-MM-DD/hour=HH` (UTC) by its column `time`."""

    name: str
    text: str
    columns: tuple[Column, ...]


_WHERE = (
    Column("schema", Kind.SHORT, "version of this schema", nullable=False),
    Column("time", Kind.TIMESTAMP, "when it began", nullable=False),
    Column("replica", Kind.STRING, "the replica's name", nullable=False, few=True),
    Column("worker", Kind.SHORT, "number of the worker process, from 0", nullable=False),
    Column("protocol", Kind.STRING, "remoting or grpc; null: not known yet", few=True),
)
_WHO = (
    Column("client_id", Kind.STRING, "the client's id", few=True),
    Column("address", Kind.STRING, "the client's address, without the port", few=True),
    Column("language", Kind.STRING, "what its SDK is written in, as it says", few=True),
    Column("version", Kind.STRING, "the SDK's version", few=True),
)

REQUESTS = Table(
    "requests",
    "one row per request: a remoting request, or an rpc",
    (
        *_WHERE,
        Column("code", Kind.STRING, "name of the request code or of the rpc", nullable=False, few=True),
        *_WHO,
        Column("topic", Kind.STRING, "topic", few=True),
        Column("group", Kind.STRING, "producer or consumer group", few=True),
        Column("broker", Kind.STRING, "broker name", few=True),
        Column("queue", Kind.INT, "queue id; null: none, or the broker's choice"),
        Column("messages", Kind.INT, "messages sent, delivered or acknowledged", nullable=False),
        Column("bytes_in", Kind.LONG, "bytes of the request's body", nullable=False),
        Column("bytes_out", Kind.LONG, "bytes of the answer's body", nullable=False),
        Column("latency_us", Kind.LONG, "time until the answer in microseconds", nullable=False),
        Column("broker_us", Kind.LONG, "of this, the brokers' part; null: no broker was asked"),
        Column("response", Kind.INT, "response code (remoting) or v2 code (gRPC)", nullable=False),
        Column("ok", Kind.BOOLEAN, "the answer is no error; nothing found is none", nullable=False),
        Column("attempt", Kind.INT, "delivery attempt, the highest of the answer, from 1; null: nothing delivered"),
        Column("delay_ms", Kind.LONG, "how far ahead its delivery was set in milliseconds; null: at once"),
        Column("tls", Kind.BOOLEAN, "over TLS", nullable=False),
        Column("trace_id", Kind.STRING, "W3C trace id of a sampled request"),
        Column("key_hash", Kind.LONG, "hash of the message's first key, else of its message group or sharding key"),
        Column("weight", Kind.DOUBLE, "how many requests the row stands for, where a share is kept; null: itself"),
    ),
)

CONNECTIONS = Table(
    "connections",
    "one row when a connection opens, one when it closes",
    (
        *_WHERE,
        Column("event", Kind.STRING, "open or close", nullable=False, few=True),
        Column("connection", Kind.LONG, "its number in this process", nullable=False),
        *_WHO,
        Column("port", Kind.INT, "the client's port"),
        Column("listener", Kind.STRING, "the listener's name", few=True),
        Column("tls", Kind.BOOLEAN, "over TLS", nullable=False),
        Column("cause", Kind.STRING, "why it closed", few=True),
        Column("age_ms", Kind.LONG, "how long it was open in milliseconds"),
        Column("requests", Kind.LONG, "requests it carried"),
        Column("bytes_in", Kind.LONG, "bytes read"),
        Column("bytes_out", Kind.LONG, "bytes written"),
    ),
)

MEMBERS = Table(
    "members",
    "one row when a client joins a group, one when it leaves",
    (
        *_WHERE,
        Column("event", Kind.STRING, "joined or left", nullable=False, few=True),
        Column("group", Kind.STRING, "producer or consumer group", nullable=False, few=True),
        Column("kind", Kind.STRING, "producer or consumer", nullable=False, few=True),
        *_WHO,
        Column("cause", Kind.STRING, "why it left: unregistered, closed, expired", few=True),
    ),
)

TABLES = (REQUESTS, CONNECTIONS, MEMBERS)
