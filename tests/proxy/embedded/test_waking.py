"""Waking of long polls: what of them is looked at, and when."""

import pytest

from remoting.codes import RequestCode
from tests.proxy.embedded.broker_harness import BrokerHarness, texts

pytestmark = pytest.mark.anyio


async def test_groups_that_no_longer_wait_are_forgotten(harness: BrokerHarness) -> None:
    """Each group that waits for a topic is looked at with each of its messages."""
    harness.topic("t")
    poppers = harness.broker._poppers
    for number in range(50):
        code = RequestCode.NOTIFICATION if number % 2 else RequestCode.POP_MESSAGE
        harness.begin(code, harness.pop_fields("t", f"g{number}", pollTime=1_000 + number))
    assert len(poppers.of("t")) == len(poppers.of("%RETRY%g7_t") or ()) * 50 == 50
    harness.pass_time(975, step=5)
    assert 0 < len(poppers.of("t")) < 50
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", "g", pollTime=10_000))
    harness.pass_time(100)
    assert list(poppers.of("t")) == [("t", "g")]
    harness.send("t", b"m")
    assert texts(harness.popped(waiting.result(), "t")) == [b"m"]
    assert not poppers._pairs
    assert not poppers._counts
