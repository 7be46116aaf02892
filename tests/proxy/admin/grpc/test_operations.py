"""Writes and client requests of the Admin service; roles."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import grpc.aio
import orjson
import pytest
import trustme

from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.admin_pb2_grpc import AdminStub
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, MessageType, Status, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand, ThreadStackTrace, VerifyMessageResult
from proxy.app import App
from proxy.operations.audit import Audit
from proxy.settings.model import Settings
from proxy.workers.worker_settings import of_worker
from remoting import command as commands
from remoting.codes import RequestCode
from tests.cluster.client import unique
from tests.cluster.grpc.consumer import Consumer
from tests.grpc_gateway.messages import consumer_settings
from tests.proxy.admin.grpc.stage import NAMED, WRITER, Stage, callers, moment, name, where
from tests.proxy.admin.http.replicas import GROUP, UNIQUE_ID, eventually_a_member, replica
from tests.proxy.replica import certify, running

pytestmark = pytest.mark.anyio

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def own(served: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return the shared replica, with an empty audit and no refusals."""
    monkeypatch.setattr(served.app.admin_services, "audit", Audit(100))
    served.app.admin.gatekeeping.refusals.clear()
    return served


def audited(own: Stage) -> list[tuple[str, str, Any, int]]:
    """Return the audit, the oldest entry first."""
    writes = own.app.admin_services.audit.newest()
    assert {(write.address, write.method) for write in writes} <= {("127.0.0.1", "POST")}
    return [(write.caller, write.path.rpartition("/")[2], write.what, write.status) for write in reversed(writes)]


# Groups.


async def test_reset_moves_a_group(own: Stage) -> None:
    client = own.clients.remoting
    fields = client.named({"consumerGroup": GROUP, "topic": own.topic, "queueId": 0, "commitOffset": 1})
    await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    request = pb.ResetGroupOffsetRequest(group=name(GROUP), topic=name(own.topic), reset_timestamp=moment(1_000))
    await own.write("ResetGroupOffset", request)
    lag = pb.DescribeGroupAccumulationRequest(group=name(GROUP), topics=[name(own.topic)])
    assert (await own.read("DescribeGroupAccumulation", lag)).accumulation.accumulation == 1
    what = {"group": GROUP, "topic": own.topic, "seconds": 1}
    assert audited(own) == [("write_token", "ResetGroupOffset", what, Code.OK)]


@pytest.mark.parametrize(
    ("topic", "time", "code"),
    [
        (None, None, Code.BAD_REQUEST),
        (None, moment(0), Code.BAD_REQUEST),
        ("nowhere", moment(1_000), Code.TOPIC_NOT_FOUND),
        ("no where", moment(1_000), Code.ILLEGAL_TOPIC),
    ],
)
async def test_reset_of_a_missing_topic_is_refused(own: Stage, topic: str | None, time: Any, code: Any) -> None:
    request = pb.ResetGroupOffsetRequest(group=name(GROUP), topic=name(topic or own.topic), reset_timestamp=time)
    await own.write("ResetGroupOffset", request, code)
    request.reset_timestamp.seconds = 10**15
    await own.write("ResetGroupOffset", request, Code.ILLEGAL_TOPIC if topic == "no where" else Code.BAD_REQUEST)
    assert audited(own)[0][-1] == code


async def test_delete_subscription_removes_it_from_the_configuration(own: Stage) -> None:
    group, client = unique("configured"), own.clients.remoting
    kept = {"topic": "other", "expressionType": "TAG", "expression": "*", "version": 1}
    gone = {"topic": own.topic, "expressionType": "TAG", "expression": "TagA", "version": 1}
    config = {"groupName": group, "retryMaxTimes": 3, "subscriptionDataSet": [kept, gone], "attributes": {"+a": "b"}}
    await client.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps(config))
    request = pb.DeleteSubscriptionRequest(
        group=name(group), topic=name(own.topic), expression=FilterExpression(expression="TagB")
    )
    await own.write("DeleteSubscription", request, Code.NOT_FOUND)
    request.expression.expression = "TagA"
    await own.write("DeleteSubscription", request)
    reply = await client.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = orjson.loads(reply.body)["subscriptionGroupTable"][group]
    assert (found["subscriptionDataSet"], found["retryMaxTimes"], found["attributes"]) == ([kept], 3, {"a": "b"})
    await own.write("DeleteSubscription", request, Code.NOT_FOUND)
    assert audited(own)[1][2] == {"topic": own.topic, "group": group, "expression": "TagA"}


# Clients.


async def test_running_info_of_a_remoting_client(own: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, code = own.clients.remoting.answers, RequestCode.GET_CONSUMER_RUNNING_INFO
    queue = orjson.dumps({"brokerName": "broker-a", "queueId": 1, "topic": own.topic})
    held = {"commitOffset": 7, "cachedMsgSizeInMiB": 2, "droped": True, "lastPullTimestamp": 1_700_000_000_000}
    rest = {
        "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        "subscriptionSet": [{"topic": own.topic, "subString": "a = 1", "expressionType": "SQL92"}],
        "statusTable": {own.topic: {"pullRT": 1.5, "consumeOKTPS": 2.0, "consumeFailedMsgs": 3}},
    }
    body = b'{"mqTable":{' + queue + b":" + orjson.dumps(held) + b"}," + orjson.dumps(rest)[1:]
    monkeypatch.setitem(answers, code, lambda _: commands.success(body=body))
    for group in (GROUP, ""):
        request = pb.GetConsumerRunningInfoRequest(group=name(group), client_id="192.0.2.7@4711")
        info = (await own.read("GetConsumerRunningInfo", request)).consumer_running_info
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.subscriptions[own.topic].expression == "a = 1"
        (item,) = info.message_queue_table
        assert (item.message_queue.id, item.message_queue.broker.name) == (1, "broker-a")
        process = item.process_queue_info
        assert (process.commit_offset, process.cached_msg_size_in_mib, process.dropped) == (7, 2, True)
        rates = info.consume_status_table[own.topic]
        assert (rates.receive_rt, rates.consume_ok_tps, rates.consume_failed_msgs) == (1.5, 2.0, 3)
    wrong = commands.success(body=b'{"statusTable":{"t":{"pullRT":"fast"}}}')
    monkeypatch.setitem(answers, code, lambda _: wrong)
    await own.read("GetConsumerRunningInfo", request, Code.INTERNAL_SERVER_ERROR)


async def test_remoting_client_returns_stacks_and_consumes_a_message(
    own: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = pb.PrintThreadStackTraceRequest(group=name(GROUP), client_id="192.0.2.7@4711")
    assert (await own.read("PrintThreadStackTrace", stack)).thread_stack_trace == "main at work"
    verify = pb.VerifyMessageRequest(
        client_id="192.0.2.7@4711", group=name(GROUP), topic=name(own.topic), message_id=UNIQUE_ID
    )
    await own.write("VerifyMessage", verify)
    assert own.clients.remoting.pushed(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    later = commands.success(body=orjson.dumps({"consumeResult": "CR_LATER", "remark": "no time"}))
    monkeypatch.setitem(own.clients.remoting.answers, RequestCode.CONSUME_MESSAGE_DIRECTLY, lambda _: later)
    answer = await own.write("VerifyMessage", verify, Code.FAILED_TO_CONSUME_MESSAGE)
    assert answer.status.message == "the client 192.0.2.7@4711 answered CR_LATER: no time"
    verify.message_id = "unknown"
    await own.write("VerifyMessage", verify, Code.MESSAGE_NOT_FOUND)


async def test_grpc_client_returns_stacks_and_consumes_a_message(own: Stage) -> None:
    async with Consumer(own.clients.replica.address, "asked", own.topic, "grpc@2") as consumer:
        stream = consumer.stub.Telemetry(metadata=consumer.metadata)
        await stream.write(TelemetryCommand(settings=consumer_settings("asked", [own.topic])))
        asked: list[bytes] = []

        async def answer() -> None:
            async for command in stream:
                if command.HasField("print_thread_stack_trace_command"):
                    nonce = command.print_thread_stack_trace_command.nonce
                    trace = ThreadStackTrace(nonce=nonce, thread_stack_trace="MainThread idles")
                    await stream.write(TelemetryCommand(status=Status(code=Code.OK), thread_stack_trace=trace))
                elif command.HasField("verify_message_command"):
                    asked.append(command.verify_message_command.message.body)
                    result = VerifyMessageResult(nonce=command.verify_message_command.nonce)
                    await stream.write(TelemetryCommand(status=Status(code=Code.OK), verify_message_result=result))

        answering = asyncio.ensure_future(answer())
        await eventually_a_member(own.app, "asked")
        stack = pb.PrintThreadStackTraceRequest(group=name("asked"), client_id="grpc@2")
        assert (await own.read("PrintThreadStackTrace", stack)).thread_stack_trace == "MainThread idles"
        verify = pb.VerifyMessageRequest(
            client_id="grpc@2", group=name("asked"), topic=name(own.topic), message_id=UNIQUE_ID
        )
        await own.write("VerifyMessage", verify)
        assert asked == [b"secret body"]
        info = pb.GetConsumerRunningInfoRequest(group=name("asked"), client_id="grpc@2")
        known = (await own.read("GetConsumerRunningInfo", info)).consumer_running_info
        assert list(known.subscriptions) == [own.topic]
        answering.cancel()
        stream.cancel()


async def test_requests_to_a_missing_client_are_refused(own: Stage) -> None:
    for group in (GROUP, ""):
        stack = pb.PrintThreadStackTraceRequest(group=name(group), client_id="nobody")
        await own.read("PrintThreadStackTrace", stack, Code.NOT_FOUND)
    await own.read("GetConsumerRunningInfo", pb.GetConsumerRunningInfoRequest(group=name(GROUP)), Code.BAD_REQUEST)


# Messages.


async def test_admin_send_stores_a_message(own: Stage) -> None:
    request = pb.AdminSendMessageRequest(
        topic=name(own.topic),
        tag="TagA",
        key="order-1",
        body=b"from the dashboard",
        user_properties={"colour": "blue"},
        system_properties=SystemProperties(keys=["more"]),
        ext_info={"protocol_type": "REMOTING"},
    )
    answer = await own.write("AdminSendMessage", request)
    assert len(answer.message_id) == 34
    found = pb.ListMessageRequest(topic=name(own.topic), message_id=answer.message_id)
    (message,) = (await own.write("QueryMessage", found)).messages
    system = message.system_properties
    assert (message.body, system.tag, list(system.keys)) == (b"from the dashboard", "TagA", ["more", "order-1"])
    assert dict(message.user_properties) == {"colour": "blue"}
    assert audited(own) == [("write_token", "AdminSendMessage", {"topic": own.topic, "bytes": 18}, Code.OK)]
    # In turn with the next message, at the topic's two queues.
    found.message_id = (await own.write("AdminSendMessage", request)).message_id
    (other,) = (await own.write("QueryMessage", found)).messages
    assert {system.queue_id, other.system_properties.queue_id} == {0, 1}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": name("")}, Code.ILLEGAL_TOPIC),
        ({"topic": name("nowhere")}, Code.TOPIC_NOT_FOUND),
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"user_properties": {"KEYS": "forged"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"system_properties": SystemProperties(message_type=MessageType.TRANSACTION)}, Code.BAD_REQUEST),
        ({"system_properties": SystemProperties(message_group="g")}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
async def test_admin_send_of_an_invalid_message_is_refused(own: Stage, changes: dict[str, Any], code: Any) -> None:
    request = pb.AdminSendMessageRequest(**{"topic": name(own.topic), "body": b"x", **changes})
    await own.write("AdminSendMessage", request, code)


# The replica.


async def test_change_log_level(own: Stage) -> None:
    level = pb.ChangeLogLevelRequest.Level
    before = logging.root.level
    answer = await own.write.stub.ChangeLogLevel(pb.ChangeLogLevelRequest(level=level.WARN), metadata=WRITER)
    assert (answer.remark, logging.root.level) == ("the log level is warning", logging.WARNING)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await own.write.stub.ChangeLogLevel(pb.ChangeLogLevelRequest(), metadata=WRITER)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert logging.root.level == logging.WARNING
    own.app.admin_services.log_levels.reset("root")
    assert logging.root.level == before
    codes = [("ChangeLogLevel", {"level": level.WARN}, Code.OK), ("ChangeLogLevel", {"level": 0}, Code.BAD_REQUEST)]
    assert audited(own) == [("write_token", *code) for code in codes]


# Roles.


async def test_reads_and_writes_need_their_role(own: Stage, caplog: pytest.LogCaptureFixture) -> None:
    reset = pb.ResetGroupOffsetRequest(group=name(GROUP), topic=name(own.topic), reset_timestamp=moment(1_000))
    query = pb.ListMessageRequest(topic=name(own.topic), message_id=UNIQUE_ID)
    for rpc, request, metadata, code in (
        ("ResetGroupOffset", reset, (), UNAUTHENTICATED),
        ("ResetGroupOffset", reset, NAMED, DENIED),
        ("ResetGroupOffset", reset, (("authorization", "Bearer nobody-has-this-one"),), UNAUTHENTICATED),
        (
            "GetTopicRoute",
            pb.GetTopicRouteRequest(topic=name(own.topic)),
            (("authorization", "MQv2 x"),),
            UNAUTHENTICATED,
        ),
        # Anonymous callers do not get message bodies.
        ("QueryMessage", query, (), UNAUTHENTICATED),
        # Behind a proxy on this host the caller may be anyone.
        (
            "GetTopicRoute",
            pb.GetTopicRouteRequest(topic=name(own.topic)),
            (("x-forwarded-for", "::1"),),
            UNAUTHENTICATED,
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(own.read.stub, rpc)(request, metadata=metadata)
        assert refused.value.code() is code, refused.value.details()
    assert audited(own) == [
        (caller, "ResetGroupOffset", {"group": GROUP, "topic": own.topic, "seconds": 1}, status)
        for caller, status in zip(
            ("local", "read_token", "nobody"), (Code.UNAUTHORIZED, Code.FORBIDDEN, Code.UNAUTHORIZED), strict=True
        )
    ]
    assert own.app.admin.gatekeeping.refusals == {"role": 4, "credentials": 2}
    lines = [json.loads(record.message) for record in caplog.records if record.name == "gantry.audit"]
    assert [line["caller"] for line in lines] == ["local", "read_token", "nobody"]
    metrics = await own.clients.replica.read.get("/metrics")
    assert 'gantry_admin_calls_total{code="FORBIDDEN",method="ResetGroupOffset"} 1.0' in metrics.text
    assert 'gantry_admin_calls_total{code="UNAUTHORIZED",method="QueryMessage"} 1.0' in metrics.text
    assert "secret" not in caplog.text


async def test_anonymous_callers_can_be_refused(tmp_path: Path) -> None:
    async with (
        replica(tmp_path, admin={"grpc": "127.0.0.1:0", "local": "none"}) as served,
        callers(where(served.app)) as (read, named, _),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await read("GetProxyRuntimeStats", pb.GetProxyRuntimeStatsRequest())
        assert refused.value.code() is UNAUTHENTICATED
        await named("GetProxyRuntimeStats", pb.GetProxyRuntimeStatsRequest())


async def test_clients_port_does_not_serve_the_admin_service(own: Stage) -> None:
    async with grpc.aio.insecure_channel(own.clients.replica.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await AdminStub(channel).GetProxyRuntimeStats(pb.GetProxyRuntimeStatsRequest())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_tls_uses_the_admin_certificates_and_client_certificates(tmp_path: Path) -> None:
    files, _ = certify(tmp_path)
    operators = trustme.CA()
    operators.cert_pem.write_to_path(tmp_path / "operators.pem")
    client = operators.issue_cert("alice.rocketmq.test")
    callers = {"client_ca": tmp_path / "operators.pem", "writers": ["*"], "local": "none"}
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded={"directory": tmp_path / "store"},
        drain_timeout=0.2,
        admin={"grpc": "127.0.0.1:0", "listen": "off", **files, **callers},
    )
    authority = (tmp_path / "authority.pem").read_bytes()
    alice = (client.private_key_pem.bytes(), b"".join(blob.bytes() for blob in client.cert_chain_pems))
    options = [("grpc.ssl_target_name_override", "rocketmq.test")]
    request = pb.GetProxyRuntimeStatsRequest()
    async with running(settings) as app:
        for credentials, code in (
            (grpc.ssl_channel_credentials(authority, *alice), None),
            (grpc.ssl_channel_credentials(authority), UNAUTHENTICATED),
        ):
            async with grpc.aio.secure_channel(where(app), credentials, options=options) as channel:
                if code is None:
                    assert (await AdminStub(channel).GetProxyRuntimeStats(request)).status.code == Code.OK
                    # Callers without the role are refused before.
                    answer = await AdminStub(channel).DeleteSubscription(pb.DeleteSubscriptionRequest())
                    assert answer.status.code == Code.ILLEGAL_CONSUMER_GROUP
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await AdminStub(channel).GetProxyRuntimeStats(request)
                assert refused.value.code() is code
        (write,) = app.admin_services.audit.newest()
        assert write.caller != "local"
        async with grpc.aio.insecure_channel(where(app)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await AdminStub(channel).GetProxyRuntimeStats(request)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert app.admin.gatekeeping.refusals["plaintext_refused"] >= 1


async def test_taken_address_fails_the_start(tmp_path: Path) -> None:
    async with replica(tmp_path / "one", admin={"grpc": "127.0.0.1:0"}) as first:
        taken = where(first.app)
        settings = Settings(
            listen=["127.0.0.1:0"], embedded={"directory": tmp_path / "two"}, admin={"grpc": taken, "listen": "off"}
        )
        with pytest.raises(OSError, match=f"the Admin service cannot listen on {taken}"):
            await App(settings).serve(lambda: None, asyncio.Event().wait)


def test_each_worker_has_a_port_of_its_own() -> None:
    cluster = {"namesrv": "127.0.0.1:9876"}
    settings = Settings(listen=["127.0.0.1:8080"], cluster=cluster, admin={"grpc": "127.0.0.1:8083"})
    assert [of_worker(settings, number).admin.grpc for number in (0, 1, 2)] == [
        "127.0.0.1:8083",
        "127.0.0.1:8084",
        "127.0.0.1:8085",
    ]
    assert of_worker(settings, 1).admin.listen == "127.0.0.1:8091"
