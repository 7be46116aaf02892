"""The process: how late its event loop is, how long garbage collection holds it up, and what it uses."""

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

from proxy.observability.metrics.family import Distribution, Family, Kind, Merge, Samples

# Seconds between two looks at the loop's clock.
_INTERVAL = 0.25
_LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_PAUSE_BOUNDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_GENERATIONS = 3

LAG = Family(
    "gantry_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How much later than asked for the event loop calls, looked at four times a second.",
    bounds=_LAG_BOUNDS,
)
PAUSE = Family(
    "gantry_gc_pause_seconds",
    Kind.HISTOGRAM,
    "How long garbage collections stopped everything.",
    ("generation",),
    bounds=_PAUSE_BOUNDS,
)
BUILD = Family(
    "gantry_build_info",
    Kind.GAUGE,
    "Always 1: what runs here.",
    ("version", "python", "loop"),
    Merge.MAX,
)
# What prometheus_client knows of the process that cannot be added up.
_MERGES = {"process_start_time_seconds": Merge.MIN, "process_max_fds": Merge.MAX}


class Probe:
    """Measures the process while it is `running`. `every` is called about every `period` seconds."""

    def __init__(self, every: Callable[[], None] = lambda: None, period: float = 5.0) -> None:
        self._lag = Distribution.over(_LAG_BOUNDS)
        self._pauses = [Distribution.over(_PAUSE_BOUNDS) for _ in range(_GENERATIONS)]
        self._began = 0.0
        self._every = every
        self._turns = max(round(period / _INTERVAL), 1)
        self._process = ProcessCollector(registry=CollectorRegistry())
        self._loop = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the running loop."""
        loop = asyncio.get_running_loop()
        self._loop = type(loop).__module__.partition(".")[0]
        due, turn = loop.time() + _INTERVAL, 0
        handle = loop.call_at(due, lambda: look())

        def look() -> None:
            nonlocal handle, due, turn
            now = loop.time()
            _add(self._lag, _LAG_BOUNDS, max(now - due, 0.0))
            due, turn = now + _INTERVAL, turn + 1
            handle = loop.call_at(due, look)
            if turn % self._turns == 0:
                self._every()

        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            handle.cancel()
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            _add(self._pauses[info["generation"]], _PAUSE_BOUNDS, time.perf_counter() - self._began)

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module."""
        yield LAG, {(): self._lag.copy()}
        yield PAUSE, {(str(number),): pauses.copy() for number, pauses in enumerate(self._pauses)}
        yield BUILD, {(product_version(), platform.python_version(), self._loop): 1}
        for found in self._process.collect():
            family = Family(found.name, Kind(found.type), found.documentation, (), _MERGES.get(found.name, Merge.SUM))
            yield family, {(): next(one.value for one in found.samples if one.name == family.shown_name)}


def _add(distribution: Distribution, bounds: tuple[float, ...], value: float) -> None:
    distribution.counts[bisect_left(bounds, value)] += 1
    distribution.total += value


@cache
def product_version() -> str:
    """Ours, as it was installed."""
    try:
        return version("rocketmq-gantry")
    except PackageNotFoundError:
        return "unknown"
