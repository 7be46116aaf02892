"""Quotas of topics and consumer groups that requests of clients create without being asked to."""

import logging
from collections import Counter

from proxy.core.channel import Channel
from proxy.core.creation_budgets import CreationBudgets
from proxy.embedded.broker.settings import BrokerSettings

_log = logging.getLogger("gantry.embedded")


class Creations:
    """Admits creations, for each client and each source address within a minute. counts: by outcome."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._budgets = CreationBudgets(settings.creations_per_client, settings.creations_per_address)
        self.counts: Counter[str] = self._budgets.counts
        self.counts["quota"] = 0

    def admit(self, channel: Channel | None, kind: str, name: str, existing: int, maximum: int, now: int) -> bool:
        """Return whether a topic or group may be created beside `existing` ones; `now` in ms."""
        if channel is None:
            return True
        if existing >= maximum:
            self.counts["quota"] += 1
            _log.debug("%s %s is not created: %d exist", kind, name, existing)
            return False
        if self._budgets.take(channel, now):
            return True
        self._budgets.refuse(channel, kind, name, now)
        return False
