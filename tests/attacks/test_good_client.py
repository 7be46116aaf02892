"""The observation of a good client without an attack, and beside a harmless one."""

import pytest

from tests.attacks.good_client import observed
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
