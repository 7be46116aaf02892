"""The observation of a good client without an attack, and beside a harmless one."""

from dataclasses import replace

import pytest

from tests.attacks.good_client import Observation, observed
from tests.cluster.client import Client, unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio


async def test_good_client_without_an_attack_has_no_failure(replica: Gantry) -> None:
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as client,
    ):
        client.write(b"\x00\x00\x00\x10")
    observation.check(growth=20)
    assert len(observation.latencies) > 10


def test_others_lengthen_the_allowed_stall() -> None:
    stalled = Observation(latencies=[1.5], others=0.5)
    stalled.check(growth=0)
    with pytest.raises(AssertionError, match=r"longest 1\.500 s"):
        replace(stalled, others=0.1).check(growth=0)
