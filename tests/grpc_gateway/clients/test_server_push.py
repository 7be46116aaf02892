from typing import Any

import orjson
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageCommand,
    VerifyMessageResult,
)
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, RequestTimeout, UnsupportedRequest
from tests.grpc_gateway.client_harness import ClientHarness, TelemetrySession
from tests.grpc_gateway.messages import consumer_settings, stored

pytestmark = pytest.mark.anyio

CONSUME = RequestCode.CONSUME_MESSAGE_DIRECTLY


async def open_consumer() -> tuple[ClientHarness, TelemetrySession]:
    harness = ClientHarness()
    return harness, await harness.open_session(consumer_settings(expression="a||b"))


def running_info_request(**fields: str) -> RemotingCommand:
    return commands.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c1", **fields})


def consume_request(body: bytes | None = None) -> RemotingCommand:
    data = messages.encode_message(stored(5)) if body is None else body
    return commands.request(CONSUME, {"consumerGroup": "g", "clientId": "c1"}, data)


async def request(harness: ClientHarness, command: RemotingCommand, timeout: float = 5) -> RemotingCommand:
    return await harness.client().request(command, timeout)


# GET_CONSUMER_RUNNING_INFO.


async def test_running_info_needs_no_stream() -> None:
    harness, session = await open_consumer()
    await session.disconnect()
    body = orjson.loads((await request(harness, running_info_request())).body)
    # Fields of RocketMQ's ConsumerRunningInfo that its tools require.
    assert body["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert int(body["properties"]["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
    assert body["properties"]["PROP_CLIENT_VERSION"] == "5.0.7"
    (subscription,) = body["subscriptionSet"]
    assert (subscription["topic"], subscription["subString"]) == ("orders", "a||b")
    assert (body["mqTable"], body["mqPopTable"], body["statusTable"]) == ({}, {}, {})
    assert "jstack" not in body


async def test_running_info_with_stack_trace_requests_it_from_the_client() -> None:
    harness, session = await open_consumer()
    reply = harness.client().request(running_info_request(jstackEnable="true"), 5)
    nonce = (await session.read_command()).print_thread_stack_trace_command.nonce
    trace = ThreadStackTrace(nonce=nonce, thread_stack_trace="main at rest")
    session.send(TelemetryCommand(status=Status(code=Code.OK), thread_stack_trace=trace))
    assert orjson.loads((await reply).body)["jstack"] == "main at rest"


async def test_running_info_shows_the_error_if_the_client_has_no_stack_trace() -> None:
    harness, session = await open_consumer()
    reply = harness.client().request(running_info_request(jstackEnable="true"), 5)
    nonce = (await session.read_command()).print_thread_stack_trace_command.nonce
    status = Status(code=Code.UNSUPPORTED, message="C# cannot")
    session.send(TelemetryCommand(status=status, thread_stack_trace=ThreadStackTrace(nonce=nonce)))
    assert orjson.loads((await reply).body)["jstack"] == "UNSUPPORTED: C# cannot"


# CONSUME_MESSAGE_DIRECTLY.


async def verify(status: Status, answer: str = "verify_message_result") -> RemotingCommand:
    """Return the reply of CONSUME_MESSAGE_DIRECTLY if the client answers with this status."""
    harness, session = await open_consumer()
    reply = harness.client().request(consume_request(), 5)
    command = (await session.read_command()).verify_message_command
    assert (command.message.body, command.message.system_properties.message_id) == (b"body", "id-5")
    if answer == "verify_message_result":
        session.send(TelemetryCommand(status=status, verify_message_result=VerifyMessageResult(nonce=command.nonce)))
    else:
        session.send(TelemetryCommand(status=status, verify_message_command=VerifyMessageCommand(nonce=command.nonce)))
    return await reply


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
    ],
)
async def test_consume_result_follows_the_status_of_the_client(code: Code, result: str) -> None:
    reply = await verify(Status(code=code, message="remark"))
    body = orjson.loads(reply.body)
    assert (reply.code, body["consumeResult"], body["remark"]) == (0, result, "remark")
    assert (body["order"], body["autoCommit"]) == (False, True)
    assert body["spentTimeMills"] >= 0


async def test_reply_of_the_node_client_may_be_a_verify_message_command() -> None:
    assert orjson.loads((await verify(Status(code=Code.OK), "reply")).body)["consumeResult"] == "CR_SUCCESS"


@pytest.mark.parametrize("code", [Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, Code.UNSUPPORTED, Code.NOT_IMPLEMENTED, 12345])
async def test_other_status_of_the_client_is_a_system_error(code: Any) -> None:
    reply = await verify(Status(code=code, message="no"))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None
    assert reply.remark.endswith(": no")


async def test_request_without_a_stream_fails_at_once() -> None:
    harness, session = await open_consumer()
    await session.disconnect()
    for command in (consume_request(), running_info_request(jstackEnable="true")):
        with pytest.raises(ConsumerNotOnline):
            await request(harness, command)


async def test_request_without_a_reply_times_out() -> None:
    harness, _ = await open_consumer()
    with pytest.raises(RequestTimeout):
        await request(harness, consume_request(), 0.01)


async def test_message_that_cannot_be_decoded_is_an_error() -> None:
    harness, _ = await open_consumer()
    with pytest.raises(BodyError):
        await request(harness, consume_request(b"garbage"))


# Other commands.


async def test_offset_requests_are_answered_without_the_client() -> None:
    harness, _ = await open_consumer()
    fields = {"topic": "orders", "group": "g"}
    reset = await request(harness, commands.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields))
    assert reset.code == ResponseCode.SUCCESS
    status = await request(harness, commands.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields))
    assert orjson.loads(status.body) == {"messageQueueTable": {}}


@pytest.mark.parametrize("code", [RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.CHECK_TRANSACTION_STATE, 99])
async def test_unsupported_request_is_rejected_and_unsupported_notice_ignored(code: int) -> None:
    harness, session = await open_consumer()
    with pytest.raises(UnsupportedRequest):
        await request(harness, commands.request(code, {}))
    # A oneway gets no reply.
    harness.client().oneway(commands.request(code, {}, oneway=True))
    assert session.received.empty()


async def test_group_change_is_not_delivered() -> None:
    harness, session = await open_consumer()
    notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    harness.client().oneway(notice)
    assert session.received.empty()


async def test_end_of_a_lite_subscription_is_delivered() -> None:
    harness, session = await open_consumer()
    fields = {"clientId": "c1", "consumerGroup": "g", "liteTopic": "l1"}
    notice = commands.request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, fields, oneway=True)
    harness.client().oneway(notice)
    assert (await session.read_command()).notify_unsubscribe_lite_command.lite_topic == "l1"
    await session.disconnect()
    harness.client().oneway(notice)
