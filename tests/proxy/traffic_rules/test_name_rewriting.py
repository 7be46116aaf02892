"""Namespaces and aliases, through a replica and clients of both protocols."""

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
from tests.proxy.traffic_rules.replica import Replica, grpc_send, run_replica, send, until
from tests.proxy.traffic_rules.tenants import ACME, LISTEN, OLD, RULES, UMBRELLA, run_tenants

pytestmark = pytest.mark.anyio


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with run_tenants(tmp_path) as replica:
        yield replica


async def test_tenants_have_separate_topics(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting(UMBRELLA) as umbrella, replica.remoting() as operator:
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
        # A tenant cannot address another tenant's topic.
        assert (await send(acme, "umbrella%orders")).code == ResponseCode.SUCCESS
        assert len(await operator.pull("umbrella%orders", "g", wait=0)) == 1
        assert len(await operator.pull("acme%umbrella%orders", "g", wait=0)) == 1


async def test_a_tenants_messages_cross_protocols(replica: Replica) -> None:
    async with replica.remoting(ACME) as remoting, replica.grpc("orders", "g", ACME) as client:
        await send(remoting, "orders", b"from remoting", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        (message,) = await client.receive_all(1)
        assert (message.topic.name, message.body) == ("orders", b"from remoting")
        assert (await client.ack(message)).status.code == Code.OK
        await client.send(b"from grpc")
        assert [stored.body for stored in await remoting.pull_all(2, "orders", "other")][1] == b"from grpc"


async def test_groups_are_registered_under_their_broker_side_names(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting(UMBRELLA) as umbrella:
        await acme.heartbeat(consumers={"g": ["orders", "%RETRY%g"]}, producers=["p"])
        await umbrella.heartbeat(consumers={"g": ["bookings"]})
        assert replica.app.registry.consumer_ids("acme%g") == {acme.client_id}
        assert await acme.consumers("g") == [acme.client_id]
        assert await umbrella.consumers("g") == [umbrella.client_id]
        reply = await acme.get(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        table = orjson.loads(reply.body)["subscriptionTable"]
        assert {"orders", "%RETRY%g"} == table.keys()
        assert {entry["topic"] for entry in table.values()} == {"orders", "%RETRY%g"}
        await acme.get(RequestCode.UNREGISTER_CLIENT, {"clientID": acme.client_id, "consumerGroup": "g"})
        assert replica.app.registry.consumer_ids("acme%g") == set()


async def test_group_change_notifications_have_the_clients_group_name(replica: Replica) -> None:
    async with replica.remoting(ACME) as first, replica.remoting(ACME) as second:
        await first.heartbeat(consumers={"g": ["orders"]})
        await second.heartbeat(consumers={"g": ["orders"]})
        notice = await first.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        assert notice.fields["consumerGroup"] == "g"


async def test_queue_locks_and_assignments_have_the_clients_names(replica: Replica) -> None:
    async with replica.remoting(OLD) as client:
        await client.heartbeat(consumers={"g": ["bookings"]})
        queue = message_queue("bookings", 0)
        body = orjson.dumps({"consumerGroup": "g", "clientId": client.client_id, "mqSet": [queue]})
        locked = await client.get(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert orjson.loads(locked.body)["lockOKMQSet"] == [queue]
        await client.get(RequestCode.UNLOCK_BATCH_MQ, {}, body)
        query = {
            "topic": "bookings",
            "consumerGroup": "g",
            "clientId": client.client_id,
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        }
        assigned = await client.get(RequestCode.QUERY_ASSIGNMENT, {}, orjson.dumps(query))
        queues = [item["messageQueue"]["topic"] for item in orjson.loads(assigned.body)["messageQueueAssignments"]]
        assert queues
        assert set(queues) == {"bookings"}
        checked = {"clientId": client.client_id, "group": "g", "subscriptionData": subscription("bookings")}
        await client.get(RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(checked))


async def test_offsets_are_committed_under_the_broker_side_names(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting() as operator:
        await send(acme, "orders")
        await acme.heartbeat(consumers={"g": ["orders"]})
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        await acme.get(RequestCode.UPDATE_CONSUMER_OFFSET, acme.named(commit))
        query = {"consumerGroup": "acme%g", "topic": "acme%orders", "queueId": 0}
        reply = await operator.get(RequestCode.QUERY_CONSUMER_OFFSET, operator.named(query))
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


async def test_unacknowledged_pops_are_redelivered_under_the_clients_names(replica: Replica) -> None:
    async with replica.remoting(ACME) as client:
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
        # The name that Java clients derive.
        topic = real_topic("orders", "g", handle.retry)
        fields = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": handle.queue_id,
            "extraInfo": str(handle),
            "offset": handle.queue_offset,
        }
        ok(await client.ask(RequestCode.ACK_MESSAGE, client.named(fields)))


async def test_messages_sent_back_are_redelivered_from_the_groups_retry_topic(replica: Replica) -> None:
    async with replica.remoting(ACME) as client:
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


async def test_a_transaction_is_committed_under_the_clients_names(replica: Replica) -> None:
    async with replica.remoting(ACME) as client:
        await client.heartbeat(producers=["p"])
        half = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: "p"}
        flag = int(messages.SysFlag.TRANSACTION_PREPARED)
        reply = await client.send("orders", b"half", half, producerGroup="p", sysFlag=flag)
        assert replica.app.backend.broker.members.producers_in_turn("acme%p")  # type: ignore[union-attr]
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
        client.send_oneway(RequestCode.END_TRANSACTION, client.named(fields))
        (stored,) = await client.pull("orders", "g")
        assert (stored.topic, stored.get(properties.PRODUCER_GROUP)) == ("orders", "p")


async def test_pushed_requests_and_their_replies_are_rewritten(replica: Replica) -> None:
    async with replica.remoting(OLD) as client, replica.remoting() as operator:
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
        running_info = orjson.loads(reply.body)
        assert [item["topic"] for item in running_info["subscriptionSet"]] == ["orders"]
        assert running_info["statusTable"].keys() == {"orders"}


async def test_a_message_to_consume_directly_has_the_clients_names(replica: Replica) -> None:
    async with replica.remoting(OLD) as client, replica.remoting() as operator:
        client.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = lambda _: commands.success(body=b"{}")
        await client.heartbeat(consumers={"g": ["bookings"]})
        sent = ok(await send(client, "bookings"))
        fields = {"consumerGroup": "g", "clientId": client.client_id, "msgId": sent.fields["msgId"]}
        for tool, topic in ((operator, "orders"), (client, "bookings")):
            await tool.get(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "topic": topic, "brokerName": "broker-a"})
            push = await client.push(RequestCode.CONSUME_MESSAGE_DIRECTLY)
            assert (push.fields["topic"], messages.decode_message(push.body).topic) == ("bookings", "bookings")


async def test_requests_that_cannot_be_rewritten_are_rejected(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting(OLD) as old:
        fields = v2(acme.named(send_fields("orders")))
        signed = await acme.ask(RequestCode.SEND_MESSAGE_V2, {**fields, "AccessKey": "k", "Signature": "s"}, b"x")
        assert signed.code == ResponseCode.NO_PERMISSION
        assert "signed" in (signed.remark or "")
        listing = await acme.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert listing.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        # GET_ALL_TOPIC_LIST_FROM_NAMESERVER of an embedded broker: the list has the topics of all namespaces.
        assert (await acme.ask(206)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        # Messages can be sent to a shared topic but not read from it.
        trace = await acme.ask(RequestCode.PULL_MESSAGE, acme.named(pull_fields("RMQ_SYS_TRACE_TOPIC", "g")))
        assert trace.code == ResponseCode.NO_PERMISSION
        further = await send(acme, "orders", b"x", {properties.INNER_MULTI_DISPATCH: "%LMQ%umbrella"})
        assert further.code == ResponseCode.NO_PERMISSION
        # A broker removes the delayed message with this id, of whatever topic.
        removal = {properties.TIMER_DELIVER_MS: "1", properties.TIMER_DEL_UNIQKEY: "0" * 32}
        removed = await send(acme, "orders", b"x", removal)
        assert removed.code == ResponseCode.NO_PERMISSION
        assert properties.TIMER_DEL_UNIQKEY in (removed.remark or "")
        # Clients with an alias for a topic cannot use its broker-side name.
        hidden = await send(old, "orders")
        assert hidden.code == ResponseCode.NO_PERMISSION


async def test_a_message_outside_the_namespace_is_not_returned(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting() as operator:
        await send(operator, "orders", b"not acme's")
        (stored,) = await operator.pull("orders", "g")
        answers = []
        for offset in (stored.commit_log_offset, stored.commit_log_offset + 1):
            reply = await acme.ask(RequestCode.VIEW_MESSAGE_BY_ID, acme.named({"offset": f"+{offset}"}))
            answers.append((reply.code, reply.body, reply.fields, (reply.remark or "").replace(str(offset), "offset")))
        # As if there were no message.
        assert answers[0] == answers[1]
        assert answers[0][:2] == (ResponseCode.SYSTEM_ERROR, b"")
        await send(acme, "orders", b"acme's")
        (own,) = await acme.pull("orders", "g")
        reply = await acme.ask(RequestCode.VIEW_MESSAGE_BY_ID, acme.named({"offset": own.commit_log_offset}))
        assert [viewed.topic for viewed in messages.decode_messages(reply.body)] == ["orders"]


async def test_a_property_with_a_foreign_name_is_left_out(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting() as operator:
        pairs = {properties.REAL_TOPIC: "SCHEDULE_TOPIC_XXXX", properties.KEYS: "k"}
        await send(operator, "acme%orders", b"x", pairs)
        (stored,) = await acme.pull("orders", "g")
        assert (stored.get(properties.REAL_TOPIC), stored.get(properties.KEYS)) == (None, "k")


async def test_error_texts_do_not_contain_the_namespace(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.grpc("missing", "g", ACME) as client:
        reply = await acme.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "missing"})
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert "missing" in (reply.remark or "")
        assert "acme" not in (reply.remark or "")
        response = await grpc_send(client, b"x")
        assert response.status.code == Code.TOPIC_NOT_FOUND
        assert "acme" not in response.status.message


async def test_error_texts_have_the_clients_aliases(replica: Replica) -> None:
    async with replica.remoting(OLD) as old, replica.remoting(UMBRELLA) as umbrella:
        for client in (old, umbrella):
            fields = client.named(send_fields("bookings")) | {"queueId": 9}
            reply = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(fields), b"x")
            assert (reply.remark or "").startswith("topic bookings has 1 queues"), reply.remark
    await replica.apply(RULES + '[[rule]]\nname = "no-orders"\nkind = "deny"\nmatch.topics = ["orders"]\n')
    async with replica.grpc("bookings", "g", OLD) as grpc_client:
        refused = await grpc_send(grpc_client, b"x")
        assert refused.status.message == "topic bookings is not permitted (rule no-orders)"
        # The brokers' name is not that of another topic for this client.
        hidden = await grpc_send(grpc_client, b"x", topic="orders")
        assert (hidden.status.code, hidden.status.message) == (
            Code.FORBIDDEN,
            "the topic is named bookings for this client",
        )


@pytest.mark.parametrize(("number", "topic"), [(ACME, "orders"), (UMBRELLA, "bookings"), (OLD, "bookings")])
async def test_grpc_clients_see_only_their_own_names(replica: Replica, number: int, topic: str) -> None:
    async with replica.grpc(topic, "g", number) as client:
        endpoints = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host="127.0.0.1", port=1)])
        route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=client.topic, endpoints=endpoints))
        assert {queue.topic.name for queue in route.message_queues} == {topic}
        stream = client.stub.Telemetry(metadata=client.metadata)
        subscribed = d.Subscription(
            group=client.group,
            subscriptions=[d.SubscriptionEntry(topic=client.topic, expression=d.FilterExpression(expression="*"))],
        )
        settings = d.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscribed)
        await stream.write(pb.TelemetryCommand(settings=settings))
        response = await stream.read()
        assert response.status.code == Code.OK, response
        assert response.settings.subscription.group.name == "g"
        assert [entry.topic.name for entry in response.settings.subscription.subscriptions] == [topic]
        heartbeat = pb.HeartbeatRequest(group=client.group, client_type=ClientType.PUSH_CONSUMER)
        assert (await client.call("Heartbeat", heartbeat)).status.code == Code.OK
        namespace = {ACME: "acme%", UMBRELLA: "umbrella%"}.get(number, "")
        (member,) = replica.app.registry.local()
        assert list(member.consumers) == [f"{namespace}g"]
        query = pb.QueryAssignmentRequest(topic=client.topic, group=client.group, endpoints=endpoints)
        assigned = await client.call("QueryAssignment", query)
        assert {item.message_queue.topic.name for item in assigned.assignments} == {topic}
        await client.send(b"1", b"2")
        received = await client.receive_all(2)
        assert {message.topic.name for message in received} == {topic}
        await client.ack(*received)
        stream.cancel()


async def test_a_transaction_check_has_the_grpc_producers_topic_name(tmp_path: Path) -> None:
    embedded = {"transaction_timeout": 1.0, "transaction_interval": 1.0}
    async with (
        run_replica(tmp_path, RULES, listen=LISTEN, embedded=embedded) as replica,
        replica.grpc("t", "g", ACME) as client,
    ):
        await replica.create("acme%t", kind="TRANSACTION")
        stream = client.stub.Telemetry(metadata=client.metadata)
        settings = d.Settings(client_type=ClientType.PRODUCER, publishing=d.Publishing(topics=[client.topic]))
        await stream.write(pb.TelemetryCommand(settings=settings))
        assert [topic.name for topic in (await stream.read()).settings.publishing.topics] == ["t"]
        system = d.SystemProperties(message_id="0" * 32, message_type=d.TRANSACTION)
        half = d.Message(topic=client.topic, body=b"half", system_properties=system)
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[half]))
        assert answer.status.code == Code.OK, answer
        recovery = (await stream.read()).recover_orphaned_transaction_command
        assert (recovery.message.topic.name, recovery.message.body) == ("t", b"half")
        stream.cancel()


async def test_equal_client_ids_in_two_namespaces_are_different_clients(replica: Replica) -> None:
    async with (
        replica.grpc("orders", "g", ACME, "same") as acme,
        replica.grpc("bookings", "g", UMBRELLA, "same") as umbrella,
    ):
        for client in (acme, umbrella):
            heartbeat = pb.HeartbeatRequest(group=client.group, client_type=ClientType.PUSH_CONSUMER)
            await client.send(b"x")
            assert (await client.call("Heartbeat", heartbeat)).status.code == Code.OK
        assert len(replica.app.grpc.clients) == 2


async def test_open_connections_keep_their_names_after_a_reload(replica: Replica) -> None:
    async with replica.remoting(ACME) as before:
        await send(before, "orders", b"1")
        await replica.apply(RULES.replace('namespace = "acme"', 'namespace = "acme2"'))
        await send(before, "orders", b"2")
        assert len(await before.pull_all(2, "orders", "g")) == 2
        async with replica.remoting(ACME) as after:
            await send(after, "orders", b"3")
            assert [stored.body for stored in await after.pull("orders", "g")] == [b"3"]
    await until(lambda: not replica.app.channels)
