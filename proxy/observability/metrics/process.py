"""Metrics of the process: event loop lag, garbage collection pauses, version, and those of prometheus_client."""

import asyncio
import gc
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, ProcessCollector

from proxy.core.build import build_kind
from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Samples

# Seconds between measurements of the event loop's lag.
_INTERVAL = 0.25
_LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_PAUSE_BOUNDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_GENERATIONS = 3

LAG = Family(
    "gantry_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "Seconds by which the event loop ran a timer late, measured four times per second.",
    bounds=_LAG_BOUNDS,
)
PAUSE = Family(
    "gantry_gc_pause_seconds",
    Kind.HISTOGRAM,
    "Seconds for which a garbage collection paused the process, by generation.",
    ("generation",),
    bounds=_PAUSE_BOUNDS,
)
BUILD = Family(
    "gantry_build_info",
    Kind.GAUGE,
    "Always 1; the labels are the versions of Gantry and Python, the event loop, and whether the hot path is compiled.",
    ("version", "python", "loop", "build"),
    Merge.MAX,
)
# Metrics of prometheus_client's process collector that cannot be added.
_MERGES = {"process_start_time_seconds": Merge.MIN, "process_max_fds": Merge.MAX}


class ProcessProbe:
    """Measures the process while it is `running`. on_period: called about every `period` seconds."""

    def __init__(self, on_period: Callable[[], None] = lambda: None, period: float = 5.0) -> None:
        self._lag = Distribution.empty(_LAG_BOUNDS)
        self._pauses = [Distribution.empty(_PAUSE_BOUNDS) for _ in range(_GENERATIONS)]
        self._collection_started = 0.0
        self._on_period = on_period
        self._measurements_per_period = max(round(period / _INTERVAL), 1)
        self._process = ProcessCollector(registry=CollectorRegistry())
        self._loop = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the running event loop until the block ends."""
        loop = asyncio.get_running_loop()
        self._loop = type(loop).__module__.partition(".")[0]
        due, measurements = loop.time() + _INTERVAL, 0
        handle = loop.call_at(due, lambda: measure())

        def measure() -> None:
            nonlocal handle, due, measurements
            now = loop.time()
            _add(self._lag, _LAG_BOUNDS, max(now - due, 0.0))
            due, measurements = now + _INTERVAL, measurements + 1
            handle = loop.call_at(due, measure)
            if measurements % self._measurements_per_period == 0:
                self._on_period()

        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            handle.cancel()
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_started = time.perf_counter()
        else:
            pause = time.perf_counter() - self._collection_started
            _add(self._pauses[info["generation"]], _PAUSE_BOUNDS, pause)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        yield LAG, {(): self._lag.copy()}
        yield PAUSE, {(str(generation),): pauses.copy() for generation, pauses in enumerate(self._pauses)}
        yield BUILD, {(product_version(), platform.python_version(), self._loop, build_kind()): 1}
        for metric in self._process.collect():
            merge = _MERGES.get(metric.name, Merge.SUM)
            family = Family(metric.name, Kind(metric.type), metric.documentation, (), merge)
            yield family, {(): next(sample.value for sample in metric.samples if sample.name == family.series_name)}


def _add(distribution: Distribution, bounds: tuple[float, ...], value: float) -> None:
    distribution.counts[bisect_left(bounds, value)] += 1
    distribution.total += value


@cache
def product_version() -> str:
    """Return the installed version of Gantry, or "unknown"."""
    try:
        return version("rocketmq-gantry")
    except PackageNotFoundError:
        return "unknown"
