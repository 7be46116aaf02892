"""Budgets of many clients."""

from typing import Any

import pytest

from proxy.core import creation_budgets
from proxy.core.creation_budgets import CreationBudgets
from tests.proxy.fakes import FakeChannel, peer


class _Budgets(dict[Any, Any]):
    """Budgets that count the looks at all of them."""

    looks = 0

    def items(self) -> Any:
        _Budgets.looks += 1
        return super().items()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a hundred budgets be many."""
    monkeypatch.setattr(creation_budgets, "_MAX_BUDGETS", 100)
    _Budgets.looks = 0


def _client() -> FakeChannel:
    return FakeChannel(peer=peer())


def test_clients_of_one_minute_do_not_cost_a_look_at_all_budgets_each() -> None:
    budgets = CreationBudgets(5, 1_000_000)
    budgets._budgets = _Budgets()
    for _ in range(1_000):
        assert budgets.take(_client(), 1_000)
        budgets._budgets = _Budgets(budgets._budgets)
    assert _Budgets.looks <= 4


def test_budgets_that_are_not_in_use_are_dropped() -> None:
    budgets = CreationBudgets(1, 1_000_000)
    kept = _client()
    for minute in range(10):
        for _ in range(90):
            assert budgets.take(_client(), minute * 60_000)
        assert budgets.take(kept, minute * 60_000)
        assert len(budgets._budgets) <= 300
    assert not budgets.take(kept, 9 * 60_000)
