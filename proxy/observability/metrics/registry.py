"""Registry of all metrics of one process."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from proxy.observability.metrics import request_samples
from proxy.observability.metrics.connections import ConnectionCounts
from proxy.observability.metrics.envoy import EnvoyStatistics
from proxy.observability.metrics.exposition import families
from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Samples, Snapshot, Source
from proxy.observability.metrics.group_changes import GroupChangeCounts
from proxy.observability.metrics.negotiations import NegotiationCounts
from proxy.observability.metrics.process import ProcessProbe
from proxy.observability.metrics.request_counts import RequestCounts
from proxy.observability.metrics.series_aggregator import SeriesAggregator
from proxy.observability.metrics.stats import Format, Query, render_json, render_text
from proxy.observability.metrics.upstream import UpstreamCounts
from proxy.settings.metrics import MetricsSettings

_UP = Family("rocketmq_proxy_up", Kind.GAUGE, "Always 1 while the proxy runs, by its mode.", ("proxy_mode",), Merge.MAX)
# Seconds that the event loop has to take a snapshot.
_SNAPSHOT_TIMEOUT = 5.0
_DEFAULTS = MetricsSettings()


class Metrics(Collector):
    """Metrics of one process, counted in plain objects on the event loop and formatted when they are collected.

    As a prometheus_client collector it exposes this process only. node, mode: name of the replica and kind of backend,
    for RIP-46's labels.
    """

    def __init__(self, settings: MetricsSettings = _DEFAULTS, node: str = "", mode: str = "cluster") -> None:
        self.settings = settings
        self.requests = RequestCounts(settings.idle)
        self.connections = ConnectionCounts()
        self.negotiations = NegotiationCounts()
        self.upstreams = UpstreamCounts()
        self.envoy = EnvoyStatistics(self.requests, self.connections, self.upstreams)
        self.probe = ProcessProbe(self.envoy.flush)
        self._node = node
        self._mode = mode
        self._aggregator = SeriesAggregator(settings.top, settings.idle)
        # Snapshots are numbered when they are taken, because they may reach the aggregator in another order.
        self._numbers = itertools.count(1)
        self._latest_number = 0
        # Collections run in threads of the HTTP server.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.group_changes = GroupChangeCounts()
        self._sources: list[Source] = [
            self._read,
            self.group_changes.read,
            lambda: request_samples.read(self.requests),
            self.connections.read,
            self.negotiations.read,
            self.upstreams.read,
            self.envoy.read,
            self.probe.read,
        ]

    @property
    def observe(self) -> Callable[..., None]:
        """The observer of requests; direct, without a call in between."""
        return self.requests.observe

    # Registration.

    def add(self, *sources: Source) -> None:
        """Add families that are counted elsewhere."""
        self._sources.extend(sources)

    # Collection.

    def snapshot(self) -> Snapshot:
        """Return the current values of all families. Must be called in the event loop's thread."""
        return [(family, _copied(samples)) for source in self._sources for family, samples in source()]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the running event loop and take snapshots in it until the block ends."""
        self._loop = asyncio.get_running_loop()
        try:
            with self.probe.running():
                yield
        finally:
            self._loop = None

    def collect(self) -> Iterable[Metric]:
        """Return all metrics for prometheus_client. Raises TimeoutError if the event loop takes no snapshot in time."""
        number, snapshot = self._take_snapshot()
        with self._lock:
            # The aggregator would take the lower counts of an older snapshot for those of a restarted process.
            if number > self._latest_number:
                self._aggregator.add_snapshot("", snapshot)
                self._latest_number = number
            return list(families(self._aggregator.series(), self.settings.cluster, self._node))

    def _take_snapshot(self) -> tuple[int, Snapshot]:
        """Return a snapshot, taken in the event loop if it runs, and its number."""
        loop = self._loop
        if loop is None or loop is _running_loop():
            return next(self._numbers), self.snapshot()
        numbered: Future[tuple[int, Snapshot]] = Future()
        loop.call_soon_threadsafe(self._set_snapshot, numbered)
        return numbered.result(_SNAPSHOT_TIMEOUT)

    def _set_snapshot(self, numbered: "Future[tuple[int, Snapshot]]") -> None:
        try:
            numbered.set_result((next(self._numbers), self.snapshot()))
        except Exception as error:
            numbered.set_exception(error)

    def stats(self, query: Query) -> tuple[str, bytes]:
        """Return media type and body of Envoy's `/stats`. Must be called in the event loop's thread."""
        prefix = self.settings.stat_prefix
        if query.format is Format.PROMETHEUS:
            return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self)
        if query.format is Format.JSON:
            return "application/json", render_json(self.envoy, prefix, query)
        return "text/plain; charset=UTF-8", render_text(self.envoy, prefix, query).encode()

    def _read(self) -> Iterable[tuple[Family, Samples]]:
        yield _UP, {(self._mode,): 1}


def _copied(samples: Samples) -> Samples:
    """Return samples that no longer change."""
    return {key: value.copy() if isinstance(value, Distribution) else value for key, value in samples.items()}


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
