"""The metadata cache: configurations of topics and consumer groups, loaded from brokers and refreshed while in use."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.core.backend import Backend
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, ServiceUnavailable, TopicNotExist
from remoting.properties import MessageType
from remoting.requests import REQUESTS
from remoting.tasks import spawn
from remoting.topic_group_config import GroupConfig, TopicConfig

_log = logging.getLogger("gantry.configs")

_Config = TypeVar("_Config")

# Seconds after which a caller that waits for a configuration receives the defaults.
_LOAD_TIMEOUT = 2.0
# Timeout of a request to one broker in seconds, and the number of brokers tried for one load.
_BROKER_TIMEOUT = 1.0
_MAX_BROKERS = 3
# Age in seconds at which a configuration in use is loaded again, and seconds without use after which it is dropped.
REFRESH = 10.0
_IDLE = 300.0
# Seconds until the next attempt after a failure.
_RETRY_DELAY = 2.0
# Limits on concurrent loads and on entries: clients may invent names.
_MAX_LOADS = 32
_MAX_ENTRIES = 20_000


@dataclass(slots=True)
class _Entry(Generic[_Config]):
    config: _Config
    # Times in seconds at which the next load is due and at which it was used last.
    due: float
    used: float
    # Seconds between loads, and whether it was used since the last load.
    interval: float
    used_since_load: bool = False


class ConfigCache(Generic[_Config]):
    """Configurations by name. `load` loads one, `default` replaces one that is not available; `clock` is in seconds.

    A loaded configuration stays in use until a newer one is loaded, however long that takes: an old configuration is
    better than the defaults. `changed` is called with each configuration that differs from the former one.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[_Config]],
        default: Callable[[str], _Config],
        clock: Callable[[], float],
        changed: Callable[[_Config], None],
    ) -> None:
        self._load = load
        self._default = default
        self._clock = clock
        self._changed = changed
        self._entries: dict[str, _Entry[_Config]] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}

    def cached(self, name: str) -> _Config | None:
        """Return the cached configuration or None."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.used, entry.used_since_load = self._clock(), True
        return entry.config

    async def get(self, name: str) -> _Config:
        """Return the configuration, loading it if necessary; the defaults if it is not available in time."""
        config = self.cached(name)
        if config is not None:
            return config
        await asyncio.wait((self._start(name),), timeout=_LOAD_TIMEOUT)
        config = self.cached(name)
        if config is None:
            # The load may still succeed; the defaults apply until then.
            config = self._default(name)
            self._put(name, config, _RETRY_DELAY)
        return config

    async def refresh(self) -> None:
        """Reload configurations that are due and drop unused ones; to be called about every second.

        The interval of a configuration that was not used since its last load doubles: clients may invent names.
        """
        now = self._clock()
        for name in [name for name, entry in self._entries.items() if now - entry.used > _IDLE]:
            del self._entries[name]
        due = [name for name, entry in self._entries.items() if now >= entry.due and name not in self._loading]
        for start in range(0, len(due), _MAX_LOADS):
            await asyncio.wait([self._start(name) for name in due[start : start + _MAX_LOADS]], timeout=_LOAD_TIMEOUT)

    def _start(self, name: str) -> "asyncio.Task[None]":
        task = self._loading.get(name)
        if task is None:
            task = self._loading[name] = spawn(self._fetch(name))
        return task

    async def _fetch(self, name: str) -> None:
        try:
            self._put(name, await self._load(name), REFRESH)
        except RemotingError as error:
            _log.debug("no configuration of %s: %s", name, error)
            entry = self._entries.get(name)
            if entry is not None:
                entry.due = self._clock() + _RETRY_DELAY
        finally:
            del self._loading[name]

    def _put(self, name: str, config: _Config, interval: float) -> None:
        """Store a configuration; the next load is due after at least `interval` seconds."""
        entry, now = self._entries.get(name), self._clock()
        if entry is None:
            if len(self._entries) >= _MAX_ENTRIES:
                self._make_room()
            self._entries[name] = _Entry(config, now + interval, now, interval)
            return
        entry.interval = interval if entry.used_since_load else max(interval, 2 * entry.interval)
        former, entry.config, entry.due, entry.used_since_load = entry.config, config, now + entry.interval, False
        if former != config:
            self._changed(config)

    def _make_room(self) -> None:
        """Drop the least recently used half of the entries."""
        by_use = sorted(self._entries, key=lambda name: self._entries[name].used)
        for name in by_use[: len(by_use) // 2 + 1]:
            del self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)


class MetadataCache:
    """The configurations of topics and of consumer groups. `refresh` must be called about every second."""

    def __init__(self, backend: Callable[[], Backend], clock: Callable[[], float] | None = None) -> None:
        clock = asyncio.get_running_loop().time if clock is None else clock
        self._backend = backend
        self._listeners: list[Callable[[GroupConfig], None]] = []
        # An unknown topic accepts every message type; its broker decides.
        self.topics = ConfigCache(
            self._load_topic, lambda name: TopicConfig(name, MessageType.UNSPECIFIED), clock, lambda _: None
        )
        self.groups = ConfigCache(
            self._load_group, lambda name: GroupConfig(name, assumed=True), clock, self._group_changed
        )
        self._turn = 0

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        """Call `listener` with each group configuration that differs from the former one."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Reload configurations that are due and drop unused ones; to be called about every second."""
        await asyncio.gather(self.topics.refresh(), self.groups.refresh())

    def _group_changed(self, config: GroupConfig) -> None:
        for listener in self._listeners:
            listener(config)

    async def _load_topic(self, name: str) -> TopicConfig:
        try:
            brokers = (await self._backend().route(name)).brokers
        except TopicNotExist:
            # A send may create the topic.
            return TopicConfig(name, MessageType.UNSPECIFIED)
        command = commands.request(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
        reply = await self._ask(brokers, command, ResponseCode.TOPIC_NOT_EXIST)
        return TopicConfig(name, MessageType.UNSPECIFIED) if reply is None else TopicConfig.parse(reply.body)

    async def _load_group(self, name: str) -> GroupConfig:
        brokers = await self._backend().brokers()
        command = commands.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
        reply = await self._ask(brokers, command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return GroupConfig(name) if reply is None else GroupConfig.parse(reply.body)

    async def _ask(
        self, brokers: Iterable[str], command: RemotingCommand, unknown: ResponseCode
    ) -> RemotingCommand | None:
        """Return the first successful reply of a broker, or None if its response code is `unknown`.

        Raises RemotingError. All brokers of a cluster have the same configurations; loads start at a different one
        each time.
        """
        names = sorted(brokers)
        self._turn += 1
        start = self._turn % len(names) if names else 0
        failure: RemotingError = ServiceUnavailable("no broker is available")
        for broker in (names[start:] + names[:start])[:_MAX_BROKERS]:
            try:
                reply = await self._backend().request(
                    broker, REQUESTS[command.code], command.copy(), _BROKER_TIMEOUT, None
                )
            except RemotingError as error:
                failure = error
                continue
            if reply.code == ResponseCode.SUCCESS:
                return reply
            if reply.code == unknown:
                return None
            failure = ServiceUnavailable(f"{broker} answered {reply.code}: {reply.remark}")
        raise failure
