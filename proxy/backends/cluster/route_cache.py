"""The route cache: cached routes are returned without waiting, and stay in use while name servers are unavailable."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass

from proxy.backends.cluster.shared_load import SharedLoad
from remoting.errors import Overloaded, RemotingError, TopicNotExist, no_route
from remoting.routes import TopicRoute
from remoting.tasks import retrieve_error, spawn
from remoting.token_bucket import TokenBucket

# Seconds for which an unknown topic is not loaded again; short, as a producer may be about to create it.
_UNKNOWN_SECONDS = 1.0
# Maximum number of concurrent refreshes, and of entries beyond which unknown topics are not cached.
_MAX_REFRESHES = 32
# Look-ups of unknown topics at once, and per second after them; seconds between loads of the list of topics, which
# answers further ones.
_UNKNOWN_BURST, _UNKNOWN_RATE = 64, 16.0
_LIST_INTERVAL = 1.0
_MAX_ENTRIES = 20_000
# Seconds for which a cached route is kept although the name servers do not have the topic: a restarted name server has
# no topics until the brokers register again.
_KEEP_SECONDS = 60.0


@dataclass(slots=True)
class _Entry:
    route: TopicRoute | None
    loaded: float
    used: float


class RouteCache:
    """Routes by topic. `load` loads one, `load_names` the names of all topics; `clock` is in seconds.

    Clients may invent topics: beyond a rate of look-ups without a result, one list of all topics per second decides
    whether a topic exists. A look-up waits for that list, so that a topic that was just created is found.

    An entry is loaded again in the background every `refresh` seconds while it is in use, and dropped after `idle`
    seconds without use. If loading fails, the former route stays in use.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[TopicRoute]],
        clock: Callable[[], float],
        refresh: float,
        idle: float,
        load_names: Callable[[], Awaitable[Container[str]]] | None = None,
    ) -> None:
        self._load = load
        self._clock = clock
        self._refresh = refresh
        self._idle = idle
        self._unknown = TokenBucket(_UNKNOWN_RATE, _UNKNOWN_BURST, clock())
        self._names = None if load_names is None else SharedLoad(load_names, _LIST_INTERVAL, clock)
        self._entries: dict[str, _Entry] = {}
        self._loading: dict[str, asyncio.Task[TopicRoute]] = {}
        self.counts = {"hit": 0, "miss": 0, "refresh": 0, "error": 0, "listed": 0}

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the cached route or None."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        self.counts["hit"] += entry.route is not None
        entry.used = self._clock()
        return entry.route

    async def get(self, topic: str) -> TopicRoute:
        """Return the route, loading it if necessary; concurrent callers share one load.

        Raises TopicNotExist, ServiceUnavailable.
        """
        entry = self._entries.get(topic)
        now = self._clock()
        self.counts["miss"] += entry is None or entry.route is None
        if entry is not None:
            entry.used = now
            if entry.route is not None:
                self.counts["hit"] += 1
                return entry.route
            if now - entry.loaded < _UNKNOWN_SECONDS:
                raise no_route(topic)
        if topic not in self._loading and self._names is not None:
            if self._unknown.spend(1.0, now):
                await self._check_listed(topic, self._names)
            else:
                route = await asyncio.shield(self._start(topic))
                self._unknown.give_back(1.0)
                return route
        return await asyncio.shield(self._start(topic))

    async def _check_listed(self, topic: str, names: SharedLoad[Container[str]]) -> None:
        """Raise TopicNotExist if no name server lists the topic, Overloaded if they return no list."""
        self.counts["listed"] += 1
        try:
            listed = topic in await names.next()
        except RemotingError as error:
            raise Overloaded(f"too many look-ups of unknown topics; try again later: {error}") from None
        if not listed:
            raise no_route(topic)

    def remove(self, topic: str) -> None:
        """Remove a topic's route."""
        self._entries.pop(topic, None)

    def forget_unknown(self, topics: Iterable[str]) -> None:
        """Look these topics up again, if they were unknown: they may exist now."""
        for topic in topics:
            entry = self._entries.get(topic)
            if entry is not None and entry.route is None:
                del self._entries[topic]

    async def refresh(self) -> None:
        """Reload old routes and drop unused ones."""
        now = self._clock()
        for topic in [topic for topic, entry in self._entries.items() if now - entry.used > self._idle]:
            del self._entries[topic]
        for topic in [topic for topic, entry in self._entries.items() if entry.route is None]:
            del self._entries[topic]
        old = [topic for topic, entry in self._entries.items() if now - entry.loaded >= self._refresh / 2]
        for start in range(0, len(old), _MAX_REFRESHES):
            batch = old[start : start + _MAX_REFRESHES]
            await asyncio.gather(*(self._start(topic) for topic in batch), return_exceptions=True)

    def _start(self, topic: str) -> "asyncio.Task[TopicRoute]":
        task = self._loading.get(topic)
        if task is None:
            task = self._loading[topic] = spawn(self._fetch(topic))
            task.add_done_callback(retrieve_error)
        return task

    async def _fetch(self, topic: str) -> TopicRoute:
        former = self._entries.get(topic)
        used = self._clock() if former is None else former.used
        if former is not None:
            self.counts["refresh"] += 1
        try:
            route = await self._load(topic)
        except TopicNotExist:
            if former is not None and former.route is not None and self._clock() - former.loaded < _KEEP_SECONDS:
                return former.route
            if topic in self._entries or len(self._entries) < _MAX_ENTRIES:
                self._entries[topic] = _Entry(None, self._clock(), used)
            raise
        except RemotingError:
            self.counts["error"] += 1
            if former is not None and former.route is not None:
                return former.route
            raise
        else:
            self._entries[topic] = _Entry(route, self._clock(), used)
            return route
        finally:
            del self._loading[topic]

    def __len__(self) -> int:
        return len(self._entries)
