"""TLS records that carry no data, or little."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.deployments import Deployment
from tests.attacks.good_client import observed
from tests.attacks.raw_client import ACK, PREFACE, Kind, frame, settings
from tests.attacks.replicas import Baseline, deployed, wait_until_ready
from tests.cluster.client import unique
from tests.cluster.servers import HOST, Gantry, eventually
from tests.protocol_negotiation.tls_client import TlsClient

pytestmark = pytest.mark.anyio


@pytest.fixture
def replica(tmp_path: Path, deployment: Deployment, namesrv: str) -> Iterator[Gantry]:
    """Run Gantry so that connections may be silent while the records are made, which takes long on a busy machine."""
    with deployed(deployment, tmp_path, namesrv, limits="negotiation_timeout = 250") as gantry:
        wait_until_ready(gantry, deployment)
        baseline = Baseline(gantry.pid)
        yield gantry
        baseline.wait_for_release()


# First bytes of an HTTP/2 connection.
_BEGIN = PREFACE + settings({}) + frame(Kind.SETTINGS, ACK)


def _make_flood(replica: Gantry, updates: int) -> tuple[TlsClient, bytes]:
    """Open a connection; return it with the records to send: the first bytes, and KeyUpdates."""
    client = TlsClient(HOST, replica.port)
    return client, client.records(_BEGIN) + client.key_updates(updates)


def _refusals(replica: Gantry) -> int:
    return replica.log.read_text().count("bytes of TLS records without data")


async def test_a_flood_of_key_updates(replica: Gantry) -> None:
    """1.6 MB as 60,000 KeyUpdate records, and 67 KB on each of 8 connections; all connections are closed."""
    floods = await asyncio.to_thread(lambda: [_make_flood(replica, count) for count in (60_000, *[2_500] * 8)])
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        for client, flood in floods:
            await asyncio.to_thread(client.send, flood)
        for client, _ in floods:
            with client.socket:
                await asyncio.to_thread(client.wait_closed)
        # The line of the log may be written after the end of its connection has arrived.
        await eventually(lambda: _refusals(replica) >= len(floods), "a line of the log for each flood")
    assert _refusals(replica) == len(floods)
    observation.check(growth=20, stall=0.2)


async def test_a_flood_of_records_with_one_byte(replica: Gantry) -> None:
    """300,000 records of one byte, which are acknowledgements of pings."""
    client = await asyncio.to_thread(TlsClient, HOST, replica.port)
    ping = frame(Kind.PING, ACK, 0, bytes(8))
    flood = client.records(_BEGIN, *(bytes((byte,)) for byte in ping * (300_000 // len(ping))))
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        with client.socket:
            assert await asyncio.to_thread(client.send, flood)
            await asyncio.sleep(1.0)
    observation.check(growth=20, stall=0.2)
