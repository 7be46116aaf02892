"""The observation of a good client without an attack, and beside a harmless one."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from tests.attacks.good_client import Observation, observed
from tests.cluster.client import Client, unique
from tests.cluster.servers import Gantry, eventually

pytestmark = pytest.mark.anyio


async def test_good_client_without_an_attack_has_no_failure(replica: Gantry) -> None:
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as client,
    ):
        client.write(b"\x00\x00\x00\x10")
        await eventually(lambda: len(observation.latencies) > 10, "more than ten requests")
    observation.check(growth=20)


def test_others_lengthen_the_allowed_stall() -> None:
    stalled = Observation(latencies=[1.5], others=0.5)
    stalled.check(growth=0)
    with pytest.raises(AssertionError, match=r"longest 1\.500 s"):
        replace(stalled, others=0.1).check(growth=0)


def test_waits_for_a_processor_are_no_stall() -> None:
    stalled = Observation(latencies=[0.1, 3.0], waits=[0.0, 2.5])
    stalled.check(growth=0)
    with pytest.raises(AssertionError, match=r"longest 1\.500 s \(3\.000 s with waits"):
        replace(stalled, waits=[0.0, 1.5]).check(growth=0)


async def test_a_stopped_server_stalls_the_good_client(replica: Gantry) -> None:
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            # Longer than the stall that is expected: on a busy machine the next request begins later.
            await asyncio.sleep(3)
        finally:
            os.kill(replica.pid, signal.SIGCONT)
    # Also on a busy machine: a stopped process does not wait for a processor.
    assert observation.longest_stall > 1.2
