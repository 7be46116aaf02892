"""kill -9 under load: no acknowledged message is lost, and each is where its answer said."""

import asyncio
from pathlib import Path

import anyio
import pytest

from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from tests.cluster.client import Client, pull_fields, send_fields, v2
from tests.proxy.embedded.kit import EmbeddedCluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

_ROUNDS, _SENDERS = 3, 16


async def _send(client: Client, number: int, acknowledged: dict[int, bytes]) -> None:
    """Send until the broker is gone."""
    count = 0
    while True:
        body = b"%d-%d" % (number, count)
        count += 1
        try:
            reply = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields("t"))), body)
        except RemotingError:
            return
        assert reply.code == ResponseCode.SUCCESS
        acknowledged[int(reply.fields["queueOffset"])] = body


async def _all(address: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    async with Client(address) as client:
        while True:
            reply = await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields("t", "g", offset=len(found))))
            if reply.code != ResponseCode.SUCCESS:
                return found
            for message in messages.decode_messages(reply.body):
                messages.check_crc(message)
                found[message.queue_offset] = message.body


async def test_what_was_acknowledged_survives(tmp_path: Path) -> None:
    acknowledged: dict[int, bytes] = {}
    with EmbeddedCluster(tmp_path, durable=True) as broker:
        for _ in range(_ROUNDS):
            async with Client(broker.broker) as client:
                senders = [asyncio.create_task(_send(client, number, acknowledged)) for number in range(_SENDERS)]
                await anyio.sleep(1)
                broker.kill()
                await asyncio.gather(*senders)
            broker.start()
            found = await _all(broker.broker)
            assert list(found) == list(range(len(found)))
            assert found.items() >= acknowledged.items()
    assert len(acknowledged) > _ROUNDS * _SENDERS
