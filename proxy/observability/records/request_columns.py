"""Columns of the table `requests`, collected from observations.

The numbers of each request are packed on the event loop, so that no request object is kept alive. Attributes that many
requests share (the client, and the operation with its result) are kept once. The writer thread, which competes with the
event loop for the interpreter, therefore runs little Python: Arrow converts whole columns.
"""

from array import array
from hashlib import blake2b
from operator import attrgetter
from struct import Struct, unpack
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from proxy.core.events import Observation, identity
from proxy.observability.records import arrow
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import REQUESTS, VERSION

_SCHEMA = arrow.schema(REQUESTS)
_COLUMNS = {column.name: column for column in REQUESTS.columns}
# Numbers of a request in their packed order: doubles, which hold integers up to 2**53. NaN: not known.
_NUMBERS = (
    *("client", "operation", "weight", "time", "latency_us", "broker_us"),
    *("queue", "messages", "bytes_in", "bytes_out", "attempt"),
)
_pack: Final = Struct(f"={len(_NUMBERS)}d").pack
_NAN: Final = float("nan")
_MICROSECONDS = 1e6


def key_hash(key: str) -> int:
    """Return the 64-bit BLAKE2b hash of a key, the same in every process.

    The hash hides only keys that cannot be guessed: the hash of a suspected key can be searched for.
    """
    return int.from_bytes(_digest(key), "big", signed=True)


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class RequestColumns:
    """Requests to be written. `add` runs on the event loop, `batch` in the writer thread once no more are added."""

    __slots__ = ("_clients", "_delays", "_keys", "_numbers", "_operations", "_size", "_traces")

    def __init__(self) -> None:
        self._size = 0
        self._numbers = bytearray()
        # Distinct clients and operations, in order: index and first observation.
        self._clients: dict[tuple[object, int], tuple[float, Observation]] = {}
        self._operations: dict[tuple[str, str, int, str | None, str | None, str | None], tuple[float, Observation]] = {}
        # Attributes that few requests have, by row.
        self._delays: dict[int, int] = {}
        self._keys: dict[int, bytes] = {}
        self._traces: dict[int, str] = {}

    def __len__(self) -> int:
        return self._size

    def add(self, observation: Observation, weight: float = 1.0) -> int:
        """Add a row that represents `weight` requests; return the number of rows."""
        # The first observation keeps its peer alive, so that the id stays unique.
        client_key = (observation.channel, id(observation.peer))
        client = self._clients.get(client_key)
        if client is None:
            client = self._clients[client_key] = (float(len(self._clients)), observation)
        operation_key = (
            observation.protocol,
            observation.code,
            observation.response,
            observation.topic,
            observation.group,
            observation.broker,
        )
        operation = self._operations.get(operation_key)
        if operation is None:
            operation = self._operations[operation_key] = (float(len(self._operations)), observation)
        row = self._size
        # The first of these that is deferred reads all of them.
        queue, key, delay_ms = observation.queue, observation.key, observation.delay_ms
        broker_seconds, attempt, trace_id = observation.broker_seconds, observation.attempt, observation.trace_id
        self._numbers += _pack(
            client[0],
            operation[0],
            weight,
            observation.started,
            observation.seconds,
            _NAN if broker_seconds is None else broker_seconds,
            _NAN if queue is None else queue,
            observation.messages,
            observation.bytes_in,
            observation.bytes_out,
            _NAN if attempt is None else attempt,
        )
        if delay_ms is not None:
            self._delays[row] = delay_ms
        if key is not None:
            # Hashed on the event loop too: thousands at once in the thread would block the loop for milliseconds.
            self._keys[row] = _digest(key)
        if trace_id is not None:
            self._traces[row] = trace_id
        self._size = size = row + 1
        return size

    def batch(self, origin: Origin, offset: float) -> pa.RecordBatch:
        """Return all rows. `offset` is the difference in seconds between the time since 1970 and `time.monotonic`."""
        size = self._size
        numbers = array("d", bytes(self._numbers))
        raw = {name: _doubles(numbers[position :: len(_NUMBERS)]) for position, name in enumerate(_NUMBERS)}
        raw["time"] = _microseconds(pc.add(raw["time"], offset))
        for name in ("latency_us", "broker_us"):
            raw[name] = _microseconds(raw[name])
        columns: dict[str, pa.Array] = {
            "schema": pa.repeat(pa.scalar(VERSION, pa.int16()), size),
            "replica": pa.repeat(pa.scalar(origin.replica), size),
            "worker": pa.repeat(pa.scalar(origin.worker, pa.int16()), size),
            "delay_ms": _sparse(self._delays, size, "delay_ms"),
            "key_hash": _sparse(_integers(self._keys), size, "key_hash"),
            "trace_id": _sparse(self._traces, size, "trace_id"),
        }
        raw["weight"] = pc.if_else(pc.equal(raw["weight"], 1.0), _NAN, raw["weight"])
        for name, distinct in (("client", self._client_columns()), ("operation", self._operation_columns())):
            rows = distinct.take(raw.pop(name).cast(pa.int32()))
            columns.update(zip(rows.schema.names, rows.columns, strict=True))
        for name, doubles in raw.items():
            columns[name] = arrow.from_doubles(doubles, _COLUMNS[name])
        return pa.RecordBatch.from_arrays([columns[column.name] for column in REQUESTS.columns], schema=_SCHEMA)

    def _client_columns(self) -> pa.RecordBatch:
        """Return the columns of the distinct clients."""
        observations = [first for _, first in self._clients.values()]
        # A client may have identified itself after the observation.
        identities = [identity(observation.channel) for observation in observations]
        return _table(
            address=[observation.peer.address.host for observation in observations],
            tls=[observation.peer.tls is not None for observation in observations],
            client_id=[each.client_id for each in identities],
            language=[each.language for each in identities],
            version=[each.version for each in identities],
        )

    def _operation_columns(self) -> pa.RecordBatch:
        """Return the columns of the distinct operations."""
        observations = [first for _, first in self._operations.values()]
        return _table(**{name: list(map(attrgetter(name), observations)) for name in _OPERATION_COLUMNS})


_OPERATION_COLUMNS = ("protocol", "code", "response", "ok", "topic", "group", "broker")


def _table(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([arrow.array(columns[name], _COLUMNS[name]) for name in columns], list(columns))


def _doubles(values: "array[float]") -> pa.Array:
    return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)])


def _integers(digests: dict[int, bytes]) -> dict[int, int]:
    """Return the digests as signed numbers, all in one call."""
    return dict(zip(digests, unpack(f">{len(digests)}q", b"".join(digests.values())), strict=True))


def _microseconds(seconds: pa.Array) -> pa.Array:
    return pc.round(pc.multiply(seconds, _MICROSECONDS))


def _sparse(values: dict[int, Any], size: int, name: str) -> pa.Array:
    """Return a column of the values by row; the other rows are null."""
    column = _COLUMNS[name]
    if not values:
        return pa.nulls(size, arrow.TYPES[column.kind])
    return arrow.array(list(map(values.get, range(size))), column)
