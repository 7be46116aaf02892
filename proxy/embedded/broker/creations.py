"""Quotas of topics and consumer groups that requests of clients create without being asked to."""

import logging
from collections import Counter

from protocol_negotiation.address_limit import source_of
from proxy.core.channel import Channel
from proxy.embedded.broker.settings import BrokerSettings

_log = logging.getLogger("gantry.embedded")

_MINUTE = 60_000
# Number of budgets at which unused ones are dropped.
_MAX_BUDGETS = 10_000

# A client (number of its session) or a source address.
_Key = tuple[str, int | str]


class _Budget:
    """`limit` creations at once, refilled within a minute. Times in ms."""

    __slots__ = ("at", "left", "refused")

    def __init__(self, limit: int, now: int) -> None:
        self.left = float(limit)
        self.at = now
        # Whether a refusal has been logged since the budget was full.
        self.refused = False

    def refill(self, limit: int, now: int) -> None:
        """Add the creations that the time since the last call allows."""
        self.left = min(self.left + (now - self.at) * limit / _MINUTE, limit)
        self.at = now
        self.refused &= self.left < limit


class Creations:
    """Admits creations, for each client and each source address within a minute. counts: by outcome."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._budgets: dict[_Key, _Budget] = {}
        self.counts: Counter[str] = Counter(admitted=0, rate=0, quota=0)

    def admit(self, channel: Channel | None, kind: str, name: str, existing: int, maximum: int, now: int) -> bool:
        """Return whether a topic or group may be created beside `existing` ones; `now` in ms."""
        if channel is None:
            return True
        if existing >= maximum:
            self.counts["quota"] += 1
            _log.debug("%s %s is not created: %d exist", kind, name, existing)
            return False
        budgets = self._budgets_of(channel, now)
        if any(budget.left < 1 for budget in budgets):
            self.counts["rate"] += 1
            if not any(budget.refused for budget in budgets):
                _log.warning(
                    "%s creates too many topics and groups; %s %s and further ones are refused",
                    channel.peer.address,
                    kind,
                    name,
                )
            for budget in budgets:
                budget.refused = True
            return False
        for budget in budgets:
            budget.left -= 1
        self.counts["admitted"] += 1
        return True

    def _budgets_of(self, channel: Channel, now: int) -> list[_Budget]:
        settings = self._settings
        limits: dict[_Key, int] = {("client", channel.session.number): settings.creations_per_client}
        source = source_of(channel.peer.address)
        if source is not None:
            limits["address", source] = settings.creations_per_address
        if len(self._budgets) >= _MAX_BUDGETS:
            self._budgets = {key: budget for key, budget in self._budgets.items() if now - budget.at < _MINUTE}
        budgets = []
        for key, limit in limits.items():
            budget = self._budgets.get(key)
            if budget is None:
                budget = self._budgets[key] = _Budget(limit, now)
            budget.refill(limit, now)
            budgets.append(budget)
        return budgets
