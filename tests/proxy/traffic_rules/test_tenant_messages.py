"""Requests of namespaced clients that name a message instead of its topic."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code
from proxy.core.context import Context
from proxy.core.forwarding import forward
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.messaging import Messaging
from proxy.traffic_rules.grpc_resources import ResourceNames
from proxy.traffic_rules.name_mapping import ForeignName, NameMapping
from proxy.traffic_rules.tenant_messages import TenantMessages
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.ids import RecallHandle
from remoting.requests import REQUESTS
from tests.cluster.client import pull_fields
from tests.proxy.fakes import FakeBackend, peer, stage
from tests.proxy.messages import request
from tests.proxy.traffic_rules.replica import Replica
from tests.proxy.traffic_rules.tenants import ACME, UMBRELLA, run_tenants

pytestmark = pytest.mark.anyio


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with run_tenants(tmp_path) as replica:
        yield replica


async def stored_offset(client: Any, topic: str) -> int:
    """Send a message; return its offset in the log."""
    reply = await client.send(topic, b"secret", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
    return int(reply.fields["msgId"][16:], 16)


def send_back(offset: int, group: str = "g") -> dict[str, Any]:
    return {"offset": offset, "group": group, "delayLevel": -1, "originTopic": "bookings"}


async def test_a_message_of_another_tenant_is_not_sent_back(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.remoting(UMBRELLA) as umbrella:
        offset = await stored_offset(acme, "orders")
        await umbrella.heartbeat(consumers={"g": ["bookings"]})
        answers = []
        for number, group in ((offset, "g"), (offset + 1, "g"), (offset, "none"), (offset + 1, "none")):
            fields = umbrella.named(send_back(number, group))
            reply = await umbrella.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            answers.append((reply.code, (reply.remark or "").replace(str(number), "offset"), reply.fields))
        # As if there were no message.
        assert answers[0] == answers[1]
        assert answers[2] == answers[3]
        assert answers[0][0] == ResponseCode.SYSTEM_ERROR
        dead = await umbrella.ask(RequestCode.PULL_MESSAGE, umbrella.named(pull_fields("%DLQ%g", "reader")))
        assert dead.code == ResponseCode.TOPIC_NOT_EXIST
        # Its own tenant sends it back.
        await acme.heartbeat(consumers={"g": ["orders"]})
        fields = {**send_back(offset), "originTopic": "orders"}
        reply = await acme.ask(RequestCode.CONSUMER_SEND_MSG_BACK, acme.named(fields))
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        assert [each.body for each in await acme.pull("%DLQ%g", "reader")] == [b"secret"]


async def test_a_grpc_tenant_gets_no_dead_letter_of_another_tenants_message(replica: Replica) -> None:
    async with replica.remoting(ACME) as acme, replica.grpc("bookings", "g", UMBRELLA) as umbrella:
        await umbrella.send(b"own")
        (own,) = await umbrella.receive_all(1)
        parts = own.system_properties.receipt_handle.split(" ")
        parts[8] = str(await stored_offset(acme, "orders"))

        async def forward_dead_letter(handle: str) -> int:
            response = await umbrella.call(
                "ForwardMessageToDeadLetterQueue",
                pb.ForwardMessageToDeadLetterQueueRequest(
                    group=umbrella.group,
                    topic=umbrella.topic,
                    receipt_handle=handle,
                    message_id=own.system_properties.message_id,
                    delivery_attempt=1,
                    max_delivery_attempts=16,
                ),
            )
            return int(response.status.code)

        assert await forward_dead_letter(" ".join(parts)) == Code.INVALID_RECEIPT_HANDLE
        assert await forward_dead_letter(own.system_properties.receipt_handle) == Code.OK
        async with replica.remoting(UMBRELLA) as reader:
            assert [each.body for each in await reader.pull("%DLQ%g", "reader")] == [b"own"]


async def test_delayed_messages_of_other_tenants_are_not_recalled() -> None:
    """A broker removes the delayed message with the id in the handle, whatever topic that names."""
    delayed = {
        identity: messages.encode_message(
            messages.StoredMessage(topic="rmq_sys_wheel_timer", properties=f"REAL_TOPIC\x01{topic}\x02")
        )
        for identity, topic in (("A", "umbrella%t"), ("B", "acme%t"), ("D", "RMQ_SYS_TRACE_TOPIC"))
    }

    def answer(_: str, command: RemotingCommand) -> RemotingCommand:
        if command.code != RequestCode.QUERY_MESSAGE:
            return commands.success({"msgId": "recalled"})
        found = delayed.get(command.fields["key"])
        return commands.response(ResponseCode.QUERY_NOT_FOUND) if found is None else commands.success(body=found)

    core = stage(FakeBackend(answer=answer)).core
    guarded = TenantMessages().wrap({})[RequestCode.RECALL_MESSAGE]
    assert int(RequestCode.RECALL_MESSAGE) not in TenantMessages(recalls_by_id=False).wrap({})
    channel = GrpcChannel("c", peer())
    for names, expected in (
        (
            NameMapping("umbrella"),
            {"A": 0, "B": ResponseCode.NO_PERMISSION, "C": ResponseCode.NO_PERMISSION, "D": ResponseCode.NO_PERMISSION},
        ),
        (None, {"B": 0}),
        # Aliases alone separate no tenants.
        (NameMapping("", (("a", "b"),)), {"B": 0}),
    ):
        channel.name_mapping = None if names is None else ResourceNames(names)
        for identity, code in expected.items():
            reply = await _handled(guarded, core, channel, identity)
            assert reply.code == code, identity


async def test_an_unreadable_recall_handle_is_not_left_to_the_broker() -> None:
    """Java reads more handles than Gantry: it replaces bytes that are no UTF-8."""
    backend = FakeBackend()
    guarded = TenantMessages().wrap({})[RequestCode.RECALL_MESSAGE]
    channel = GrpcChannel("c", peer())
    channel.name_mapping = ResourceNames(NameMapping("umbrella"))
    handle = base64.urlsafe_b64encode(b"v1 umbrella%t broker-a 1 B\xff").decode()
    sent = request(RequestCode.RECALL_MESSAGE, topic="umbrella%t", recallHandle=handle, bname="broker-a")
    handling = guarded(stage(backend).core, Context(channel, sent, REQUESTS[sent.code], 0.0))
    assert handling is not None
    with pytest.raises(BodyError):
        await handling
    assert backend.sent == []


async def _handled(guarded: Any, core: Messaging, channel: GrpcChannel, identity: str) -> RemotingCommand:
    handle = RecallHandle("umbrella%t", "broker-a", 1, identity)
    sent = request(RequestCode.RECALL_MESSAGE, topic="umbrella%t", recallHandle=str(handle), bname="broker-a")
    reply: RemotingCommand = await guarded(core, Context(channel, sent, REQUESTS[sent.code], 0.0))
    return reply


@pytest.mark.parametrize(
    ("topic", "pairs", "offset", "own"),
    [
        ("umbrella%t", {}, 1, True),
        ("umbrella%t", {}, 0, False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "umbrella%t"}, 1, True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "acme%t"}, 1, False),
        # A broker commits it to the topic that it names.
        ("umbrella%t", {"REAL_TOPIC": "acme%t"}, 1, False),
        ("umbrella%t", {"TIMER_DEL_UNIQKEY": "B"}, 1, False),
        ("umbrella%t", {"INNER_MULTI_DISPATCH": "acme%t"}, 1, False),
        ("umbrella%t", {"INNER_MULTI_DISPATCH": "%LMQ%$umbrella%t$a"}, 1, True),
        (
            "RMQ_SYS_TRANS_HALF_TOPIC",
            {"REAL_TOPIC": "umbrella%t", "INNER_MULTI_DISPATCH": "%LMQ%$umbrella%t$a, %LMQ%$umbrella%t$b"},
            1,
            True,
        ),
        ("umbrella%t", {"INNER_MULTI_DISPATCH": "%LMQ%$umbrella%t$a,%LMQ%$acme%t$a"}, 1, False),
    ],
)
async def test_only_an_own_half_message_is_committed(topic: str, pairs: dict[str, str], offset: int, own: bool) -> None:
    """A broker takes what is at any offset for a half message, and what that says for its topic."""
    half = messages.StoredMessage(topic=topic, properties=properties.encode(pairs), commit_log_offset=1)
    queued = messages.StoredMessage(topic=topic, commit_log_offset=offset)

    def answer(_: str, command: RemotingCommand) -> RemotingCommand:
        shown = half if command.code == RequestCode.VIEW_MESSAGE_BY_ID else queued
        return commands.success(body=messages.encode_message(shown))

    backend = FakeBackend(answer=answer)
    guarded = TenantMessages().wrap({})[RequestCode.END_TRANSACTION]
    channel = GrpcChannel("c", peer())
    channel.name_mapping = ResourceNames(NameMapping("umbrella"))
    end = request(RequestCode.END_TRANSACTION, topic="umbrella%t", commitLogOffset=1, bname="broker-a")
    handling = guarded(stage(backend).core, Context(channel, end, REQUESTS[end.code], 0.0))
    assert handling is not None
    await handling
    ended = backend.sent[-1]
    assert ended.code == RequestCode.END_TRANSACTION
    # At the other offset no broker has a message.
    assert ended.fields["commitLogOffset"] == ("1" if own else str(2**63 - 1))


async def test_bytes_in_a_message_are_shown_as_no_message() -> None:
    """A tenant must not learn whether there is a record at an offset, such as one in the body of a message."""
    record = messages.StoredMessage(topic="acme%t", commit_log_offset=1)

    def answer(_: str, sent: RemotingCommand) -> RemotingCommand:
        if sent.code == RequestCode.PULL_MESSAGE:
            return commands.response(ResponseCode.TOPIC_NOT_EXIST)
        if sent.code == RequestCode.VIEW_MESSAGE_BY_ID and sent.fields["offset"] == "1":
            return commands.success(body=messages.encode_message(record))
        remark = f"can not find message by the offset, {sent.fields.get('offset')}"
        return commands.response(ResponseCode.SYSTEM_ERROR, remark=remark)

    core, channel = stage(FakeBackend(answer=answer)).core, GrpcChannel("c", peer())
    channel.name_mapping = ResourceNames(NameMapping("umbrella"))
    for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION):
        guarded, answers = TenantMessages().wrap({})[code], []
        for offset in ("1", "2"):
            fields = {"offset": offset, "commitLogOffset": offset, "group": "umbrella%g", "bname": "broker-a"}
            sent = request(code, **fields)
            handling = guarded(core, Context(channel, sent, REQUESTS[code], 0.0))
            assert handling is not None
            reply = await handling
            answers.append((reply.code, (reply.remark or "").replace(offset, "offset"), reply.fields, reply.body))
        assert answers[0] == answers[1]


def test_without_guards_handlers_are_unchanged() -> None:
    wrapped = TenantMessages().wrap({int(RequestCode.PULL_MESSAGE): forward})
    assert wrapped[int(RequestCode.PULL_MESSAGE)] is forward


async def _consumer_stream(client: Any) -> Any:
    """Return the telemetry stream of a push consumer that has joined its group."""
    stream = client.stub.Telemetry(metadata=client.metadata)
    entry = d.SubscriptionEntry(topic=client.topic, expression=d.FilterExpression(expression="*"))
    subscribed = d.Subscription(group=client.group, subscriptions=[entry])
    settings = d.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscribed)
    await stream.write(pb.TelemetryCommand(settings=settings))
    await stream.read()
    await client.call("Heartbeat", pb.HeartbeatRequest(group=client.group, client_type=ClientType.PUSH_CONSUMER))
    return stream


async def test_no_message_of_others_is_pushed_to_a_grpc_tenant(replica: Replica) -> None:
    async with (
        replica.remoting(ACME) as acme,
        replica.remoting(UMBRELLA) as umbrella,
        replica.grpc("bookings", "g", UMBRELLA, "consumer") as consumer,
    ):
        stream = await _consumer_stream(consumer)

        def consume(message_id: str) -> Any:
            fields = {"consumerGroup": "g", "clientId": "consumer", "msgId": message_id, "brokerName": "broker-a"}
            return umbrella.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)

        ids = {}
        for sender, topic in ((acme, "RMQ_SYS_TRACE_TOPIC"), (acme, "orders"), (umbrella, "bookings")):
            sent = await sender.send(topic, topic.encode(), {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
            ids[topic] = sent.fields["msgId"]
        for topic in ("RMQ_SYS_TRACE_TOPIC", "orders"):
            reply = await consume(ids[topic])
            assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE, reply.remark
        # The stream is still open.
        consuming = asyncio.ensure_future(consume(ids["bookings"]))
        verify = (await stream.read()).verify_message_command
        assert (verify.message.topic.name, verify.message.body) == ("bookings", b"bookings")
        result = pb.VerifyMessageResult(nonce=verify.nonce)
        await stream.write(pb.TelemetryCommand(verify_message_result=result, status=d.Status(code=Code.OK)))
        assert (await consuming).code == ResponseCode.SUCCESS
        stream.cancel()


def test_telemetry_commands_have_no_messages_of_shared_topics() -> None:
    names = ResourceNames(NameMapping("acme"))
    shared = d.Message(topic=d.Resource(name="c_REPLY_TOPIC"))
    for command in (
        pb.TelemetryCommand(recover_orphaned_transaction_command=pb.RecoverOrphanedTransactionCommand(message=shared)),
        pb.TelemetryCommand(verify_message_command=pb.VerifyMessageCommand(message=shared)),
    ):
        with pytest.raises(ForeignName):
            names.map_response(command)
    # A client may send to them.
    settings = d.Settings(publishing=d.Publishing(topics=[shared.topic]))
    names.map_response(pb.TelemetryCommand(settings=settings))
