import asyncio
from typing import Any

import orjson
import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.producers import Producers
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import MessageType
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import Overloaded, TopicNotExist
from tests.grpc_gateway.kit import PEER, FakeCore, consumer_settings, make_client, producer_settings, stored
from tests.grpc_gateway.talk import Stage, Talk
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

HEART_BEAT, UNREGISTER, ROUTE = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


def own(stage: Stage) -> list[tuple[int, Any]]:
    """What the channel that stands for all said: (code, its topics or the topic)."""
    found = []
    for client, code, fields, body in stage.core.handled:
        if client.client_id.startswith("gantry-producers@"):
            groups = [one["groupName"] for one in orjson.loads(body)["producerDataSet"]] if body else None
            found.append((code, groups or fields.get("topic") or fields.get("producerGroup")))
    return found


def representative(stage: Stage) -> Client:
    channel = stage.client_lifecycle.producers._channel
    assert channel is not None
    return channel


def check_settings(topic: str = "orders", **fields: str) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE as a broker sends it."""
    half = stored(5, b"body", topic, TRAN_MSG="true", PGROUP=topic)
    told = {
        "tranStateTableOffset": "7",
        "commitLogOffset": "1005",
        "msgId": "id-5",
        "transactionId": "id-5",
        "offsetMsgId": "C6336401000000010000000000000000",
        "bname": "broker-a",
        "topic": topic,
    }
    body = messages.encode_message(half)
    return commands.request(RequestCode.CHECK_TRANSACTION_STATE, {**told, **fields}, body, oneway=True)


async def producer(stage: Stage, *topics: str, client_id: str = "p1") -> Talk:
    talk = await stage.talk(producer_settings(*topics), client_id)
    await settle()
    return talk


# What brokers know.


async def test_all_producers_are_one_to_the_brokers() -> None:
    stage = Stage()
    for number in range(20):
        await producer(stage, "orders", client_id=f"p{number}")
    assert own(stage) == [(ROUTE, "orders"), (HEART_BEAT, ["orders"])]
    # Each is in the registry all the same, and marked so that brokers do not hear of it.
    assert stage.codes.count(HEART_BEAT) == 21
    assert all(client.producers_represented for client in stage.clients)
    assert not representative(stage).producers_represented
    await stage.talk(consumer_settings(), "c1")
    assert not stage.client("c1").producers_represented


async def test_a_new_topic_is_told_at_once() -> None:
    stage = Stage()
    await producer(stage, "a")
    await producer(stage, "a", "b", client_id="p2")
    assert own(stage) == [(ROUTE, "a"), (HEART_BEAT, ["a"]), (ROUTE, "b"), (HEART_BEAT, ["a", "b"])]


async def test_a_topic_goes_with_its_last_producer() -> None:
    stage = Stage()
    await producer(stage, "a", "b")
    await producer(stage, "a", client_id="p2")
    told = len(own(stage))
    stage.clients.remove(stage.client("p1"))
    await settle()
    assert own(stage)[told:] == [(UNREGISTER, "b"), (HEART_BEAT, ["a"])]
    stage.clients.remove(stage.client("p2"))
    await settle()
    assert own(stage)[told + 2 :] == [(UNREGISTER, "a")]
    assert len(stage.client_lifecycle.producers) == 0


async def test_it_stays_known() -> None:
    stage = Stage()
    began = asyncio.get_running_loop().time()
    await producer(stage, "a")
    stage.client_lifecycle.producers.sweep(began + 29)
    await settle()
    assert len(own(stage)) == 2
    stage.client_lifecycle.producers.sweep(asyncio.get_running_loop().time() + 31)
    await settle()
    # The topic may have got another broker.
    assert own(stage)[2:] == [(ROUTE, "a"), (HEART_BEAT, ["a"])]


async def test_nobody_is_no_news() -> None:
    stage = Stage()
    stage.client_lifecycle.sweep(asyncio.get_running_loop().time() + 1_000)
    await stage.talk(producer_settings())
    stage.client_lifecycle.producers.set_topics(stage.client("c9"), ())
    await settle()
    assert [code for code, _ in own(stage)] == [ROUTE, HEART_BEAT]


async def test_a_topic_may_not_be_there_yet() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        missing = command.code == ROUTE and command.fields["topic"] == "a"
        return TopicNotExist("no route") if missing else commands.success()

    stage = Stage(FakeCore(answer=answer))
    await producer(stage, "a", "b")
    assert own(stage) == [(ROUTE, "a"), (ROUTE, "b"), (HEART_BEAT, ["a", "b"])]


async def test_what_failed_is_told_again() -> None:
    stage = Stage(FakeCore(answer=lambda _: Overloaded("not now")))
    await producer(stage, "a")
    stage.core.answer = lambda _: commands.success()
    told = len(own(stage))
    producers = stage.client_lifecycle.producers
    producers.sweep(asyncio.get_running_loop().time())
    producers.sweep(asyncio.get_running_loop().time() + 6)
    await stage.beat(client_id="p1")
    await settle()
    assert own(stage)[told:] == [(ROUTE, "a"), (HEART_BEAT, ["a"])]


async def test_topics_that_come_while_brokers_are_told_are_told_next() -> None:
    core = FakeCore(pending=[])
    producers = Producers(core, make_client, asyncio.get_running_loop().time)
    clients = [make_client(f"p{number}", PEER) for number in range(2)]
    producers.set_topics(clients[0], ["a"])
    await settle()
    producers.set_topics(clients[1], ["b"])
    assert core.pending is not None
    while any(not reply.done() for reply in core.pending):
        for reply in core.pending:
            if not reply.done():
                reply.set_result(commands.success())
        await settle()
    assert [code for _, code, _, _ in core.handled] == [ROUTE, HEART_BEAT, ROUTE, HEART_BEAT]


# What brokers ask.


async def test_a_half_message_is_asked_about() -> None:
    stage = Stage()
    talk = await producer(stage)
    representative(stage).oneway(check_settings())
    asked = (await talk.told()).recover_orphaned_transaction_command
    # It names all that any replica needs.
    assert TransactionId.parse(asked.transaction_id) == TransactionId("broker-a", 7, 1005, "id-5")
    assert asked.message.topic.name == "orders"
    assert asked.message.body == b"body"
    system = asked.message.system_properties
    assert (system.message_id, system.message_type) == ("id-5", MessageType.TRANSACTION)
    assert system.body_digest.checksum


async def test_any_producer_of_the_topic_is_asked_in_turn() -> None:
    stage = Stage()
    talks = [await producer(stage, "orders", client_id=f"p{number}") for number in range(3)]
    await producer(stage, "payments", client_id="p9")
    for _ in range(6):
        representative(stage).oneway(check_settings())
    await settle()
    assert [talk.got.qsize() for talk in talks] == [2, 2, 2]


async def test_who_has_no_stream_is_passed_over() -> None:
    stage = Stage()
    gone = await producer(stage, "orders", client_id="p1")
    there = await producer(stage, "orders", client_id="p2")
    await gone.broken()
    for _ in range(4):
        representative(stage).oneway(check_settings())
    await settle()
    assert there.got.qsize() == 4


async def test_where_nobody_can_be_asked_it_is_counted() -> None:
    stage = Stage()
    talk = await producer(stage)
    await talk.broken()
    channel = representative(stage)
    channel.oneway(check_settings())
    channel.oneway(check_settings("unknown"))
    assert stage.client_lifecycle.producers.unanswered == 2
    # Of no interest to producers, or not to be read.
    channel.oneway(commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "orders"}))
    channel.oneway(commands.request(RequestCode.CHECK_TRANSACTION_STATE, {}, b"garbage"))
    channel.oneway(check_settings(tranStateTableOffset="nothing"))
    assert stage.client_lifecycle.producers.unanswered == 2
