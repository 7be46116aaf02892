"""The registry: everything that is counted here, and how it is shown."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from proxy.observability.metrics.connections import Connections
from proxy.observability.metrics.envoy import Envoy
from proxy.observability.metrics.exposition import families
from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Samples, Snapshot
from proxy.observability.metrics.negotiations import Negotiations
from proxy.observability.metrics.process import Probe
from proxy.observability.metrics.requests import Requests
from proxy.observability.metrics.series_aggregator import SeriesAggregator
from proxy.observability.metrics.stats import Format, Query, render_json, render_text
from proxy.observability.metrics.upstream import Upstreams
from proxy.settings.metrics import MetricsSettings

# Gives some families with what was counted since the start; the values are the caller's to keep.
Source = Callable[[], Iterable[tuple[Family, Samples]]]

_UP = Family(
    "rocketmq_proxy_up", Kind.GAUGE, "Always 1: the proxy is there, and serves this mode.", ("proxy_mode",), Merge.MAX
)
_CHANGES = Family("gantry_group_changes", Kind.COUNTER, "Clients that joined or left a consumer group.", ("change",))
# Seconds that the event loop has for a snapshot.
_TIMEOUT = 5.0
_DEFAULTS = MetricsSettings()


class Metrics(Collector):
    """What one process counts. Everything is counted in the event loop, plainly, and put into form when it is read.

    As a collector of prometheus_client it shows this process alone.
    node, mode: who we are and which backend we have, for RIP-46's labels.
    """

    def __init__(self, settings: MetricsSettings = _DEFAULTS, node: str = "", mode: str = "cluster") -> None:
        self.settings = settings
        self.requests = Requests(settings.idle)
        self.connections = Connections()
        self.negotiations = Negotiations()
        self.upstreams = Upstreams()
        self.envoy = Envoy(self.requests, self.connections, self.upstreams)
        self.probe = Probe(self.envoy.flush)
        self.changes: dict[str, int] = {"joined": 0, "left": 0}
        self._node = node
        self._mode = mode
        self._ledger = SeriesAggregator(settings.top, settings.idle)
        # Snapshots are numbered as they are taken, and may reach the ledger in another order.
        self._numbers = itertools.count(1)
        self._fed = 0
        # Whoever collects does so in a thread of the HTTP server.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sources: list[Source] = [
            self._own,
            self.requests.read,
            self.connections.read,
            self.negotiations.read,
            self.upstreams.read,
            self.envoy.read,
            self.probe.read,
        ]

    @property
    def observe(self) -> Callable[..., None]:
        """The observer of requests, without a call in between."""
        return self.requests.observe

    # What others keep.

    def add(self, source: Source) -> None:
        """Show what somebody else counts."""
        self._sources.append(source)

    def gauge(self, name: str, text: str, read: Callable[[], float], merge: Merge = Merge.SUM) -> None:
        """Show a value that somebody else keeps."""
        family = Family(name, Kind.GAUGE, text, (), merge)
        self.add(lambda: [(family, {(): read()})])

    def counter(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> None:
        """Show counts that somebody else keeps, by one label. name: without `_total`."""
        family = Family(name, Kind.COUNTER, text, (label,))
        self.add(lambda: [(family, {(value,): count for value, count in counts.items()})])

    # What there is to see.

    def snapshot(self) -> Snapshot:
        """Everything as it is now; for the event loop's thread."""
        return [(family, _kept(samples)) for source in self._sources for family, samples in source()]

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the event loop runs, it is measured, and snapshots are taken in it, whoever collects."""
        self._loop = asyncio.get_running_loop()
        try:
            with self.probe.running():
                yield
        finally:
            self._loop = None

    def collect(self) -> Iterable[Metric]:
        """All metrics, as prometheus_client asks for them. Raises TimeoutError where the loop does not get to it."""
        number, snapshot = self._taken()
        with self._lock:
            # To the ledger, one that is older than what it has would be of a process that began anew.
            if number > self._fed:
                self._ledger.feed("", snapshot)
                self._fed = number
            return list(families(self._ledger.series(), self.settings.cluster, self._node))

    def _taken(self) -> tuple[int, Snapshot]:
        """A snapshot with its number."""
        loop = self._loop
        if loop is None or loop is _running():
            return next(self._numbers), self.snapshot()
        taken: Future[tuple[int, Snapshot]] = Future()
        loop.call_soon_threadsafe(self._take, taken)
        return taken.result(_TIMEOUT)

    def _take(self, taken: "Future[tuple[int, Snapshot]]") -> None:
        try:
            taken.set_result((next(self._numbers), self.snapshot()))
        except Exception as error:
            taken.set_exception(error)

    def stats(self, query: Query) -> tuple[str, bytes]:
        """Media type and body of Envoy's `/stats`; for the event loop's thread."""
        prefix = self.settings.stat_prefix
        if query.format is Format.PROMETHEUS:
            return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self)
        if query.format is Format.JSON:
            return "application/json", render_json(self.envoy, prefix, query)
        return "text/plain; charset=UTF-8", render_text(self.envoy, prefix, query).encode()

    def _own(self) -> Iterable[tuple[Family, Samples]]:
        yield _UP, {(self._mode,): 1}
        yield _CHANGES, {(change,): count for change, count in self.changes.items()}


def _kept(samples: Samples) -> Samples:
    """A copy that no longer changes."""
    return {key: value.copy() if isinstance(value, Distribution) else value for key, value in samples.items()}


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
