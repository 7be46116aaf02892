"""Floods of cheap requests over sockets, with a good client beside them.

The shares are measured in `tests/proxy/test_fair_shares.py`.
"""

import asyncio
from pathlib import Path

import pytest

from tests.attacks.cases import cases
from tests.attacks.flood import FLOODS, flooding
from tests.attacks.good_client import observed
from tests.cluster.client import unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_GROWTH = 64.0


_CONNECTIONS = {"sends": 20, "unknown codes": 1, "fastjson's dialect": 20}


@pytest.mark.parametrize("name", cases(_CONNECTIONS, "sends"))
async def test_a_flood_does_not_stall_others(replica: Gantry, tmp_path: Path, name: str) -> None:
    octets = FLOODS[name] * max(1, (1 << 18) // len(FLOODS[name]))
    async with observed(replica.address, replica.pid, unique("orders")) as observation:
        with flooding(tmp_path, replica.port, octets, _CONNECTIONS[name], "127.0.0.2") as flood:
            await asyncio.sleep(1.5)
    assert flood.received
    observation.check(growth=_GROWTH)
