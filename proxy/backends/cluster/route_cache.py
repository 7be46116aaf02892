"""The route cache: a warm route never waits for a name server, and an old one beats none."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from remoting.errors import RemotingError, TopicNotExist
from remoting.routes import TopicRoute
from remoting.tasks import spawn

# How long an unknown topic is not asked for again, in seconds: a producer may be about to create it.
_UNKNOWN_FOR = 1.0
# Routes that are refreshed at the same time, and entries beyond which unknown topics are not noted.
_AT_ONCE = 32
_MAX = 20_000
# A topic that was there is not given up before this, in seconds: a name server that has just been
# started knows no topic until the brokers register again.
_DOUBT = 60.0


@dataclass(slots=True)
class _Entry:
    route: TopicRoute | None
    loaded: float
    used: float


class RouteCache:
    """Routes by topic. `load` asks for one; `clock` gives seconds.

    An entry is loaded again in the background every `refresh` seconds while it is in use, and
    dropped after `idle` seconds without use. When loading fails, the known route stays in force.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[TopicRoute]],
        clock: Callable[[], float],
        refresh: float,
        idle: float,
    ) -> None:
        self._load = load
        self._clock = clock
        self._refresh = refresh
        self._idle = idle
        self._entries: dict[str, _Entry] = {}
        self._loading: dict[str, asyncio.Task[TopicRoute]] = {}
        self.counts = {"hit": 0, "miss": 0, "refresh": 0, "error": 0}

    def cached(self, topic: str) -> TopicRoute | None:
        """The route at hand."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        self.counts["hit"] += entry.route is not None
        entry.used = self._clock()
        return entry.route

    async def get(self, topic: str) -> TopicRoute:
        """The route, loaded if need be, once for all who wait. Raises TopicNotExist, ServiceUnavailable."""
        entry = self._entries.get(topic)
        now = self._clock()
        self.counts["miss"] += entry is None or entry.route is None
        if entry is not None:
            entry.used = now
            if entry.route is not None:
                self.counts["hit"] += 1
                return entry.route
            if now - entry.loaded < _UNKNOWN_FOR:
                raise TopicNotExist(f"no route info of topic {topic}")
        return await asyncio.shield(self._start(topic))

    def remove(self, topic: str) -> None:
        """The topic is no more: its route is not at hand any longer."""
        self._entries.pop(topic, None)

    async def refresh(self) -> None:
        """Load again what is in use and old, drop what is not in use."""
        now = self._clock()
        for topic in [topic for topic, entry in self._entries.items() if now - entry.used > self._idle]:
            del self._entries[topic]
        for topic in [topic for topic, entry in self._entries.items() if entry.route is None]:
            del self._entries[topic]
        old = [topic for topic, entry in self._entries.items() if now - entry.loaded >= self._refresh / 2]
        for start in range(0, len(old), _AT_ONCE):
            part = old[start : start + _AT_ONCE]
            await asyncio.gather(*(self._start(topic) for topic in part), return_exceptions=True)

    def _start(self, topic: str) -> "asyncio.Task[TopicRoute]":
        task = self._loading.get(topic)
        if task is None:
            task = self._loading[topic] = spawn(self._fetch(topic))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _fetch(self, topic: str) -> TopicRoute:
        known = self._entries.get(topic)
        used = self._clock() if known is None else known.used
        if known is not None:
            self.counts["refresh"] += 1
        try:
            route = await self._load(topic)
        except TopicNotExist:
            if known is not None and known.route is not None and self._clock() - known.loaded < _DOUBT:
                return known.route
            if topic in self._entries or len(self._entries) < _MAX:
                self._entries[topic] = _Entry(None, self._clock(), used)
            raise
        except RemotingError:
            self.counts["error"] += 1
            if known is not None and known.route is not None:
                return known.route
            raise
        else:
            self._entries[topic] = _Entry(route, self._clock(), used)
            return route
        finally:
            del self._loading[topic]

    def __len__(self) -> int:
        return len(self._entries)
