"""Encoding of snapshots as JSON, between worker processes and the process that serves the metrics of all."""

from typing import Any

import orjson

from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Snapshot, Value


def encode(snapshot: Snapshot) -> bytes:
    """Encode a snapshot."""
    return orjson.dumps([[_encode_family(family), _encode_samples(samples)] for family, samples in snapshot])


def decode(data: bytes) -> Snapshot:
    """Decode a snapshot. Raises ValueError if `data` is not the result of `encode`."""
    try:
        return [
            (
                Family(name, Kind(kind), text, tuple(labels), Merge(merge), tuple(bounds)),
                {tuple(key): _decode_value(value) for key, value in samples},
            )
            for (name, kind, text, labels, merge, bounds), samples in orjson.loads(data)
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"invalid metrics snapshot: {error}") from None


def _encode_family(family: Family) -> list[Any]:
    return [family.name, family.kind, family.help, family.labels, family.merge, family.bounds]


def _encode_samples(samples: Any) -> list[Any]:
    return [[key, _encode_value(value)] for key, value in samples.items()]


def _encode_value(value: Value) -> Any:
    if isinstance(value, Distribution):
        return [value.counts, value.total, list(value.exemplars.items())]
    return value


def _decode_value(encoded: Any) -> Value:
    if isinstance(encoded, list):
        counts, total, exemplars = encoded
        return Distribution(counts, total, {bucket: tuple(exemplar) for bucket, exemplar in exemplars})
    return float(encoded)
