"""Lite topics (RIP-83), which brokers have since 5.5, through the port of a replica."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import messages, pop, properties
from remoting.codes import RequestCode
from tests.cluster.client import BROKER, Client, create_topic
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, bodies, codes
from tests.cluster.grpc.replica import Product, Service, create_group
from tests.cluster.grpc.telemetry import Telemetry, settings
from tests.cluster.servers import TIMEOUT, Cluster, Gantry, started

VERSION = "5.5.0"
# RequestCode of the official tools, which Gantry does not serve.
_GET_LITE_CLIENT_INFO = 200077
OPTIONS = (
    *("--version", VERSION, "--quick", "--fast-timers"),
    *("--broker-set", "enableLmq=true"),
    *("--broker-set", "enableMultiDispatch=true"),
)

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with lite topics."""
    with started(tmp_path_factory, "lite", *OPTIONS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lite_service(lite: Cluster, transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    product = Product(tmp_path_factory.mktemp("lite"), transport)
    with Gantry(product.directory, lite.namesrv, product.config) as gantry:
        yield Service(gantry.address, product)


async def _consumer(lite: Cluster, service: Service, **attributes: object) -> Consumer:
    """Return a consumer of a new lite topic's parent, and of a group that is bound to it."""
    topic = await create_topic(lite.broker, "lite", kind="LITE")
    group = await create_group(lite, attributes={"+lite.bind.topic": topic, **attributes})
    return Consumer(service.address, group, topic)


async def _subscribe(consumer: Consumer, *names: str, action: d.LiteSubscriptionAction = d.COMPLETE_ADD) -> int:
    request = pb.SyncLiteSubscriptionRequest(
        action=action, topic=consumer.topic, group=consumer.group, lite_topic_set=names, version=1
    )
    return int((await consumer.call("SyncLiteSubscription", request)).status.code)


@covers("SyncLiteSubscription")
async def test_consumer_receives_the_lite_topics_it_has_subscribed_to(lite: Cluster, lite_service: Service) -> None:
    async with await _consumer(lite, lite_service) as consumer, Telemetry(consumer, d.LITE_PUSH_CONSUMER):
        request = pb.HeartbeatRequest(group=consumer.group, client_type=d.LITE_PUSH_CONSUMER)
        assert (await consumer.call("Heartbeat", request)).status.code == Code.OK
        assert await _subscribe(consumer, "one", "two") == Code.OK
        for name in ("one", "other", "two"):
            await consumer.send_one(name.encode(), lite_topic=name, message_type=d.LITE)
        received = await consumer.receive_all(2, wait=5)
        assert sorted(bodies(received)) == [b"one", b"two"]
        assert sorted(message.system_properties.lite_topic for message in received) == ["one", "two"]
        assert set(codes(await consumer.ack(*received))) == {Code.OK}
        # A broker reads a lite topic with messages once more, even if it is no longer subscribed to.
        assert await consumer.receive(wait=1) == []
        assert await _subscribe(consumer, "two", action=d.PARTIAL_REMOVE) == Code.OK
        for name in ("two", "one"):
            await consumer.send_one(b"again", lite_topic=name, message_type=d.LITE)
        found = await consumer.receive_all(1, wait=5)
        assert [(message.system_properties.lite_topic, message.body) for message in found] == [("one", b"again")]
        [message] = found
        assert (await consumer.change(message, 2)).status.code == Code.OK
        [message] = await consumer.receive_all(1, wait=5)
        assert message.system_properties.delivery_attempt == 2
        assert set(codes(await consumer.ack(message))) == {Code.OK}
        assert await consumer.receive(wait=3) == []


@covers("SyncLiteSubscription", "Telemetry.notify_unsubscribe_lite_command")
async def test_exclusive_subscription_ends_that_of_another_client(lite: Cluster, lite_service: Service) -> None:
    exclusive = {"+lite.sub.model": "Exclusive"}
    async with (
        await _consumer(lite, lite_service, **exclusive) as first,
        Telemetry(first, d.LITE_PUSH_CONSUMER) as telemetry,
        Consumer(first.address, first.group.name, first.topic.name) as second,
        Telemetry(second, d.LITE_PUSH_CONSUMER),
    ):
        for client in (first, second):
            request = pb.HeartbeatRequest(group=client.group, client_type=d.LITE_PUSH_CONSUMER)
            assert (await client.call("Heartbeat", request)).status.code == Code.OK
            assert await _subscribe(client, "one", action=d.PARTIAL_ADD) == Code.OK
        assert (await telemetry.wait("notify_unsubscribe_lite_command")).lite_topic == "one"
        await first.send_one(b"0", lite_topic="one", message_type=d.LITE)
        assert bodies(await second.receive_all(1, wait=5)) == [b"0"]


@covers("SendMessage")
async def test_messages_of_a_lite_topic_are_in_one_queue(lite: Cluster, lite_service: Service) -> None:
    async with await _consumer(lite, lite_service) as consumer:
        sent = [await consumer.send_one(b"0", lite_topic="one", message_type=d.LITE) for _ in range(4)]
        assert [entry.offset for entry in sent] == [0, 1, 2, 3]


async def _rejection(consumer: Consumer, client_type: d.ClientType) -> str:
    """Return the text with which a telemetry stream ends after the consumer's settings."""
    call = consumer.stub.Telemetry(metadata=consumer.metadata)
    await call.write(pb.TelemetryCommand(settings=settings(consumer, client_type)))
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(await call.details())


@covers("Heartbeat", "SyncLiteSubscription")
async def test_lite_groups_have_lite_consumers_of_their_topic(lite: Cluster, lite_service: Service) -> None:
    async with await _consumer(lite, lite_service) as consumer:
        parent, group = consumer.topic.name, consumer.group.name
        assert "lite group must use LITE mode" in await _rejection(consumer, d.PUSH_CONSUMER)
        request = pb.HeartbeatRequest(group=consumer.group, client_type=d.PUSH_CONSUMER)
        assert (await consumer.call("Heartbeat", request)).status.code == Code.ILLEGAL_CONSUMER_GROUP
        consumer.topic.name = await create_topic(lite.broker, "lite", kind="LITE")
        assert f"is expected to bind topic {parent}" in await _rejection(consumer, d.LITE_PUSH_CONSUMER)
        assert await _subscribe(consumer, "one") == Code.ILLEGAL_TOPIC
        consumer.topic.name, consumer.group.name = parent, await create_group(lite)
        assert "regular group cannot use LITE mode" in await _rejection(consumer, d.LITE_PUSH_CONSUMER)
        assert await _subscribe(consumer, "one") == Code.ILLEGAL_TOPIC
        consumer.group.name = group
        assert await _subscribe(consumer, "one") == Code.OK


@covers("SyncLiteSubscription")
async def test_quota_of_a_group_limits_the_lite_topics_of_a_request(lite: Cluster, lite_service: Service) -> None:
    async with await _consumer(lite, lite_service, **{"+lite.sub.client.quota": "2"}) as consumer:
        names = [f"n{number}" for number in range(303)]
        assert await _subscribe(consumer, *names[:302]) == Code.OK
        assert await _subscribe(consumer, *names) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED


async def _join(consumer: Consumer) -> None:
    request = pb.HeartbeatRequest(group=consumer.group, client_type=d.LITE_PUSH_CONSUMER)
    assert (await consumer.call("Heartbeat", request)).status.code == Code.OK
    assert await _subscribe(consumer, "one") == Code.OK


async def _subscribed(lite: Cluster, consumer: Consumer) -> set[str]:
    """Return the lite topics that the broker has for a consumer."""
    client_id = dict(consumer.metadata)["x-mq-client-id"]
    fields = {"parentTopic": consumer.topic.name, "group": consumer.group.name, "clientId": client_id, "maxCount": 100}
    async with Client(lite.broker) as client:
        reply = await client.ask(_GET_LITE_CLIENT_INFO, fields)
    stored = json.loads(reply.body or b"{}").get("liteTopicSet") or ()
    # As %LMQ%$parent$name.
    return {name.rsplit("$", 1)[1] for name in stored}


async def _wait_for_removal(lite: Cluster, consumer: Consumer) -> None:
    async with asyncio.timeout(TIMEOUT):
        while await _subscribed(lite, consumer):
            await asyncio.sleep(0.1)


@covers("NotifyClientTermination", "SyncLiteSubscription")
async def test_lite_consumers_that_leave_have_no_subscriptions_left(lite: Cluster, lite_service: Service) -> None:
    async with await _consumer(lite, lite_service) as lost, Telemetry(lost, d.LITE_PUSH_CONSUMER):
        terminated = Consumer(lost.address, lost.group.name, lost.topic.name)
        async with terminated, Telemetry(terminated, d.LITE_PUSH_CONSUMER):
            for consumer in (lost, terminated):
                await _join(consumer)
                assert await _subscribed(lite, consumer) == {"one"}
            request = pb.NotifyClientTerminationRequest(group=terminated.group)
            assert (await terminated.call("NotifyClientTermination", request)).status.code == Code.OK
            await _wait_for_removal(lite, terminated)
        assert await _subscribed(lite, lost) == {"one"}
    await _wait_for_removal(lite, lost)


@covers("SyncLiteSubscription")
async def test_lite_consumer_that_moves_to_another_replica_keeps_its_subscriptions(
    lite: Cluster, lite_service: Service, tmp_path: Path
) -> None:
    another = Product(tmp_path, lite_service.product.transport)
    with Gantry(tmp_path, lite.namesrv, another.config) as gantry:
        async with await _consumer(lite, lite_service) as former:
            client_id = dict(former.metadata)["x-mq-client-id"]
            async with Consumer(gantry.address, former.group.name, former.topic.name, client_id) as present:
                async with former, Telemetry(former, d.LITE_PUSH_CONSUMER):
                    await _join(former)
                async with Telemetry(present, d.LITE_PUSH_CONSUMER):
                    await _join(present)
                    # The first replica takes the client for lost by now.
                    await asyncio.sleep(5)
                    assert await _subscribed(lite, present) == {"one"}


def _subscription(client: Client, topic: str, group: str, *names: str) -> bytes:
    entry = {
        "action": "PARTIAL_ADD",
        "clientId": client.client_id,
        "group": group,
        "topic": topic,
        "liteTopicSet": names,
        "version": 1,
    }
    return json.dumps({"subscriptionSet": [entry]}).encode()


@covers(RequestCode.LITE_SUBSCRIPTION_CTL, RequestCode.POP_LITE_MESSAGE, RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
async def test_remoting_client_pops_lite_topics(lite: Cluster, lite_service: Service) -> None:
    topic = await create_topic(lite.broker, "lite", kind="LITE")
    group = await create_group(lite, attributes={"+lite.bind.topic": topic, "+lite.sub.model": "Exclusive"})
    async with Client(lite_service.address) as client:
        await client.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
        subscribed = _subscription(client, topic, group, "one")
        await client.get(RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": BROKER}, subscribed)
        await client.send(topic, b"0", {properties.LITE_TOPIC: "one"})
        fields = {
            "clientId": client.client_id,
            "consumerGroup": group,
            "topic": topic,
            "maxMsgNum": 32,
            "invisibleTime": 60_000,
            "pollTime": 15_000,
            "bornTime": 0,
            "bname": BROKER,
        }
        reply = await client.get(RequestCode.POP_LITE_MESSAGE, fields)
        [popped] = pop.popped_lite(messages.decode_messages(reply.body), reply.fields, BROKER)
        assert (popped.message.body, popped.message.get(properties.LITE_TOPIC)) == (b"0", "one")
        # Opened late: a connection that sends nothing for ten seconds is closed.
        async with Client(lite_service.address) as thief:
            await thief.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
            stolen = _subscription(thief, topic, group, "one")
            await thief.get(RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": BROKER}, stolen)
            notice = await client.push(RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
        assert notice.fields["liteTopic"] == "one"
