"""Observations as columns of the table `requests`.

This runs in a thread beside the event loop, which waits whenever Python runs here. So it pauses between columns: the
loop has its turn within some hundred microseconds, however many records there are.
"""

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa

from proxy.channel import Channel, Identity
from proxy.observation import Observation, identity
from proxy.traffic import arrow
from proxy.traffic.origin import Origin
from proxy.traffic.schema import REQUESTS, VERSION

# Seconds of Python after which it pauses, and for how long. Each pause costs a change of threads, which a busy loop
# grants after 5 ms at the latest.
_STINT = 0.0002
_BREATH = 0.00005
# Keys that are hashed without a pause.
_KEYS = 512

_SCHEMA = arrow.schema(REQUESTS)
_COLUMNS = {column.name: column for column in REQUESTS.columns}


class _Breath:
    """Pauses, when it is time to."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since >= _STINT:
            time.sleep(_BREATH)
            self._since = time.perf_counter()


def key_hash(key: str) -> int:
    """The number that a key is known by: 64 bits of BLAKE2b, the same everywhere and always.

    It hides a key that cannot be guessed, and no other: who suspects one can hash it and look.
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def columns(
    batch: Sequence[Observation],
    weights: Sequence[float | None],
    origin: Origin,
    offset: float,
    breathe: Callable[[], None] | None = None,
) -> tuple[pa.RecordBatch, list[int]]:
    """A batch of records, and their times; `offset`: seconds from `time.monotonic` to the time since 1970."""
    size = len(batch)
    breathe = breathe or _Breath()
    times = [round((seen.started + offset) * 1e6) for seen in batch]
    breathe()
    who = _identities(batch)
    breathe()
    known: dict[str, pa.Array] = {
        "schema": pa.repeat(pa.scalar(VERSION, pa.int16()), size),
        "replica": pa.repeat(pa.scalar(origin.replica), size),
        "worker": pa.repeat(pa.scalar(origin.worker, pa.int16()), size),
        "time": arrow.array(times, _COLUMNS["time"]),
        "weight": arrow.array(weights, _COLUMNS["weight"]),
        "key_hash": arrow.array(_hashes(batch, breathe), _COLUMNS["key_hash"]),
    }
    for name, values in zip(("client_id", "language", "version"), zip(*who, strict=True), strict=True):
        known[name] = arrow.array(values, _COLUMNS[name])
        breathe()
    for name, take in _TAKE.items():
        known[name] = arrow.array(list(map(take, batch)), _COLUMNS[name])
        breathe()
    for name, take in _TAKE_SECONDS.items():
        known[name] = arrow.microseconds(list(map(take, batch)))
        breathe()
    return pa.RecordBatch.from_arrays([known[column.name] for column in REQUESTS.columns], schema=_SCHEMA), times


def _identities(batch: Sequence[Observation]) -> list[Identity]:
    known: dict[Channel | None, Identity] = {}
    for seen in batch:
        if seen.channel not in known:
            known[seen.channel] = identity(seen.channel)
    return [known[seen.channel] for seen in batch]


def _hashes(batch: Sequence[Observation], breathe: Callable[[], None]) -> list[int | None]:
    hashes: list[int | None] = []
    keys = iter([seen.key for seen in batch])
    while some := tuple(islice(keys, _KEYS)):
        hashes += [None if key is None else key_hash(key) for key in some]
        breathe()
    return hashes


_TAKE: dict[str, Callable[[Observation], Any]] = {
    **{
        name: attrgetter(name)
        for name in (
            *("protocol", "code", "topic", "group", "broker", "queue", "messages", "bytes_in", "bytes_out"),
            *("response", "ok", "attempt", "delay_ms", "trace_id"),
        )
    },
    "address": attrgetter("peer.address.host"),
    "tls": lambda seen: seen.peer.tls is not None,
}
_TAKE_SECONDS = {"latency_us": attrgetter("seconds"), "broker_us": attrgetter("broker_seconds")}
