"""The brokers of a cluster by name, from the name servers."""

import asyncio
import math
from collections.abc import Callable, Mapping

from proxy.backends.cluster.name_servers import NameServers
from proxy.backends.cluster.shared_load import SharedLoad
from remoting.routes import Replicas
from remoting.tasks import retrieve_error, spawn
from remoting.token_bucket import TokenBucket

# Seconds for which an unknown broker name is not looked up again, and the maximum number of such names.
_UNKNOWN_SECONDS = 1.0
_MAX_UNKNOWN = 1_000
# Refreshes for unknown brokers at once; after them, one per _UNKNOWN_SECONDS.
_LOOKUP_BURST = 8
# Seconds between refreshes after brokers were lost.
_MIN_REFRESH_SECONDS = 0.2


class BrokerTable:
    """The brokers by name, from the name servers' last replies, in `brokers`; at first there are none.

    is_live: whether a broker that no name server lists any more still answers. on_load: called after each load with the
    listed brokers and the former table.
    """

    def __init__(
        self,
        name_servers: NameServers,
        is_live: Callable[[Replicas], bool],
        on_load: Callable[[Mapping[str, Replicas], Mapping[str, Replicas]], None],
    ) -> None:
        self.brokers: dict[str, Replicas] = {}
        self._name_servers = name_servers
        self._is_live = is_live
        self._on_load = on_load
        self._loop = asyncio.get_running_loop()
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False
        # Refreshes for unknown brokers: a few at once, then one per interval, for which all look-ups wait.
        self._lookups = TokenBucket(1 / _UNKNOWN_SECONDS, _LOOKUP_BURST, self._loop.time())
        self._lookup = SharedLoad(self.refresh, _UNKNOWN_SECONDS, self._loop.time)
        # When the table was last loaded after a loss, in seconds, and whether another load is scheduled.
        self._lost_at = -math.inf
        self._refresh_scheduled = False
        # By broker name, the time in seconds at which no name server listed it.
        self._unknown: dict[str, float] = {}

    def close(self) -> None:
        """Schedule no more refreshes."""
        self._closed = True

    async def refresh(self) -> None:
        """Load the table from the name servers; concurrent callers share one load."""
        await asyncio.shield(self._refreshing or self._start_refresh())

    def refresh_soon(self) -> None:
        """Refresh the table after a broker was lost, at most once per _MIN_REFRESH_SECONDS."""
        if self._refreshing is not None or self._refresh_scheduled:
            return
        now = self._loop.time()
        delay = self._lost_at + _MIN_REFRESH_SECONDS - now
        if delay > 0:
            self._refresh_scheduled = True
            self._loop.call_later(delay, self._refresh_scheduled_after_loss)
            return
        self._lost_at = now
        self._start_refresh()

    async def find(self, broker: str) -> Replicas | None:
        """Return a broker that was not in the table, after a refresh; None if no name server lists it."""
        # A client that repeats requests to a removed broker must not load the name servers.
        now = self._loop.time()
        refresh = now - self._unknown.get(broker, -math.inf) >= _UNKNOWN_SECONDS
        if refresh:
            await (self._lookup.next() if self._lookups.spend(1.0, now) else self.refresh())
        replicas = self.brokers.get(broker)
        if replicas is None and refresh:
            if len(self._unknown) >= _MAX_UNKNOWN:
                self._unknown.clear()
            self._unknown[broker] = self._loop.time()
        return replicas

    def _start_refresh(self) -> "asyncio.Task[None]":
        self._refreshing = spawn(self._load())
        self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    async def _load(self) -> None:
        listed = await self._name_servers.brokers()
        # A restarted name server lists no broker yet: those with an open connection stay in the table if they answer.
        unlisted = {
            name: replicas for name, replicas in self.brokers.items() if name not in listed and self._is_live(replicas)
        }
        former, self.brokers = self.brokers, {**unlisted, **listed}
        self._on_load(listed, former)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        retrieve_error(task)

    def _refresh_scheduled_after_loss(self) -> None:
        self._refresh_scheduled = False
        if not self._closed:
            self.refresh_soon()
