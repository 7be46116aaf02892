"""Snapshots as bytes: what a worker tells the process that serves the metrics of all."""

from typing import Any

import orjson

from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Snapshot, Value


def encode(snapshot: Snapshot) -> bytes:
    """A snapshot as JSON."""
    return orjson.dumps([[_family(family), _samples(samples)] for family, samples in snapshot])


def decode(data: bytes) -> Snapshot:
    """The snapshot in what `encode` made. Raises ValueError for anything else."""
    try:
        return [
            (
                Family(name, Kind(kind), text, tuple(labels), Merge(merge), tuple(bounds)),
                {tuple(key): _value(value) for key, value in samples},
            )
            for (name, kind, text, labels, merge, bounds), samples in orjson.loads(data)
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not a snapshot: {error}") from None


def _family(family: Family) -> list[Any]:
    return [family.name, family.kind, family.text, family.labels, family.merge, family.bounds]


def _samples(samples: Any) -> list[Any]:
    return [[key, _plain(value)] for key, value in samples.items()]


def _plain(value: Value) -> Any:
    if isinstance(value, Distribution):
        return [value.counts, value.total, list(value.exemplars.items())]
    return value


def _value(plain: Any) -> Value:
    if isinstance(plain, list):
        counts, total, exemplars = plain
        return Distribution(counts, total, {slot: tuple(exemplar) for slot, exemplar in exemplars})
    return float(plain)
