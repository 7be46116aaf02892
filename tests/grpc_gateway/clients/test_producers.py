import asyncio
from typing import Any

import orjson
import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.producers import Producers
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import MessageType
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import Overloaded, RequestTimeout, TopicNotExist
from remoting.routes import TopicRoute
from tests.cluster.servers import eventually
from tests.grpc_gateway.client_harness import ClientHarness, TelemetrySession
from tests.grpc_gateway.fakes import PEER, FakeCore, make_client
from tests.grpc_gateway.messages import consumer_settings, producer_settings, transaction_check
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

HEART_BEAT, UNREGISTER, ROUTE = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


def sent_commands(harness: ClientHarness) -> list[tuple[int, Any]]:
    """Return the commands of the representing channel: code, and its topics or the topic."""
    result = []
    for client, code, fields, body in harness.core.handled:
        if client.client_id.startswith("gantry-producers@"):
            groups = [producer["groupName"] for producer in orjson.loads(body)["producerDataSet"]] if body else None
            result.append((code, groups or fields.get("topic") or fields.get("producerGroup")))
    return result


def representative(harness: ClientHarness) -> Client:
    return harness.client_lifecycle.producers.representatives[0].channel


async def open_producer(harness: ClientHarness, *topics: str, client_id: str = "p1") -> TelemetrySession:
    session = await harness.open_session(producer_settings(*topics), client_id)
    await settle()
    return session


# Registration with brokers.


async def test_all_producers_are_registered_as_one() -> None:
    harness = ClientHarness()
    for number in range(20):
        await open_producer(harness, "orders", client_id=f"p{number}")
    assert sent_commands(harness) == [(ROUTE, "orders"), (HEART_BEAT, ["orders"])]
    # Each is registered with the core, and marked so that it is not registered with brokers.
    assert harness.command_codes.count(HEART_BEAT) == 21
    assert all(client.producers_represented for client in harness.clients)
    assert not representative(harness).producers_represented
    await harness.open_session(consumer_settings(), "c1")
    assert not harness.client("c1").producers_represented


async def test_new_topic_is_registered_at_once() -> None:
    harness = ClientHarness()
    await open_producer(harness, "a")
    await open_producer(harness, "a", "b", client_id="p2")
    assert sent_commands(harness) == [
        (ROUTE, "a"),
        (HEART_BEAT, ["a"]),
        (ROUTE, "b"),
        (HEART_BEAT, ["a", "b"]),
    ]


async def test_topic_is_unregistered_with_its_last_producer() -> None:
    harness = ClientHarness()
    await open_producer(harness, "a", "b")
    await open_producer(harness, "a", client_id="p2")
    count = len(sent_commands(harness))
    harness.clients.remove(harness.client("p1"))
    await settle()
    assert sent_commands(harness)[count:] == [(UNREGISTER, "b")]
    harness.clients.remove(harness.client("p2"))
    await settle()
    assert sent_commands(harness)[count + 1 :] == [(UNREGISTER, "a")]
    assert len(harness.client_lifecycle.producers) == 0


async def test_registration_is_repeated_after_the_interval() -> None:
    harness = ClientHarness()
    began = asyncio.get_running_loop().time()
    await open_producer(harness, "a")
    harness.client_lifecycle.producers.sweep(began + 29)
    await settle()
    assert len(sent_commands(harness)) == 2
    harness.client_lifecycle.producers.sweep(asyncio.get_running_loop().time() + 31)
    await settle()
    # The route is requested again, since the topic may have got another broker.
    assert sent_commands(harness)[2:] == [(ROUTE, "a"), (HEART_BEAT, ["a"])]


async def test_registration_without_topics_is_not_sent() -> None:
    harness = ClientHarness()
    harness.client_lifecycle.sweep(asyncio.get_running_loop().time() + 1_000)
    await harness.open_session(producer_settings())
    harness.client_lifecycle.producers.set_topics(harness.client("c9"), ())
    await settle()
    assert [code for code, _ in sent_commands(harness)] == [ROUTE, HEART_BEAT]


async def test_missing_topic_does_not_prevent_registration() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        missing = command.code == ROUTE and command.fields["topic"] == "a"
        return TopicNotExist("no route") if missing else commands.success()

    harness = ClientHarness(FakeCore(answer=answer))
    await open_producer(harness, "a", "b")
    assert sent_commands(harness) == [(ROUTE, "a"), (ROUTE, "b"), (HEART_BEAT, ["b"])]


async def test_topics_that_do_not_exist_do_not_delay_others() -> None:
    """A client may name a thousand of them, and brokers refuse heartbeats of too many groups."""

    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        missing = command.code == ROUTE and command.fields["topic"].startswith("no-such")
        return TopicNotExist("no route") if missing else commands.success()

    core = FakeCore(answer=answer, routes={"orders": TopicRoute("orders", {}, ())})
    producers = Producers(core, make_client, asyncio.get_running_loop().time)
    producers.set_topics(make_client("attacker", PEER), [f"no-such-{number}" for number in range(5000)])
    producers.set_topics(make_client("p", PEER), ["orders"])
    await eventually(lambda: len(core.handled) == 5002)
    codes = [code for _, code, _, _ in core.handled]
    assert codes[:2] == [ROUTE, HEART_BEAT]
    assert codes.count(HEART_BEAT) == 1
    assert [one.topics for one in producers.representatives] == [{"orders"}]


async def test_many_topics_are_registered_by_several_channels() -> None:
    core = FakeCore()
    producers = Producers(core, make_client, asyncio.get_running_loop().time)
    client = make_client("p", PEER)
    topics = [f"topic-{number}" for number in range(1200)]
    producers.set_topics(client, topics)
    await eventually(lambda: len(core.handled) == 1203)
    bodies = [orjson.loads(body) for _, code, _, body in core.handled if code == HEART_BEAT]
    assert [len(body["producerDataSet"]) for body in bodies] == [500, 500, 200]
    assert len({body["clientID"] for body in bodies}) == 3
    producers.set_topics(client, topics[600:])
    await eventually(lambda: len(core.handled) == 1803)
    assert [code for _, code, _, _ in core.handled[1203:]] == [UNREGISTER] * 600
    assert sum(len(one.topics) for one in producers.representatives) == 600
    producers.set_topics(client, [*topics[600:], "new"])
    await eventually(lambda: len(core.handled) == 1805)
    assert "new" in producers.representatives[0].topics


async def test_failed_registration_is_retried_after_a_delay() -> None:
    harness = ClientHarness(FakeCore(answer=lambda _: Overloaded("not now")))
    await open_producer(harness, "a")
    harness.core.answer = lambda _: commands.success()
    count = len(sent_commands(harness))
    producers = harness.client_lifecycle.producers
    producers.sweep(asyncio.get_running_loop().time())
    producers.sweep(asyncio.get_running_loop().time() + 6)
    await harness.heartbeat(client_id="p1")
    await settle()
    assert sent_commands(harness)[count:] == [(ROUTE, "a"), (HEART_BEAT, ["a"])]


async def test_failed_look_up_of_a_topic_does_not_prevent_registration_of_others() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        fails = command.code == ROUTE and command.fields["topic"] == "failing"
        return RequestTimeout("no answer") if fails else commands.success()

    harness = ClientHarness(FakeCore(answer=answer))
    await open_producer(harness, "a", "failing", "z")
    assert (HEART_BEAT, ["a", "z"]) in sent_commands(harness)
    count = len(sent_commands(harness))
    harness.core.answer = lambda _: commands.success()
    harness.client_lifecycle.producers.sweep(asyncio.get_running_loop().time() + 6)
    await settle()
    # Only the topic that failed is looked up again.
    assert sent_commands(harness)[count:] == [(ROUTE, "failing"), (HEART_BEAT, ["a", "failing", "z"])]


async def test_look_ups_of_topics_end_while_name_servers_do_not_answer() -> None:
    core = FakeCore(answer=lambda _: RequestTimeout("no answer"))
    producers = Producers(core, make_client, asyncio.get_running_loop().time)
    producers.set_topics(make_client("p", PEER), [f"topic-{number:02}" for number in range(50)])
    await settle()
    assert len(core.handled) == 8
    producers.sweep(asyncio.get_running_loop().time() + 6)
    await settle()
    # Those that have not been tried come first.
    assert core.handled[8][2]["topic"] == "topic-08"


async def test_missing_topics_of_some_clients_do_not_delay_registration_for_others() -> None:
    missing_lookups = 0
    heartbeats: list[int] = []

    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        nonlocal missing_lookups
        if command.code == ROUTE and command.fields["topic"].startswith("no-such"):
            missing_lookups += 1
            if missing_lookups == 100:
                producers.set_topics(make_client("p", PEER), ["orders"])
            return TopicNotExist("no route")
        if command.code == HEART_BEAT:
            heartbeats.append(missing_lookups)
        return commands.success()

    core = FakeCore(answer=answer)
    producers = Producers(core, make_client, asyncio.get_running_loop().time)
    for number in range(8):
        topics = [f"no-such-{number}-{other}" for other in range(1000)]
        producers.set_topics(make_client(f"attacker-{number}", PEER), topics)
    await eventually(lambda: missing_lookups == 8000)
    assert heartbeats
    assert heartbeats[0] < 2000


async def test_topics_added_during_a_registration_are_registered_next() -> None:
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


# Transaction checks.


async def test_transaction_check_is_sent_to_a_producer() -> None:
    harness = ClientHarness()
    session = await open_producer(harness)
    representative(harness).oneway(transaction_check())
    recovery = (await session.read_command()).recover_orphaned_transaction_command
    # The id contains all that a replica needs to end the transaction.
    assert TransactionId.parse(recovery.transaction_id) == TransactionId("broker-a", 7, 1005, "id-5")
    assert recovery.message.topic.name == "orders"
    assert recovery.message.body == b"body"
    system = recovery.message.system_properties
    assert (system.message_id, system.message_type) == ("id-5", MessageType.TRANSACTION)
    assert system.body_digest.checksum


async def test_listeners_learn_of_transaction_checks() -> None:
    harness = ClientHarness()
    await open_producer(harness)
    checked: list[tuple[str, TransactionId]] = []
    harness.client_lifecycle.producers.check_listeners.append(lambda *check: checked.append(check))
    representative(harness).oneway(transaction_check())
    assert checked == [("orders", TransactionId("broker-a", 7, 1005, "id-5"))]


async def test_transaction_checks_go_to_the_producers_of_the_topic_in_turn() -> None:
    harness = ClientHarness()
    sessions = [await open_producer(harness, "orders", client_id=f"p{number}") for number in range(3)]
    await open_producer(harness, "payments", client_id="p9")
    for _ in range(6):
        representative(harness).oneway(transaction_check())
    await settle()
    assert [session.received.qsize() for session in sessions] == [2, 2, 2]


async def test_producer_without_a_stream_is_skipped() -> None:
    harness = ClientHarness()
    disconnected = await open_producer(harness, "orders", client_id="p1")
    connected = await open_producer(harness, "orders", client_id="p2")
    await disconnected.disconnect()
    for _ in range(4):
        representative(harness).oneway(transaction_check())
    await settle()
    assert connected.received.qsize() == 4


async def test_transaction_check_without_a_producer_is_counted() -> None:
    harness = ClientHarness()
    session = await open_producer(harness)
    await session.disconnect()
    channel = representative(harness)
    channel.oneway(transaction_check())
    channel.oneway(transaction_check("unknown"))
    assert harness.client_lifecycle.producers.unanswered == 2
    # Other commands, and checks that cannot be decoded.
    channel.oneway(commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "orders"}))
    channel.oneway(commands.request(RequestCode.CHECK_TRANSACTION_STATE, {}, b"garbage"))
    channel.oneway(transaction_check(tranStateTableOffset="nothing"))
    assert harness.client_lifecycle.producers.unanswered == 2
