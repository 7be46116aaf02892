import asyncio
import gc
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from proxy.observability.metrics.process import BUILD, LAG, PAUSE, Probe
from tests.proxy.observability.metrics.kit import read

pytestmark = pytest.mark.anyio


async def test_a_loop_that_is_held_up_is_late() -> None:
    probe = Probe()
    with probe.running():
        async with asyncio.timeout(30):
            while not sum(read(probe.read(), LAG)[()].counts):
                await asyncio.sleep(0.01)
        time.sleep(0.6)  # noqa: ASYNC251  # this is what is measured
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
    """Python collects nothing by itself."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_other_collections")
async def test_collections_are_measured_while_it_runs() -> None:
    probe = Probe()
    counts = [sum(read(probe.read(), PAUSE)["2",].counts)]
    with probe.running():
        for _ in range(2):
            gc.collect()
            counts.append(sum(read(probe.read(), PAUSE)["2",].counts))
    gc.collect()
    assert [after - before for before, after in pairwise(counts)] == [1, 1]
    assert sum(read(probe.read(), PAUSE)["2",].counts) == 2
    assert read(probe.read(), PAUSE)["2",].total > 0


async def test_somebody_is_called_now_and_then() -> None:
    called = asyncio.Event()
    with Probe(called.set, period=0.25).running():
        async with asyncio.timeout(30):
            await called.wait()


async def test_the_process_itself() -> None:
    probe = Probe()
    with probe.running():
        families = list(probe.read())
    ((version, python, loop), value) = next(iter(read(families, BUILD).items()))
    assert (version, python.count("."), loop, value) == (
        "0.1.0",
        2,
        type(asyncio.get_running_loop()).__module__.partition(".")[0],
        1,
    )
    shown = {family.shown_name: samples for family, samples in families}
    assert shown["process_resident_memory_bytes"][()] > 2**20  # type: ignore[operator]
    assert shown["process_open_fds"][()] > 2  # type: ignore[operator]
    assert shown["process_cpu_seconds_total"][()] > 0  # type: ignore[operator]
