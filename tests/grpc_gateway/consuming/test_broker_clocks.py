"""Clock offsets of brokers."""

import time

import pytest

from grpc_gateway.consuming.broker_clocks import BrokerClocks


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of this host."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)


def _now() -> int:
    return time.time_ns() // 1_000_000


def test_unknown_broker_has_the_time_of_this_host() -> None:
    clocks = BrokerClocks(0.5)
    assert clocks.has_passed("broker-a", _now() - 2_000)
    assert not clocks.has_passed("broker-a", _now() + 1_000)


def test_moment_within_the_grace_period_has_not_passed() -> None:
    assert not BrokerClocks(0.5).has_passed("broker-a", _now() - 300)
    assert BrokerClocks(0.5).has_passed("broker-a", _now() - 900)


def test_moment_has_passed_at_once_without_a_grace_period() -> None:
    assert not BrokerClocks(0).has_passed("broker-a", _now())
    assert BrokerClocks(0).has_passed("broker-a", _now() - 1)


def test_moment_is_compared_with_the_clock_of_the_broker() -> None:
    clocks = BrokerClocks(0.5)
    clocks.update("slow", _now() - 3_600_000)
    clocks.update("fast", _now() + 3_600_000)
    assert not clocks.has_passed("slow", _now() - 3_590_000)
    assert clocks.has_passed("slow", _now() - 3_610_000)
    assert clocks.has_passed("fast", _now() + 3_590_000)
    assert not clocks.has_passed("fast", _now() + 3_610_000)
