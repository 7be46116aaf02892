"""Metrics of the memory and of the actions against overload."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.core.messaging import Messaging
from proxy.observability.metrics.registry import Metrics
from proxy.overload import overload_metrics
from tests.proxy.fakes import Clock
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.overload.fakes import MIB
from tests.proxy.overload.stage import Stage

pytestmark = pytest.mark.anyio


async def test_level_memory_and_actions_are_exposed() -> None:
    clock, metrics = Clock(), Metrics()
    on = Stage(clock)
    core = cast(Messaging, SimpleNamespace(budget=on.budget))
    metrics.add(partial(overload_metrics.read, on.overload, core))
    on.connect(unfinished=90)
    on.connect(requests=1)
    on.budget.used = 3 * MIB
    on.measure(400)
    clock.now += 1.1
    on.measure(400)

    def value(name: str, *labels: str) -> Any:
        return samples_of(metrics, name)[labels]

    assert value("gantry_overload_level") == 1
    assert value("gantry_memory_bytes") == 400 * MIB
    assert value("gantry_memory_limit_bytes") == 512 * MIB
    assert value("gantry_held_bytes", "requests") == 3 * MIB
    assert value("gantry_held_bytes", "unfinished") == on.overload.watch.unfinished
    assert value("gantry_overload_actions_total", "pause") == 1
