"""Encoding of snapshots."""

import pytest

from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Snapshot
from proxy.observability.metrics.snapshot import decode, encode


def test_a_snapshot_round_trips() -> None:
    snapshot: Snapshot = [
        (Family("closed", Kind.COUNTER, "Closed.", ("cause",)), {("idle",): 3.0, ("peer",): 0.0}),
        (Family("up", Kind.GAUGE, "Up.", merge=Merge.MAX), {(): 1.0}),
        (
            Family("seconds", Kind.HISTOGRAM, "Time.", ("code",), bounds=(0.1, 1.0)),
            {("send",): Distribution([1, 2, 3], 4.5, {2: ("trace", 2.0, 1700000000.25)})},
        ),
    ]
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'[[["a","nothing","",[],"sum",[]],[]]]', b"[[[1],[]]]", b"3"])
def test_decode_rejects_other_data(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid metrics snapshot"):
        decode(data)
