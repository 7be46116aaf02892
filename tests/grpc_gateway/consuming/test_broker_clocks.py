"""Whether a moment is past by a broker's clock."""

import time

import pytest

from grpc_gateway.consuming.broker_clocks import BrokerClocks


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own clock stands still."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)


def _now() -> int:
    return time.time_ns() // 1_000_000


def test_a_broker_that_has_not_popped_is_taken_to_have_our_time() -> None:
    clocks = BrokerClocks()
    assert clocks.has_passed("broker-a", _now() - 2_000)
    assert not clocks.has_passed("broker-a", _now() + 1_000)


def test_an_acknowledgement_that_comes_in_the_last_moment_counts() -> None:
    assert not BrokerClocks().has_passed("broker-a", _now() - 1_000)


def test_the_brokers_clock_decides() -> None:
    clocks = BrokerClocks()
    clocks.update("slow", _now() - 3_600_000)
    clocks.update("fast", _now() + 3_600_000)
    assert not clocks.has_passed("slow", _now() - 3_590_000)
    assert clocks.has_passed("slow", _now() - 3_610_000)
    assert clocks.has_passed("fast", _now() + 3_590_000)
    assert not clocks.has_passed("fast", _now() + 3_610_000)
