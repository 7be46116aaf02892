"""Fixtures of the membership tests."""

import pytest

from proxy.backends.cluster import membership
from tests.proxy.backends.cluster.membership_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench(broker_a=["a:1", "a:2"], broker_b=["b:1"])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for brokers' replies."""
    monkeypatch.setattr(membership, "_REPLY_TIMEOUT", 0.02)
