"""Little requests that make much work at one time in the embedded broker, with a good client beside them."""

import asyncio
import struct
import time
from contextlib import AsyncExitStack

import pytest

from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import observed, send_fields
from tests.cluster.client import Client, pull_fields, unique
from tests.cluster.servers import Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.complete, pytest.mark.deployments(Deployment.EMBEDDED)]


def _batch(text: str, count: int) -> bytes:
    """Return the body of a batch of empty messages with these properties."""
    encoded = text.encode()
    return (struct.pack(">5ih", 22 + len(encoded), 0, 0, 0, 0, len(encoded)) + encoded) * count


async def _send_batch(client: Client, topic: str, body: bytes) -> None:
    fields = send_fields(topic) | {"m": "true"}
    assert (await client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)).code == ResponseCode.SUCCESS


async def test_large_messages_due_in_one_millisecond_do_not_stall(replica: Gantry) -> None:
    """60 delayed messages of 4 MB."""
    due = time.time() + 30
    pairs = {properties.TIMER_DELIVER_MS: str(int(due * 1000))}
    fields = send_fields(unique("due")) | {"i": properties.encode(pairs)}
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        for _ in range(60):
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, bytes(4_000_000))).code == 0
        await asyncio.sleep(max(due - time.time(), 0) + 8)
    observation.check(growth=96)


async def test_large_popped_messages_that_become_visible_together_do_not_stall(replica: Gantry) -> None:
    """40 messages of 4 MB, each popped by a request of its own."""
    topic, group = unique("popped"), unique("group")
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        for _ in range(40):
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), bytes(4_000_000))).code == 0
        visible = time.time() + 20
        for _ in range(40):
            fields = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": 0,
                "maxMsgNums": 1,
                "invisibleTime": int((visible - time.time()) * 1000),
                "pollTime": 0,
                "bornTime": 0,
                "initMode": 0,
            }
            await client.get(RequestCode.POP_MESSAGE, fields)
        await asyncio.sleep(max(visible - time.time(), 0) + 6)
    observation.check(growth=96)


async def test_a_batch_for_waiting_pulls_that_match_nothing_does_not_stall(replica: Gantry) -> None:
    """4,000 pulls of ten connections, and three batches of 2,000 empty messages."""
    topic, group = unique("batch"), unique("group")
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as sender,
        AsyncExitStack() as attackers,
    ):
        await _send_batch(sender, topic, _batch("", 1))
        clients = [await attackers.enter_async_context(Client(replica.address)) for _ in range(10)]
        fields = {**pull_fields(topic, group, offset=1, wait=30_000), "subscription": "never", "expressionType": "TAG"}
        waiting = [client.begin(RequestCode.PULL_MESSAGE, fields) for client in clients for _ in range(400)]
        await asyncio.sleep(5)
        for _ in range(3):
            await _send_batch(sender, topic, _batch("", 2_000))
        assert not any(reply.done() for reply in waiting)
        await attackers.aclose()
        await asyncio.gather(*waiting, return_exceptions=True)
    observation.check(growth=128)


async def test_messages_with_thousands_of_keys_do_not_stall(replica: Gantry) -> None:
    """Batches of 126 messages with 16,300 keys each, and searches for one of them."""
    topic = unique("keys")
    text = properties.encode({properties.KEYS: " ".join("abcdefghijklmnop"[number % 16] for number in range(16_300))})
    fields = {"topic": topic, "key": "a", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62}
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        for _ in range(8):
            await _send_batch(client, topic, _batch(text, 126))
            await client.get(RequestCode.QUERY_MESSAGE, fields)
    observation.check(growth=96)
