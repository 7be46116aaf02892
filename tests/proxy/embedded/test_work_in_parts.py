"""Much work that is due at one time is done in parts, by ticks that end after some megabytes or milliseconds."""

import itertools

import pytest

from tests.proxy.embedded.broker_harness import BrokerHarness

pytestmark = pytest.mark.anyio


def _ticks(harness: BrokerHarness, count: int) -> list[bool]:
    """Tick without a change of the time; return whether each of the ticks left work."""
    return [harness.broker.tick(harness.now) for _ in range(count)]


def _make_work_slow(harness: BrokerHarness) -> None:
    """Let 5 ms pass between two looks at the clock."""
    harness.elapse = (number * 0.005 for number in itertools.count()).__next__


async def test_large_messages_that_become_visible_together_are_redelivered_in_parts(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(10):
        harness.send("t", bytes([number]) * 2**21)
        assert len(harness.pop("t", invisibleTime=10_000)) == 1
    harness.now += 10_001
    for count in (2, 4, 6, 8, 10):
        assert _ticks(harness, 1) == [True]
        assert harness.store.bounds("%RETRY%g_t", 0)[1] == count
    assert _ticks(harness, 1) == [False]
    assert sorted(body[0] for body in harness.bodies("%RETRY%g_t")) == list(range(10))
    assert len(harness.broker.checkpoints) == 0


async def test_redelivery_ends_when_its_time_is_over(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(60):
        harness.send("t", b"%d" % number)
        harness.pop("t", invisibleTime=10_000)
    harness.now += 10_001
    _make_work_slow(harness)
    _ticks(harness, 1)
    assert 0 < harness.store.bounds("%RETRY%g_t", 0)[1] < 10
    _ticks(harness, 60)
    assert harness.store.bounds("%RETRY%g_t", 0)[1] == 60
