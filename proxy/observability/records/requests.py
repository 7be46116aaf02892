"""Observations as columns of the table `requests`.

What differs from request to request are numbers; they are packed on the event loop, where they are at hand, and nothing
of a request is kept alive for them. What many requests have in common, who asked and what for, is kept once. So the
thread beside the loop, which waits whenever Python runs there, has little Python to run: the rest is Arrow's, on whole
columns.
"""

from array import array
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from proxy.core.events import Observation, identity
from proxy.observability.records import arrow
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import REQUESTS, VERSION

_SCHEMA = arrow.schema(REQUESTS)
_COLUMNS = {column.name: column for column in REQUESTS.columns}
# A request's own numbers, in this order; all as doubles, which hold whole numbers up to 2**53. NaN: not known.
_NUMBERS = (
    *("who", "what", "weight", "time", "latency_us", "broker_us"),
    *("queue", "messages", "bytes_in", "bytes_out", "attempt"),
)
_pack = Struct(f"={len(_NUMBERS)}d").pack
_SIZE = 8 * len(_NUMBERS)
_NAN = float("nan")
_MICROSECONDS = 1e6


def key_hash(key: str) -> int:
    """The number that a key is known by: 64 bits of BLAKE2b, the same everywhere and always.

    It hides a key that cannot be guessed, and no other: who suspects one can hash it and look.
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class RequestColumns:
    """Requests on their way to a file. `add` is for the event loop; `batch` for whoever has it when it is complete."""

    __slots__ = ("_delays", "_keys", "_numbers", "_traces", "_what", "_who")

    def __init__(self) -> None:
        self._numbers = bytearray()
        # Requests that are alike in the one respect or the other, with the first of each kind, in the kinds' order.
        self._who: dict[tuple[object, int], tuple[int, Observation]] = {}
        self._what: dict[tuple[object, ...], tuple[int, Observation]] = {}
        # What few requests have, by row.
        self._delays: dict[int, int] = {}
        self._keys: dict[int, int] = {}
        self._traces: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._numbers) // _SIZE

    def add(self, seen: Observation, weight: float = 1.0) -> None:
        """One more row, which stands for `weight` requests."""
        # The first of the kind keeps the peer alive, so nobody else has its id.
        kind = (seen.channel, id(seen.peer))
        who = self._who.get(kind)
        if who is None:
            who = self._who[kind] = (len(self._who), seen)
        matter = (seen.protocol, seen.code, seen.response, seen.topic, seen.group, seen.broker)
        what = self._what.get(matter)
        if what is None:
            what = self._what[matter] = (len(self._what), seen)
        broker_seconds, queue, attempt = seen.broker_seconds, seen.queue, seen.attempt
        self._numbers += _pack(
            who[0],
            what[0],
            weight,
            seen.started,
            seen.seconds,
            _NAN if broker_seconds is None else broker_seconds,
            _NAN if queue is None else queue,
            seen.messages,
            seen.bytes_in,
            seen.bytes_out,
            _NAN if attempt is None else attempt,
        )
        if seen.delay_ms is not None:
            self._delays[len(self) - 1] = seen.delay_ms
        if seen.key is not None:
            # Here, too: in the thread, thousands at once would hold the loop up for milliseconds.
            self._keys[len(self) - 1] = key_hash(seen.key)
        if seen.trace_id is not None:
            self._traces[len(self) - 1] = seen.trace_id

    def batch(self, origin: Origin, offset: float) -> pa.RecordBatch:
        """All rows; `offset`: seconds from `time.monotonic` to the time since 1970."""
        size = len(self)
        numbers = array("d", bytes(self._numbers))
        raw = {name: _doubles(numbers[place :: len(_NUMBERS)]) for place, name in enumerate(_NUMBERS)}
        raw["time"] = _microseconds(pc.add(raw["time"], offset))
        for name in ("latency_us", "broker_us"):
            raw[name] = _microseconds(raw[name])
        known: dict[str, pa.Array] = {
            "schema": pa.repeat(pa.scalar(VERSION, pa.int16()), size),
            "replica": pa.repeat(pa.scalar(origin.replica), size),
            "worker": pa.repeat(pa.scalar(origin.worker, pa.int16()), size),
            "delay_ms": _sparse(self._delays, size, "delay_ms"),
            "key_hash": _sparse(self._keys, size, "key_hash"),
            "trace_id": _sparse(self._traces, size, "trace_id"),
        }
        raw["weight"] = pc.if_else(pc.equal(raw["weight"], 1.0), _NAN, raw["weight"])
        for name, kinds in (("who", self._askers()), ("what", self._matters())):
            rows = kinds.take(raw.pop(name).cast(pa.int32()))
            known.update(zip(rows.schema.names, rows.columns, strict=True))
        for name, doubles in raw.items():
            known[name] = arrow.fitting(doubles, _COLUMNS[name])
        return pa.RecordBatch.from_arrays([known[column.name] for column in REQUESTS.columns], schema=_SCHEMA)

    def _askers(self) -> pa.RecordBatch:
        """Who asked, a row for each kind."""
        first = [seen for _, seen in self._who.values()]
        # Who a client is may have become known since.
        who = [identity(seen.channel) for seen in first]
        return _table(
            address=[seen.peer.address.host for seen in first],
            tls=[seen.peer.tls is not None for seen in first],
            client_id=[each.client_id for each in who],
            language=[each.language for each in who],
            version=[each.version for each in who],
        )

    def _matters(self) -> pa.RecordBatch:
        """What was asked for, and answered, a row for each kind."""
        first = [seen for _, seen in self._what.values()]
        return _table(**{name: list(map(attrgetter(name), first)) for name in _MATTER})


_MATTER = ("protocol", "code", "response", "ok", "topic", "group", "broker")


def _table(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([arrow.array(columns[name], _COLUMNS[name]) for name in columns], list(columns))


def _doubles(values: "array[float]") -> pa.Array:
    return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)])


def _microseconds(seconds: pa.Array) -> pa.Array:
    return pc.round(pc.multiply(seconds, _MICROSECONDS))


def _sparse(values: dict[int, Any], size: int, name: str) -> pa.Array:
    """A column of a few values by row; the others are null."""
    column = _COLUMNS[name]
    if not values:
        return pa.nulls(size, arrow.TYPES[column.kind])
    return arrow.array(list(map(values.get, range(size))), column)
