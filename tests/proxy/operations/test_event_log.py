"""Rings of recent events."""

from proxy.operations.event_log import Ring


def test_ring_keeps_the_newest_items() -> None:
    ring: Ring[str] = Ring(2)
    for item in "abc":
        ring.add(item)
    assert list(ring.newest()) == [(3, "c"), (2, "b")]
    assert ring.total == 3
