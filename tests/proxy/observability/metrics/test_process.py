"""Metrics of the process."""

import asyncio
import gc
import resource
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from proxy.core.build import build_kind
from proxy.observability.metrics.process import BUILD, LAG, PAUSE, ProcessProbe
from tests.proxy.observability.metrics.samples import read

pytestmark = pytest.mark.anyio


async def test_a_blocked_event_loop_is_measured_as_lag() -> None:
    probe = ProcessProbe()
    with probe.running():
        async with asyncio.timeout(30):
            while not sum(read(probe.read(), LAG)[()].counts):
                await asyncio.sleep(0.01)
        time.sleep(0.6)  # noqa: ASYNC251  # blocks the loop on purpose
        before = read(probe.read(), LAG)[()]
        async with asyncio.timeout(30):
            while sum(read(probe.read(), LAG)[()].counts) == sum(before.counts):
                await asyncio.sleep(0.01)
    lag = read(probe.read(), LAG)[()]
    late = LAG.bounds.index(0.25) + 1
    assert sum(lag.counts[late:]) >= 1
    assert lag.total >= 0.3


@pytest.fixture
def no_other_collections() -> Iterator[None]:
    """Disable automatic garbage collection."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_other_collections")
async def test_garbage_collections_are_measured_while_the_probe_runs() -> None:
    probe = ProcessProbe()
    counts = [sum(read(probe.read(), PAUSE)["2",].counts)]
    with probe.running():
        for _ in range(2):
            gc.collect()
            counts.append(sum(read(probe.read(), PAUSE)["2",].counts))
    gc.collect()
    assert [after - before for before, after in pairwise(counts)] == [1, 1]
    assert sum(read(probe.read(), PAUSE)["2",].counts) == 2
    assert read(probe.read(), PAUSE)["2",].total > 0


async def test_on_period_is_called_periodically() -> None:
    called = asyncio.Event()
    with ProcessProbe(called.set, period=0.25).running():
        async with asyncio.timeout(30):
            await called.wait()


async def test_build_and_process_metrics_are_read() -> None:
    probe = ProcessProbe()
    with probe.running():
        families = list(probe.read())
    ((version, python, loop, build), value) = next(iter(read(families, BUILD).items()))
    assert (version, python.count("."), loop, build, value) == (
        "0.1.0",
        2,
        type(asyncio.get_running_loop()).__module__.partition(".")[0],
        build_kind(),
        1,
    )
    series = {family.series_name: samples for family, samples in families}
    assert series["gantry_build_info"] == {(version, python, loop, build): 1}
    # A started process, whose pauses are in a histogram even without any.
    assert 0 < time.time() - series["process_start_time_seconds"][()] < 86_400  # type: ignore[operator]
    assert set(series["gantry_gc_pause_seconds"]) == {("0",), ("1",), ("2",)}
    assert series["process_max_fds"][()] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert series["process_virtual_memory_bytes"][()] > series["process_resident_memory_bytes"][()]  # type: ignore[operator]
    assert series["process_resident_memory_bytes"][()] > 2**20  # type: ignore[operator]
    assert series["process_open_fds"][()] > 2  # type: ignore[operator]
    assert series["process_cpu_seconds_total"][()] > 0  # type: ignore[operator]
