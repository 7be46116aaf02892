"""Consumer groups: stored configurations (RocketMQ's SubscriptionGroupManager)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import orjson

from proxy.embedded.broker import names
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import StorageError, Store
from remoting.names import SYSTEM_GROUPS

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
    """A group. `data` is a SubscriptionGroupConfig, with unknown fields, and is never changed."""

    __slots__ = ("data", "name")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = {**_DEFAULTS, **{key: value for key, value in data.items() if value is not None}}
        self.name = str(self.data["groupName"])

    @property
    def enabled(self) -> bool:
        """Whether its members may consume."""
        return bool(self.data["consumeEnable"])

    @property
    def broadcast_enabled(self) -> bool:
        return bool(self.data["consumeBroadcastEnable"])

    @property
    def notifies_members(self) -> bool:
        """Whether members are notified of changes of the group."""
        return bool(self.data["notifyConsumerIdsChangedEnable"])

    @property
    def retry_queues(self) -> int:
        return int(self.data["retryQueueNums"])

    @property
    def retries(self) -> int:
        """Maximum number of redeliveries of a message before it becomes a dead letter."""
        return int(self.data["retryMaxTimes"])

    @property
    def sys_flag(self) -> int:
        return int(self.data["groupSysFlag"])

    @property
    def priority_factor(self) -> int:
        """Percentage of pops that respect priorities."""
        factor = str((self.data["attributes"] or {}).get(_PRIORITY_FACTOR, 100))
        return int(factor) if factor.isdecimal() else 100


class Groups:
    """All groups by name. `version` counts changes. `admit` returns whether a request may create a group."""

    def __init__(self, settings: BrokerSettings, store: Store, admit: Callable[[str], bool]) -> None:
        self._admit = admit
        self._auto_create = settings.auto_create_groups
        self._store = store
        self._table = store.table("groups")
        self.version = 0
        self._groups = {name: Group({"groupName": name}) for name in SYSTEM_GROUPS}
        for _, value in self._table.items():  # noqa: PERF102  # a table, not a dict
            group = Group(orjson.loads(value))
            self._groups[group.name] = group

    def get(self, name: str) -> Group | None:
        """Return a group, or None."""
        return self._groups.get(name)

    def find(self, name: str) -> Group | None:
        """Return a group, which is created if groups are created automatically and the client may; else None."""
        group = self._groups.get(name)
        if group is None and self._auto_create and names.is_group(name) and self._admit(name):
            group = Group({"groupName": name})
            # A group can read even if the disk is full.
            with suppress(StorageError):
                self.put(group)
        return group

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def put(self, group: Group) -> Group:
        """Create or change a group."""
        previous = self._groups.get(group.name)
        if previous is None or previous.data != group.data:
            self._table.put(group.name.encode(), orjson.dumps(group.data))
            self._store.when_written(partial(self._set, group))
        return group

    def _set(self, group: Group) -> None:
        self._groups[group.name] = group
        self.version += 1

    def drop(self, name: str) -> None:
        """Remove a group."""
        if name in self._groups:
            self._table.delete(name.encode())
            self._store.when_written(partial(self._forget, name))

    def _forget(self, name: str) -> None:
        self._groups.pop(name, None)
        self.version += 1
