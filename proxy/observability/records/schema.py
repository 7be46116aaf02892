"""Schema of the traffic records, from which the writer derives Arrow types and the analytics Spark types.

Plain Python, so that readers of records import no other part of the proxy. Times are microseconds since 1970, UTC. New
columns are nullable and are added at the end, with a new VERSION: in older files, readers see them as null.
"""

from dataclasses import dataclass
from enum import StrEnum

# In the metadata of every file under VERSION_KEY, and in every row.
VERSION = 1
VERSION_KEY = "gantry.schema"


class Kind(StrEnum):
    """Type of a column."""

    TIMESTAMP = "timestamp"  # microseconds, UTC
    STRING = "string"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. dictionary: whether its values are few enough for dictionary encoding."""

    name: str
    kind: Kind
    description: str
    nullable: bool = True
    dictionary: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: a directory of its name, with partitions `date=YYYY-MM-DD/hour=HH` (UTC) by its column `time`."""

    name: str
    description: str
    columns: tuple[Column, ...]


_ORIGIN = (
    Column("schema", Kind.SHORT, "version of this schema", nullable=False),
    Column("time", Kind.TIMESTAMP, "start of the request, or time of the event", nullable=False),
    Column("replica", Kind.STRING, "the replica's name", nullable=False, dictionary=True),
    Column("worker", Kind.SHORT, "number of the worker process, from 0", nullable=False),
    Column("protocol", Kind.STRING, "remoting or grpc; null: not detected yet", dictionary=True),
)
_CLIENT = (
    Column("client_id", Kind.STRING, "client id", dictionary=True),
    Column("address", Kind.STRING, "client address without the port", dictionary=True),
    Column("language", Kind.STRING, "language of the client's SDK, as reported by it", dictionary=True),
    Column("version", Kind.STRING, "version of the client's SDK", dictionary=True),
)

REQUESTS = Table(
    "requests",
    "one row per remoting request or rpc",
    (
        *_ORIGIN,
        Column("code", Kind.STRING, "name of the request code or rpc", nullable=False, dictionary=True),
        *_CLIENT,
        Column("topic", Kind.STRING, "topic", dictionary=True),
        Column("group", Kind.STRING, "producer or consumer group", dictionary=True),
        Column("broker", Kind.STRING, "broker name", dictionary=True),
        Column("queue", Kind.INT, "queue id; null: none, or selected by the broker"),
        Column("messages", Kind.INT, "number of messages sent, delivered or acknowledged", nullable=False),
        Column("bytes_in", Kind.LONG, "bytes of the request's body", nullable=False),
        Column("bytes_out", Kind.LONG, "bytes of the answer's body", nullable=False),
        Column("latency_us", Kind.LONG, "latency in microseconds", nullable=False),
        Column(
            "broker_us",
            Kind.LONG,
            "part of the latency spent waiting for brokers, in microseconds; null: no broker was involved",
        ),
        Column("response", Kind.INT, "response code (remoting) or v2 code (gRPC)", nullable=False),
        Column("ok", Kind.BOOLEAN, "whether the answer is no error; an empty result is no error", nullable=False),
        Column("attempt", Kind.INT, "highest delivery attempt in the answer, from 1; null: no message was delivered"),
        Column("delay_ms", Kind.LONG, "delay of a scheduled message in milliseconds; null: not scheduled"),
        Column("tls", Kind.BOOLEAN, "whether the connection uses TLS", nullable=False),
        Column("trace_id", Kind.STRING, "W3C trace id of a sampled request"),
        Column("key_hash", Kind.LONG, "hash of the message's first key, else of its message group or sharding key"),
        Column("weight", Kind.DOUBLE, "number of requests that the row represents under sampling; null: one"),
    ),
)

CONNECTIONS = Table(
    "connections",
    "one row when a connection opens and one when it closes",
    (
        *_ORIGIN,
        Column("event", Kind.STRING, "open or close", nullable=False, dictionary=True),
        Column("connection", Kind.LONG, "number of the connection in its process", nullable=False),
        *_CLIENT,
        Column("port", Kind.INT, "client port"),
        Column("listener", Kind.STRING, "listener name", dictionary=True),
        Column("tls", Kind.BOOLEAN, "whether the connection uses TLS", nullable=False),
        Column("cause", Kind.STRING, "cause of the close", dictionary=True),
        Column("age_ms", Kind.LONG, "milliseconds for which the connection was open"),
        Column("requests", Kind.LONG, "number of requests"),
        Column("bytes_in", Kind.LONG, "bytes read"),
        Column("bytes_out", Kind.LONG, "bytes written"),
    ),
)

MEMBERS = Table(
    "members",
    "one row when a client joins a group and one when it leaves",
    (
        *_ORIGIN,
        Column("event", Kind.STRING, "joined or left", nullable=False, dictionary=True),
        Column("group", Kind.STRING, "producer or consumer group", nullable=False, dictionary=True),
        Column("kind", Kind.STRING, "producer or consumer", nullable=False, dictionary=True),
        *_CLIENT,
        Column("cause", Kind.STRING, "cause of the leave: unregistered, closed or expired", dictionary=True),
    ),
)

TABLES = (REQUESTS, CONNECTIONS, MEMBERS)
