"""Clients that request large answers and do not read them, with a good client beside them."""

import asyncio

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.codes import RequestCode, ResponseCode
from tests.attacks.good_client import observed, send_fields
from tests.attacks.raw_client import Client as RawClient
from tests.cluster.client import Client, heartbeat, pull_fields, unique
from tests.cluster.grpc.consumer import seconds
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_KIB = 1024
_MIB = 1024 * _KIB
# The most that one answer to a pull may have, with its header: 4 MiB of messages, and the last one.
_MAX_ANSWER = 6 * _MIB
_CONNECTIONS = 8
_METADATA = (("x-mq-client-id", "attacker"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.0"))


async def _store(replica: Gantry, topic: str, count: int, size: int) -> None:
    """Send messages to queue 0 of a new topic."""
    async with Client(replica.address) as client:
        for _ in range(count):
            reply = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), bytes(size))
            assert reply.code == ResponseCode.SUCCESS, reply.header


@pytest.mark.complete
async def test_unread_answers_to_pulls_take_bounded_memory(replica: Gantry) -> None:
    """Eight connections request 64 times 2 MiB each: 1 GiB."""
    topic = unique("large")
    await _store(replica, topic, 32, 64 * _KIB)
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        attackers = [await Client(replica.address).__aenter__() for _ in range(_CONNECTIONS)]
        for attacker in attackers:
            attacker.pause()
            for _ in range(64):
                attacker.begin(RequestCode.PULL_MESSAGE, pull_fields(topic, "attacker"))
        await asyncio.sleep(3)
        for attacker in attackers:
            attacker.abort()
            await attacker.__aexit__(None, None, None)
    observation.check(growth=200)


async def test_an_answer_to_a_pull_is_bounded(replica: Gantry) -> None:
    """A pull of two billion messages, 48 MiB of which are stored, and a pop of as many."""
    topic = unique("large")
    await _store(replica, topic, 96, 512 * _KIB)
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        for number in (2**31 - 1, 100_000):
            fields = pull_fields(topic, "attacker") | {"maxMsgNums": number}
            reply = await attacker.ask(RequestCode.PULL_MESSAGE, fields)
            assert len(reply.body) <= _MAX_ANSWER
        pop = {
            "consumerGroup": "attacker",
            "topic": topic,
            "queueId": 0,
            "maxMsgNums": 2**31 - 1,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
        }
        assert len((await attacker.ask(RequestCode.POP_MESSAGE, pop)).body) <= _MAX_ANSWER
    observation.check(growth=96)


@pytest.mark.complete
async def test_unread_grpc_responses_take_bounded_memory(replica: Gantry) -> None:
    """PullMessage on 64 streams of four connections with closed windows: 512 MiB."""
    topic = unique("large")
    await _store(replica, topic, 32, 64 * _KIB)
    request = pb.PullMessageRequest(
        group=d.Resource(name="attacker"),
        message_queue=d.MessageQueue(topic=d.Resource(name=topic), id=0, broker=d.Broker(name="broker-a")),
        offset=0,
        batch_size=32,
    ).SerializeToString()

    def attack() -> None:
        clients = [RawClient(replica.port, window=0, receive_buffer=8192) for _ in range(4)]
        for client in clients:
            for stream in range(1, 129, 2):
                client.send(
                    client.call(stream, "/apache.rocketmq.v2.MessagingService/PullMessage", request, *_METADATA)
                )
        for client in clients:
            client.until(lambda _: False, 0.7)
            client.__exit__()

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=200)


async def test_receives_on_hundreds_of_streams_take_bounded_memory(replica: Gantry) -> None:
    """300 receives of 640 KiB each on one connection with closed windows, sent at once: 188 MiB."""
    topic = unique("large")
    await _store(replica, topic, 400, 20 * _KIB)

    def attack() -> None:
        with RawClient(replica.port, window=0, receive_buffer=8192) as client:
            octets = b""
            for stream in range(1, 600, 2):
                request = pb.ReceiveMessageRequest(
                    group=d.Resource(name=f"attacker-{stream % 60}"),
                    message_queue=d.MessageQueue(topic=d.Resource(name=topic), id=-1),
                    batch_size=32,
                    invisible_duration=seconds(36_000),
                    long_polling_timeout=seconds(10),
                    filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
                ).SerializeToString()
                octets += client.call(
                    stream, "/apache.rocketmq.v2.MessagingService/ReceiveMessage", request, *_METADATA
                )
            client.blast(octets)
            client.until(lambda _: False, 2)

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=96)


async def test_unread_notifications_take_bounded_memory(replica: Gantry) -> None:
    """A member of a group does not read its notifications, while others join and leave the group 600 times."""
    group, topic = unique("group"), unique("topic")
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        victim = await Client(replica.address).__aenter__()
        await victim.ask(RequestCode.HEART_BEAT, {}, heartbeat(victim.client_id, {group: [topic]}, []))
        victim.pause()
        async with Client(replica.address) as attacker:
            for number in range(300):
                name = f"member-{number}"
                attacker.begin(RequestCode.HEART_BEAT, {}, heartbeat(name, {group: [topic]}, []))
                fields = {"clientID": name, "consumerGroup": group}
                await attacker.ask(RequestCode.UNREGISTER_CLIENT, fields)
        victim.abort()
        await victim.__aexit__(None, None, None)
    observation.check(growth=32)
