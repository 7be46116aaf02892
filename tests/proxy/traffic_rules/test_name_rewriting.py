"""Namespaces and aliases, through a whole replica and clients of both protocols."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.pop_offset_info import Retry, real_topic
from tests.cluster.client import message_queue, ok, pull_fields, send_fields, subscription, v2
from tests.proxy.traffic_rules.kit import Replica, grpc_send, replica, send, until

pytestmark = pytest.mark.anyio

# Two tenants, and clients without a namespace, each at a listener of their own.
RULES = """
[[rule]]
name = "tenant-acme"
kind = "namespace"
namespace = "acme"
match.listeners = ["acme"]

[[rule]]
name = "tenant-umbrella"
kind = "namespace"
namespace = "umbrella"
match.listeners = ["umbrella"]

[[rule]]
name = "renamed"
kind = "alias"
topic = "bookings"
real = "orders"
match.listeners = ["old", "umbrella"]
"""
MAIN, ACME, UMBRELLA, OLD = range(4)
LISTEN = [{"address": "127.0.0.1:0", "name": name} for name in ("main", "acme", "umbrella", "old")]


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(tmp_path, RULES, listen=LISTEN) as one:
        await one.create("orders", "acme%orders", "umbrella%orders")
        yield one


async def test_tenants_have_topics_of_their_own(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting(UMBRELLA) as umbrella, one.remoting() as operator:
        await send(acme, "orders", b"acme's")
        await send(umbrella, "bookings", b"umbrella's")
        (stored,) = await acme.pull("orders", "g")
        assert (stored.topic, stored.body) == ("orders", b"acme's")
        (stored,) = await umbrella.pull("bookings", "g")
        assert (stored.topic, stored.body) == ("bookings", b"umbrella's")
        assert await operator.pull("orders", "g", wait=0) == []
        (stored,) = await operator.pull("acme%orders", "g")
        assert (stored.topic, stored.body) == ("acme%orders", b"acme's")
        assert (await acme.route("orders"))["queueDatas"]
        # Nor can one name what is another's.
        assert (await send(acme, "umbrella%orders")).code == ResponseCode.SUCCESS
        assert len(await operator.pull("umbrella%orders", "g", wait=0)) == 1
        assert len(await operator.pull("acme%umbrella%orders", "g", wait=0)) == 1


async def test_both_protocols_see_the_same(one: Replica) -> None:
    async with one.remoting(ACME) as remoting, one.grpc("orders", "g", ACME) as client:
        await send(remoting, "orders", b"from remoting", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        (message,) = await client.all(1)
        assert (message.topic.name, message.body) == ("orders", b"from remoting")
        assert (await client.ack(message)).status.code == Code.OK
        await client.send(b"from grpc")
        assert [stored.body for stored in await remoting.pull_all(2, "orders", "other")][1] == b"from grpc"


async def test_groups_are_members_under_their_real_names(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting(UMBRELLA) as umbrella:
        await acme.heartbeat(consumers={"g": ["orders", "%RETRY%g"]}, producers=["p"])
        await umbrella.heartbeat(consumers={"g": ["bookings"]})
        assert one.app.registry.consumer_ids("acme%g") == {acme.client_id}
        assert await acme.consumers("g") == [acme.client_id]
        assert await umbrella.consumers("g") == [umbrella.client_id]
        reply = await acme.get(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        table = orjson.loads(reply.body)["subscriptionTable"]
        assert {"orders", "%RETRY%g"} == table.keys()
        assert {entry["topic"] for entry in table.values()} == {"orders", "%RETRY%g"}
        await acme.get(RequestCode.UNREGISTER_CLIENT, {"clientID": acme.client_id, "consumerGroup": "g"})
        assert one.app.registry.consumer_ids("acme%g") == set()


async def test_whoever_joins_is_announced_in_the_clients_words(one: Replica) -> None:
    async with one.remoting(ACME) as first, one.remoting(ACME) as second:
        await first.heartbeat(consumers={"g": ["orders"]})
        await second.heartbeat(consumers={"g": ["orders"]})
        notice = await first.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        assert notice.fields["consumerGroup"] == "g"


async def test_queues_are_locked_and_assigned(one: Replica) -> None:
    async with one.remoting(OLD) as client:
        await client.heartbeat(consumers={"g": ["bookings"]})
        queue = message_queue("bookings", 0)
        body = orjson.dumps({"consumerGroup": "g", "clientId": client.client_id, "mqSet": [queue]})
        locked = await client.get(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert orjson.loads(locked.body)["lockOKMQSet"] == [queue]
        await client.get(RequestCode.UNLOCK_BATCH_MQ, {}, body)
        question = {
            "topic": "bookings",
            "consumerGroup": "g",
            "clientId": client.client_id,
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        }
        assigned = await client.get(RequestCode.QUERY_ASSIGNMENT, {}, orjson.dumps(question))
        queues = [item["messageQueue"]["topic"] for item in orjson.loads(assigned.body)["messageQueueAssignments"]]
        assert queues
        assert set(queues) == {"bookings"}
        checked = {"clientId": client.client_id, "group": "g", "subscriptionData": subscription("bookings")}
        await client.get(RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(checked))


async def test_offsets_are_the_groups_own(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting() as operator:
        await send(acme, "orders")
        await acme.heartbeat(consumers={"g": ["orders"]})
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        await acme.get(RequestCode.UPDATE_CONSUMER_OFFSET, acme.named(commit))
        question = {"consumerGroup": "acme%g", "topic": "acme%orders", "queueId": 0}
        reply = await operator.get(RequestCode.QUERY_CONSUMER_OFFSET, operator.named(question))
        assert reply.fields["offset"] == "1"


def _pop(topic: str) -> dict[str, Any]:
    return {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": 1000,
        "pollTime": 5000,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
    }


async def test_popped_messages_come_again_from_the_retry_topic(one: Replica) -> None:
    async with one.remoting(ACME) as client:
        await client.heartbeat(consumers={"g": ["orders"]})
        await send(client, "orders", b"again")
        reply = await client.get(RequestCode.POP_MESSAGE, client.named(_pop("orders")))
        (first,) = messages.decode_messages(reply.body)
        assert first.topic == "orders"
        again: list[Any] = []
        while not again:
            reply = await client.ask(RequestCode.POP_MESSAGE, client.named(_pop("orders")), timeout=20)
            if reply.code == ResponseCode.SUCCESS:
                again = pop.popped(messages.decode_messages(reply.body), "orders", reply.fields, "broker-a")
        (second,) = again
        assert second.message.body == b"again"
        handle = second.extra_info
        assert handle.retry is not Retry.NORMAL
        # As Java's clients name it.
        topic = real_topic("orders", "g", handle.retry)
        fields = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": handle.queue_id,
            "extraInfo": str(handle),
            "offset": handle.queue_offset,
        }
        ok(await client.ask(RequestCode.ACK_MESSAGE, client.named(fields)))


async def test_messages_that_were_sent_back_come_from_the_groups_own_retry_topic(one: Replica) -> None:
    async with one.remoting(ACME) as client:
        await client.heartbeat(consumers={"g": ["orders", "%RETRY%g"]})
        await send(client, "orders", b"back")
        (stored,) = await client.pull("orders", "g")
        fields = {
            "offset": stored.commit_log_offset,
            "group": "g",
            "delayLevel": 1,
            "originMsgId": "",
            "originTopic": "orders",
            "unitMode": False,
            "maxReconsumeTimes": 16,
        }
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(fields))
        (again,) = await client.pull("%RETRY%g", "g", wait=15_000)
        assert (again.topic, again.get(properties.RETRY_TOPIC), again.body) == ("%RETRY%g", "orders", b"back")


async def test_a_half_message_is_asked_about_and_ended(one: Replica) -> None:
    async with one.remoting(ACME) as client:
        await client.heartbeat(producers=["p"])
        half = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: "p"}
        flag = int(messages.SysFlag.TRANSACTION_PREPARED)
        reply = await client.send("orders", b"half", half, producerGroup="p", sysFlag=flag)
        stored_group = one.app.backend.broker.members.producer("acme%p")  # type: ignore[union-attr]
        assert stored_group is not None
        fields = {
            "producerGroup": "p",
            "topic": "orders",
            "tranStateTableOffset": reply.fields["queueOffset"],
            "commitLogOffset": int(reply.fields["msgId"][16:], 16),
            "commitOrRollback": 8,
            "fromTransactionCheck": False,
            "msgId": reply.fields["msgId"],
            "transactionId": reply.fields.get("transactionId", ""),
        }
        client.tell(RequestCode.END_TRANSACTION, client.named(fields))
        (stored,) = await client.pull("orders", "g")
        assert (stored.topic, stored.get(properties.PRODUCER_GROUP)) == ("orders", "p")


async def test_what_is_asked_of_a_client_is_asked_in_its_words(one: Replica) -> None:
    async with one.remoting(OLD) as client, one.remoting() as operator:
        info = {
            "properties": {},
            "subscriptionSet": [subscription("bookings")],
            "statusTable": {"bookings": {"consumeRT": 0.0}},
            "mqTable": {},
        }
        client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: commands.success(body=orjson.dumps(info))
        await client.heartbeat(consumers={"g": ["bookings"]})
        fields = {"consumerGroup": "g", "clientId": client.client_id, "jstackEnable": False}
        reply = await operator.get(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        told = orjson.loads(reply.body)
        assert [item["topic"] for item in told["subscriptionSet"]] == ["orders"]
        assert told["statusTable"].keys() == {"orders"}


async def test_what_cannot_be_renamed_is_refused(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting(OLD) as old:
        fields = v2(acme.named(send_fields("orders")))
        signed = await acme.ask(RequestCode.SEND_MESSAGE_V2, {**fields, "AccessKey": "k", "Signature": "s"}, b"x")
        assert signed.code == ResponseCode.NO_PERMISSION
        assert "signed" in (signed.remark or "")
        listing = await acme.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert listing.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        # Everybody's topic can be sent to, and not be read.
        trace = await acme.ask(RequestCode.PULL_MESSAGE, acme.named(pull_fields("RMQ_SYS_TRACE_TOPIC", "g")))
        assert trace.code == ResponseCode.NO_PERMISSION
        further = await send(acme, "orders", b"x", {properties.INNER_MULTI_DISPATCH: "%LMQ%umbrella"})
        assert further.code == ResponseCode.NO_PERMISSION
        # The real name belongs to those who have no alias for it.
        hidden = await send(old, "orders")
        assert hidden.code == ResponseCode.NO_PERMISSION


async def test_what_is_not_of_the_namespace_is_not_shown(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting() as operator:
        await send(operator, "orders", b"not acme's")
        (stored,) = await operator.pull("orders", "g")
        foreign = await acme.ask(RequestCode.VIEW_MESSAGE_BY_ID, acme.named({"offset": stored.commit_log_offset}))
        assert (foreign.code, foreign.body) == (ResponseCode.NO_PERMISSION, b"")


async def test_a_property_that_names_something_foreign_is_left_out(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.remoting() as operator:
        pairs = {properties.REAL_TOPIC: "SCHEDULE_TOPIC_XXXX", properties.KEYS: "k"}
        await send(operator, "acme%orders", b"x", pairs)
        (stored,) = await acme.pull("orders", "g")
        assert (stored.get(properties.REAL_TOPIC), stored.get(properties.KEYS)) == (None, "k")


async def test_refusals_do_not_show_the_namespace(one: Replica) -> None:
    async with one.remoting(ACME) as acme, one.grpc("missing", "g", ACME) as client:
        reply = await acme.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "missing"})
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert "missing" in (reply.remark or "")
        assert "acme" not in (reply.remark or "")
        told = await grpc_send(client, b"x")
        assert told.status.code == Code.TOPIC_NOT_FOUND
        assert "acme" not in told.status.message


@pytest.mark.parametrize(("number", "topic"), [(ACME, "orders"), (UMBRELLA, "bookings"), (OLD, "bookings")])
async def test_grpc_clients_see_their_own_names_only(one: Replica, number: int, topic: str) -> None:
    async with one.grpc(topic, "g", number) as client:
        endpoints = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host="127.0.0.1", port=1)])
        route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=client.topic, endpoints=endpoints))
        assert {queue.topic.name for queue in route.message_queues} == {topic}
        stream = client.stub.Telemetry(metadata=client.metadata)
        subscribed = d.Subscription(
            group=client.group,
            subscriptions=[d.SubscriptionEntry(topic=client.topic, expression=d.FilterExpression(expression="*"))],
        )
        wanted = d.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscribed)
        await stream.write(pb.TelemetryCommand(settings=wanted))
        told = await stream.read()
        assert told.status.code == Code.OK, told
        assert told.settings.subscription.group.name == "g"
        assert [entry.topic.name for entry in told.settings.subscription.subscriptions] == [topic]
        beat = pb.HeartbeatRequest(group=client.group, client_type=ClientType.PUSH_CONSUMER)
        assert (await client.call("Heartbeat", beat)).status.code == Code.OK
        namespace = {ACME: "acme%", UMBRELLA: "umbrella%"}.get(number, "")
        (member,) = one.app.registry.local()
        assert list(member.consumers) == [f"{namespace}g"]
        question = pb.QueryAssignmentRequest(topic=client.topic, group=client.group, endpoints=endpoints)
        assigned = await client.call("QueryAssignment", question)
        assert {item.message_queue.topic.name for item in assigned.assignments} == {topic}
        await client.send(b"1", b"2")
        received = await client.all(2)
        assert {message.topic.name for message in received} == {topic}
        await client.ack(*received)
        stream.cancel()


async def test_a_grpc_producer_is_asked_about_its_half_message_by_its_topics_name(tmp_path: Path) -> None:
    settings = {"transaction_timeout": 1.0, "transaction_interval": 1.0}
    async with replica(tmp_path, RULES, listen=LISTEN, embedded=settings) as one, one.grpc("t", "g", ACME) as client:
        await one.create("acme%t", kind="TRANSACTION")
        stream = client.stub.Telemetry(metadata=client.metadata)
        wanted = d.Settings(client_type=ClientType.PRODUCER, publishing=d.Publishing(topics=[client.topic]))
        await stream.write(pb.TelemetryCommand(settings=wanted))
        assert [topic.name for topic in (await stream.read()).settings.publishing.topics] == ["t"]
        system = d.SystemProperties(message_id="0" * 32, message_type=d.TRANSACTION)
        half = d.Message(topic=client.topic, body=b"half", system_properties=system)
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[half]))
        assert answer.status.code == Code.OK, answer
        recovery = (await stream.read()).recover_orphaned_transaction_command
        assert (recovery.message.topic.name, recovery.message.body) == ("t", b"half")
        stream.cancel()


async def test_the_same_client_id_in_two_namespaces_is_two_clients(one: Replica) -> None:
    async with (
        one.grpc("orders", "g", ACME, "same") as acme,
        one.grpc("bookings", "g", UMBRELLA, "same") as umbrella,
    ):
        for client in (acme, umbrella):
            beat = pb.HeartbeatRequest(group=client.group, client_type=ClientType.PUSH_CONSUMER)
            await client.send(b"x")
            assert (await client.call("Heartbeat", beat)).status.code == Code.OK
        assert len(one.app.grpc.clients) == 2


async def test_connections_keep_their_names_when_rules_change(one: Replica) -> None:
    async with one.remoting(ACME) as before:
        await send(before, "orders", b"1")
        await one.apply(RULES.replace('namespace = "acme"', 'namespace = "acme2"'))
        await send(before, "orders", b"2")
        assert len(await before.pull_all(2, "orders", "g")) == 2
        async with one.remoting(ACME) as after:
            await send(after, "orders", b"3")
            assert [stored.body for stored in await after.pull("orders", "g")] == [b"3"]
    await until(lambda: not one.app.channels)
