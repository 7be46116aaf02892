"""Consumer groups: their configurations, kept in a table (RocketMQ's SubscriptionGroupManager)."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson

from proxy.embedded.broker import names
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import StorageError, Table

_DEFAULTS: dict[str, Any] = {
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
    "attributes": {},
}
_PRIORITY_FACTOR = "priority.factor"


class Group:
    """A group; `data` is SubscriptionGroupConfig, with what we do not know in it, and is never changed."""

    __slots__ = ("data", "name")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = {**_DEFAULTS, **{key: value for key, value in data.items() if value is not None}}
        self.name = str(self.data["groupName"])

    @property
    def enabled(self) -> bool:
        """Whether it may consume."""
        return bool(self.data["consumeEnable"])

    @property
    def broadcast_enabled(self) -> bool:
        return bool(self.data["consumeBroadcastEnable"])

    @property
    def notified(self) -> bool:
        """Whether members are told when the group changes."""
        return bool(self.data["notifyConsumerIdsChangedEnable"])

    @property
    def retry_queues(self) -> int:
        return int(self.data["retryQueueNums"])

    @property
    def retries(self) -> int:
        """How often a message is delivered again before it is a dead letter."""
        return int(self.data["retryMaxTimes"])

    @property
    def sys_flag(self) -> int:
        return int(self.data["groupSysFlag"])

    @property
    def broker_id(self) -> int:
        """Which replica its members shall read from."""
        return int(self.data["brokerId"])

    @property
    def priority_factor(self) -> int:
        """Per cent of pops that heed priorities."""
        factor = str((self.data["attributes"] or {}).get(_PRIORITY_FACTOR, 100))
        return int(factor) if factor.isdecimal() else 100


class Groups:
    """All groups by name. `version` counts changes."""

    def __init__(self, settings: BrokerSettings, table: Table) -> None:
        self._automatic = settings.auto_create_groups
        self._table = table
        self.version = 0
        self._groups = {name: Group({"groupName": name}) for name in names.SYSTEM_GROUPS}
        for _, value in table.items():  # noqa: PERF102  # a table, not a dict
            group = Group(orjson.loads(value))
            self._groups[group.name] = group

    def get(self, name: str) -> Group | None:
        """A group as it is known."""
        return self._groups.get(name)

    def find(self, name: str) -> Group | None:
        """A group, which may be created by this; None: there is none and none can be."""
        group = self._groups.get(name)
        if group is None and self._automatic and names.is_group(name):
            group = Group({"groupName": name})
            # A full disk is no reason why a group could not read.
            with suppress(StorageError):
                self.put(group)
        return group

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def put(self, group: Group) -> Group:
        """Create or change a group."""
        known = self._groups.get(group.name)
        if known is None or known.data != group.data:
            self._table.put(group.name.encode(), orjson.dumps(group.data))
            self._groups[group.name] = group
            self.version += 1
        return group

    def drop(self, name: str) -> None:
        """Forget a group."""
        if self._groups.pop(name, None) is not None:
            self._table.delete(name.encode())
            self.version += 1
