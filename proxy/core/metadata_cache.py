"""Topics' and consumer groups' configurations, as brokers have them: at hand, loaded once, refreshed while used."""

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
from remoting.requests import INTERNAL_REQUESTS
from remoting.tasks import spawn
from remoting.topic_group_config import GroupConfig, TopicConfig

_log = logging.getLogger("gantry.configs")

_Config = TypeVar("_Config")

# Whoever waits for a configuration gets the defaults after this time, in seconds.
_LOAD_TIMEOUT = 2.0
# How long one broker is waited for before another is asked, in seconds, and how many are.
_TIMEOUT = 1.0
_BROKERS = 3
# A configuration in use is loaded again when it is so old, dropped when it was not used for so long, in seconds.
REFRESH = 10.0
_IDLE = 300.0
# After a failure it is tried again no sooner, in seconds.
_AGAIN = 2.0
# Loaded at the same time, and known at most: a client may make names up.
_AT_ONCE = 32
_MAX = 20_000


@dataclass(slots=True)
class _Entry(Generic[_Config]):
    config: _Config
    # When it is to be loaded again.
    due: float
    used: float
    # Seconds from load to load, and whether it has been asked for since the last.
    pause: float
    asked: bool = False


class ConfigCache(Generic[_Config]):
    """Configurations by name. `load` asks for one, `default` stands in for it; `clock` gives seconds.

    What is known is used until something newer is known, however long that takes: an old configuration is better
    than the defaults. `changed` gets each that is another than what was given out before.
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
        """The configuration at hand."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.used, entry.asked = self._clock(), True
        return entry.config

    async def get(self, name: str) -> _Config:
        """The configuration, loaded if need be; the defaults where it cannot be had in time."""
        known = self.cached(name)
        if known is not None:
            return known
        await asyncio.wait((self._start(name),), timeout=_LOAD_TIMEOUT)
        known = self.cached(name)
        if known is None:
            # It may come late; until then this is what everybody goes by.
            known = self._default(name)
            self._put(name, known, _AGAIN)
        return known

    async def refresh(self) -> None:
        """Load again what is in use and old, drop what is not in use; called every second or so.

        What nobody has asked for since the last load is loaded half as often each time: a client may make names up.
        """
        now = self._clock()
        for name in [name for name, entry in self._entries.items() if now - entry.used > _IDLE]:
            del self._entries[name]
        old = [name for name, entry in self._entries.items() if now >= entry.due and name not in self._loading]
        for start in range(0, len(old), _AT_ONCE):
            await asyncio.wait([self._start(name) for name in old[start : start + _AT_ONCE]], timeout=_LOAD_TIMEOUT)

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
                entry.due = self._clock() + _AGAIN
        finally:
            del self._loading[name]

    def _put(self, name: str, config: _Config, pause: float) -> None:
        """Know a configuration, for `pause` seconds at least."""
        entry, now = self._entries.get(name), self._clock()
        if entry is None:
            if len(self._entries) >= _MAX:
                self._make_room()
            self._entries[name] = _Entry(config, now + pause, now, pause)
            return
        entry.pause = pause if entry.asked else max(pause, 2 * entry.pause)
        former, entry.config, entry.due, entry.asked = entry.config, config, now + entry.pause, False
        if former != config:
            self._changed(config)

    def _make_room(self) -> None:
        """Drop the half that was used longest ago."""
        by_use = sorted(self._entries, key=lambda name: self._entries[name].used)
        for name in by_use[: len(by_use) // 2 + 1]:
            del self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)


class MetadataCache:
    """Both kinds. `run` it for as long as it is used."""

    def __init__(self, backend: Callable[[], Backend], clock: Callable[[], float] | None = None) -> None:
        clock = asyncio.get_running_loop().time if clock is None else clock
        self._backend = backend
        self._listeners: list[Callable[[GroupConfig], None]] = []
        # A topic of which nothing is known takes anything: its broker decides.
        self.topics = ConfigCache(
            self._load_topic, lambda name: TopicConfig(name, MessageType.UNSPECIFIED), clock, lambda _: None
        )
        self.groups = ConfigCache(
            self._load_group, lambda name: GroupConfig(name, assumed=True), clock, self._group_changed
        )
        self._turn = 0

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        """Call `listener` with a group's configuration whenever it is another than what was given out."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Keep what is in use fresh; called every second or so."""
        await asyncio.gather(self.topics.refresh(), self.groups.refresh())

    def _group_changed(self, config: GroupConfig) -> None:
        for listener in self._listeners:
            listener(config)

    async def _load_topic(self, name: str) -> TopicConfig:
        try:
            brokers = (await self._backend().route(name)).brokers
        except TopicNotExist:
            # A send to it may be about to create it.
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
        """What the first of the brokers says that can answer; None where they do not know the name.

        Raises RemotingError. All brokers of a cluster are set up alike, so any will do; not always the same one.
        """
        names = sorted(brokers)
        self._turn += 1
        start = self._turn % len(names) if names else 0
        failure: RemotingError = ServiceUnavailable("there is no broker now")
        for broker in (names[start:] + names[:start])[:_BROKERS]:
            try:
                reply = await self._backend().request(
                    broker, INTERNAL_REQUESTS[command.code], command.copy(), _TIMEOUT, None
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
