"""Many messages that are due at one time, or have one key, with a good client beside them."""

import asyncio
import time

import pytest

from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from tests.attacks.deployments import Deployment
from tests.attacks.good_client import observed, send_fields
from tests.cluster.client import Client, heartbeat, queue_fields, unique
from tests.cluster.servers import Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.deployments(Deployment.EMBEDDED)]

# Requests of the attacker in flight.
_PARALLEL = 200


async def _store(client: Client, topic: str, count: int, pairs: dict[str, str], body: bytes = b"x") -> None:
    """Send messages with these properties."""
    for start in range(0, count, _PARALLEL):
        fields = send_fields(topic) | {"i": properties.encode(pairs)}
        sends = [client.begin(RequestCode.SEND_MESSAGE_V2, fields, body) for _ in range(min(_PARALLEL, count - start))]
        for send in sends:
            assert (await send).code == ResponseCode.SUCCESS


@pytest.mark.complete
async def test_many_messages_due_in_one_millisecond_do_not_stall(replica: Gantry) -> None:
    topic, due = unique("due"), time.time() + 20
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        await _store(client, topic, 25_000, {properties.TIMER_DELIVER_MS: str(int(due * 1000))})
        await asyncio.sleep(max(due - time.time(), 0) + 5)
    observation.check(growth=48)


@pytest.mark.complete
async def test_a_search_for_a_common_key_is_bounded(replica: Gantry) -> None:
    """Two billion of 5,000 messages with one key, and searches that exclude all of them by their time."""
    topic = unique("common")
    fields = {"topic": topic, "key": "k", "maxNum": 2**31 - 1, "beginTimestamp": 0, "endTimestamp": 2**62}
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        await _store(client, topic, 5_000, {properties.KEYS: "k"}, b"x" * 1024)
        reply = await client.get(RequestCode.QUERY_MESSAGE, fields)
        assert 0 < len(reply.body) < 128 * 1024
        for times in ({"endTimestamp": 1}, {"beginTimestamp": 2**61}):
            for _ in range(20):
                reply = await client.ask(RequestCode.QUERY_MESSAGE, fields | times)
                assert reply.code == ResponseCode.QUERY_NOT_FOUND
    observation.check(growth=32)


@pytest.mark.complete
async def test_offsets_of_queues_that_do_not_exist_are_refused(replica: Gantry) -> None:
    topic, group = unique("topic"), unique("group")
    async with observed(replica.address, replica.pid, topic) as observation, Client(replica.address) as client:
        await client.get(RequestCode.HEART_BEAT, {}, heartbeat(client.client_id, {group: [topic]}, []))
        for start in range(1000, 5000, _PARALLEL):
            commits = [
                client.begin(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    queue_fields(topic, queue, consumerGroup=group, commitOffset=1),
                )
                for queue in range(start, start + _PARALLEL)
            ]
            for commit in commits:
                assert (await commit).code == ResponseCode.INVALID_PARAMETER
    observation.check(growth=16)


@pytest.mark.complete
async def test_properties_of_thousands_of_digits_are_no_internal_error(replica: Gantry) -> None:
    digits = "9" * 5000
    topic = unique("digits")
    async with observed(replica.address, replica.pid, unique("good")) as observation, Client(replica.address) as client:
        await _store(client, topic, 1, {properties.PRIORITY: digits})
        pairs = {properties.TRANSACTION_PREPARED: "true", properties.CHECK_IMMUNITY_TIME_IN_SECONDS: digits}
        await _store(client, topic, 1, pairs)
        fields = send_fields(topic) | {"i": properties.encode({properties.TIMER_DELAY_SEC: digits})}
        reply = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    observation.check(growth=16)
