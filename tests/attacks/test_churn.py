"""Clients, subscriptions and streams that come and go, and forged identifiers, with a good client beside them."""

import asyncio
import base64
import socket
from contextlib import ExitStack

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.codes import RequestCode, ResponseCode
from tests.attacks.flood import frame
from tests.attacks.good_client import observed
from tests.attacks.raw_client import Client as RawClient
from tests.attacks.raw_client import Code, Setting, data, message, rst_stream, settings
from tests.cluster.client import Client, heartbeat, queue_fields, unique
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.servers import HOST, Gantry

pytestmark = pytest.mark.anyio

_NUMBERS = """queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion timestamp maxNum
beginTimestamp endTimestamp invisibleTime pollTime bornTime initMode offset commitLogOffset"""
_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_HEADERS = (("x-mq-client-version", "5.0.0"), ("x-mq-language", "JAVA"))
_ENDPOINTS = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host="127.0.0.1", port=80)])


@pytest.mark.complete
async def test_many_clients_on_one_connection_take_little_memory(replica: Gantry) -> None:
    """1,000 heartbeats of different clients, in one group, on one connection: the last one is the client."""
    group, topic = unique("group"), unique("topic")
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        for start in range(0, 1000, 50):
            replies = [
                attacker.begin(RequestCode.HEART_BEAT, {}, heartbeat(f"client-{number}", {group: [topic]}, []))
                for number in range(start, start + 50)
            ]
            for reply in replies:
                await reply
    observation.check(growth=48)


async def test_changing_subscriptions_do_not_stall_other_members(replica: Gantry) -> None:
    """500 heartbeats with other subscriptions each time, in a group with 20 members that are notified."""
    group = unique("group")
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        members = [await Client(replica.address).__aenter__() for _ in range(20)]
        for member in members:
            await member.ask(RequestCode.HEART_BEAT, {}, heartbeat(member.client_id, {group: ["t"]}, []))
        for start in range(0, 500, 50):
            replies = [
                members[0].begin(
                    RequestCode.HEART_BEAT, {}, heartbeat(members[0].client_id, {group: [f"t{start + number}"]}, [])
                )
                for number in range(50)
            ]
            for reply in replies:
                await reply
        for member in members:
            await member.__aexit__(None, None, None)
    observation.check(growth=32)


@pytest.mark.complete
async def test_telemetry_streams_that_are_opened_and_closed_take_little_memory(replica: Gantry) -> None:
    """2,000 telemetry streams, each of a new client with settings."""
    command = pb.TelemetryCommand(
        settings=d.Settings(
            client_type=d.PUSH_CONSUMER,
            access_point=_ENDPOINTS,
            subscription=d.Subscription(
                group=d.Resource(name="churn"),
                subscriptions=[d.SubscriptionEntry(topic=d.Resource(name="t"), expression=d.FilterExpression())],
            ),
        )
    ).SerializeToString()

    def attack() -> None:
        for _ in range(4):
            with RawClient(replica.port) as client:
                for stream in range(1, 1000, 2):
                    headers = client.request(_SERVICE + "Telemetry", ("x-mq-client-id", f"churn-{stream}"), *_HEADERS)
                    octets = client.headers(stream, headers) + data(stream, message(command))
                    client.blast(octets + (rst_stream(stream) if stream % 20 == 1 else data(stream, b"", end=True)))
                    if client.goaway is not None:
                        break

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=64)


async def test_changing_settings_with_many_streams_do_not_stall(replica: Gantry) -> None:
    """SETTINGS_INITIAL_WINDOW_SIZE applies to each of 1,000 open streams: 2,000 changes are 2 million updates."""

    def attack() -> Code | None:
        with RawClient(replica.port) as client:
            headers = client.request(_SERVICE + "Telemetry", ("x-mq-client-id", "settings"), *_HEADERS)
            client.blast(b"".join(client.headers(stream, headers) for stream in range(1, 2000, 2)))
            changes = settings({Setting.INITIAL_WINDOW_SIZE: 100}) + settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20})
            tables = settings({Setting.HEADER_TABLE_SIZE: 0}) + settings({Setting.HEADER_TABLE_SIZE: 4096})
            client.blast((changes + tables) * 1000)
            return client.goaway_code()

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        assert await asyncio.to_thread(attack) == Code.ENHANCE_YOUR_CALM
    observation.check(growth=64)


@pytest.mark.complete
async def test_new_header_blocks_in_each_request_take_little_memory(replica: Gantry) -> None:
    """5,000 requests with metadata that no other request has, in and out of the header table."""

    def attack() -> None:
        with RawClient(replica.port) as client:
            for first in range(1, 10_000, 200):
                octets = b""
                for stream in range(first, first + 200, 2):
                    extra = [(f"x-{stream}-{number}", "v" * 200) for number in range(8)]
                    octets += client.headers(stream, client.request("/no.such/Method", *extra), end=True)
                client.blast(octets)
                client.response(first + 198)

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=32)


async def test_forged_handles_are_rejected(replica: Gantry) -> None:
    """20,000 handles and transaction ids that no broker issued: of other brokers, huge numbers, long texts."""
    handles = [
        "1 1 1 1 0 no-such-broker 1 1 1",
        f"1 1 1 1 0 broker-a 1 {2**63 - 1} 1",
        "9 " * 8 + "9" * 10_000,
        "x" * 100_000,
    ]
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Consumer(replica.address, "forger", "orders") as consumer,
    ):
        for handle in handles:
            entries = [pb.AckMessageEntry(message_id="m", receipt_handle=handle)] * (200 if len(handle) < 100 else 5)
            request = pb.AckMessageRequest(group=consumer.group, topic=consumer.topic, entries=entries)
            for _ in range(10):
                response = await consumer.call("AckMessage", request)
                assert response.status.code != d.OK
        for text in ("t1 broker-a 1 2 m", "t1 elsewhere:10911 1 2 m", "t1 broker-a " + "9" * 5000 + " 2 m"):
            end = pb.EndTransactionRequest(
                topic=consumer.topic,
                message_id="m",
                transaction_id=base64.urlsafe_b64encode(text.encode()).decode(),
                resolution=d.COMMIT,
            )
            assert (await consumer.call("EndTransaction", end)).status.code != d.OK
    observation.check(growth=32)


async def test_batch_acknowledgements_of_millions_of_messages_do_not_stall(replica: Gantry) -> None:
    """A bit set of 64 KiB stands for 524,288 messages, and a body has room for 11 of them."""
    ack = {"c": "forger", "t": "orders", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 60_000}
    bits = base64.b64encode(b"\xff" * 65_536).decode()
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        body = b'{"brokerName":"broker-a","acks":[%s]}' % b",".join(
            str(ack | {"q": number, "b": bits}).replace("'", '"').encode() for number in range(11)
        )
        for _ in range(5):
            await attacker.ask(RequestCode.BATCH_ACK_MESSAGE, {"bname": "broker-a"}, body)
    observation.check(growth=64)


async def test_a_batch_of_100000_tiny_messages_is_bounded(replica: Gantry) -> None:
    """A batch of 4 MiB has room for 190,000 empty messages."""
    topic = unique("topic")
    fields = {"a": "attacker", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        empty = (22).to_bytes(4) + bytes(18)
        for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            reply = await attacker.ask(code, fields | {"j": "0", "m": "true"}, empty * 100_000)
            assert reply.code == ResponseCode.INVALID_PARAMETER
        reply = await attacker.ask(RequestCode.SEND_BATCH_MESSAGE, fields | {"j": "0", "m": "true"}, empty * 4000)
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)
    observation.check(growth=64)


@pytest.mark.complete
async def test_searches_over_all_numbers_return(replica: Gantry) -> None:
    """Requests with the largest and smallest numbers in each field."""
    codes = (
        RequestCode.PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_MESSAGE,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.END_TRANSACTION,
    )
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        for value in (2**63 - 1, -(2**63), 2**31 - 1, -1):
            fields = queue_fields("orders", consumerGroup="g", key="k", subscription="*", exp="*", expType="TAG")
            fields |= dict.fromkeys(_NUMBERS.split(), value)
            replies = [attacker.begin(code, fields, b"", 5) for code in codes]
            await asyncio.gather(*replies, return_exceptions=True)
    observation.check(growth=32)


async def test_clients_of_a_thousand_groups_that_close_do_not_stall(replica: Gantry) -> None:
    """100 remoting clients with 1,000 producer groups each, whose connections close at once."""

    def attack() -> None:
        with ExitStack() as connections:
            for number in range(100):
                connection = socket.create_connection((HOST, replica.port), timeout=60)
                connections.enter_context(connection)
                groups = [f"group-{number}-{group}" for group in range(1000)]
                connection.sendall(frame(RequestCode.HEART_BEAT, body=heartbeat(f"client-{number}", {}, groups)))
                assert connection.recv(4096)

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
        await asyncio.sleep(2)
    observation.check(growth=96)


async def test_grpc_producers_of_a_thousand_topics_that_close_do_not_stall(replica: Gantry) -> None:
    """200 producers of two connections, with 1,000 topics each that do not exist; then the connections end."""
    topics = [d.Resource(name=f"topic-{number}") for number in range(1000)]
    settings = d.Settings(client_type=d.PRODUCER, access_point=_ENDPOINTS, publishing=d.Publishing(topics=topics))
    command = message(pb.TelemetryCommand(settings=settings).SerializeToString())

    def attack() -> None:
        with ExitStack() as connections:
            for number in range(2):
                client = connections.enter_context(RawClient(replica.port))
                for stream in range(1, 200, 2):
                    name = ("x-mq-client-id", f"producer-{number}-{stream}")
                    client.blast(client.headers(stream, client.request(_SERVICE + "Telemetry", name, *_HEADERS)))
                    client.upload(stream, command, end=False)

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
        await asyncio.sleep(3)
    observation.check(growth=128)
