"""Budgets of topics and consumer groups that requests of clients create without being asked to."""

import logging
from collections import Counter

from protocol_negotiation.address_limit import source_of
from proxy.core.channel import Channel

_log = logging.getLogger("gantry.messaging")

_MINUTE = 60_000
_DAY = 24 * 60 * _MINUTE
# Number of budgets at which unused ones are dropped; more if so many are in use, as each look at them takes long.
_MAX_BUDGETS = 10_000

# A client (number of its session) or a source address.
_Key = tuple[str, int | str]


class _Budget:
    """`limit` creations at once, refilled within a period. Times in ms."""

    __slots__ = ("at", "left", "period", "refused")

    def __init__(self, limit: int, now: int, period: int = _MINUTE) -> None:
        self.left = float(limit)
        self.at = now
        self.period = period
        # Whether a refusal has been logged since the budget was full.
        self.refused = False

    def refill(self, limit: int, now: int) -> None:
        """Add the creations that the time since the last call allows."""
        self.left = min(self.left + (now - self.at) * limit / self.period, limit)
        self.at = now
        self.refused &= self.left < limit


class CreationBudgets:
    """A budget for each client and for each source address, per minute, and one for all together, per day.

    per_day: None: no limit. counts: by outcome.
    """

    def __init__(self, per_client: int, per_address: int, per_day: int | None = None) -> None:
        self._per_client = per_client
        self._per_address = per_address
        self._per_day = per_day
        self._all: _Budget | None = None
        self._budgets: dict[_Key, _Budget] = {}
        self._next_sweep = _MAX_BUDGETS
        self.counts: Counter[str] = Counter(admitted=0, rate=0)

    def take(self, channel: Channel, now: int) -> bool:
        """Take one creation of the client, its address and all clients; return False if none is left. `now` in ms."""
        budgets = self._of(channel, now) + self._of_all(now)
        if any(budget.left < 1 for budget in budgets):
            return False
        for budget in budgets:
            budget.left -= 1
        self.counts["admitted"] += 1
        return True

    def refuse(self, channel: Channel, kind: str, name: str, now: int) -> None:
        """Count the refusal of a topic or group, and log the first one of the client or address."""
        self.counts["rate"] += 1
        budgets = self._of(channel, now)
        if not any(budget.refused for budget in budgets):
            _log.warning(
                "%s creates too many topics and groups; %s %s and further ones are refused",
                channel.peer.address,
                kind,
                name,
            )
        for budget in budgets:
            budget.refused = True

    def _of(self, channel: Channel, now: int) -> list[_Budget]:
        limits: dict[_Key, int] = {("client", channel.session.number): self._per_client}
        source = source_of(channel.peer.address)
        if source is not None:
            limits["address", source] = self._per_address
        if len(self._budgets) >= self._next_sweep:
            self._budgets = {key: budget for key, budget in self._budgets.items() if now - budget.at < _MINUTE}
            self._next_sweep = max(_MAX_BUDGETS, 2 * len(self._budgets))
        budgets = []
        for key, limit in limits.items():
            budget = self._budgets.get(key)
            if budget is None:
                budget = self._budgets[key] = _Budget(limit, now)
            budget.refill(limit, now)
            budgets.append(budget)
        return budgets

    def _of_all(self, now: int) -> list[_Budget]:
        if self._per_day is None:
            return []
        if self._all is None:
            self._all = _Budget(self._per_day, now, _DAY)
        self._all.refill(self._per_day, now)
        return [self._all]
