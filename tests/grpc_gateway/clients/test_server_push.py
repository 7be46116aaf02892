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
from tests.grpc_gateway.kit import consumer_settings, stored
from tests.grpc_gateway.talk import Stage, Talk

pytestmark = pytest.mark.anyio

CONSUME = RequestCode.CONSUME_MESSAGE_DIRECTLY


async def consumer() -> tuple[Stage, Talk]:
    stage = Stage()
    return stage, await stage.talk(consumer_settings(expression="a||b"))


def info(**fields: str) -> RemotingCommand:
    return commands.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c1", **fields})


def consume(body: bytes | None = None) -> RemotingCommand:
    data = messages.encode_message(stored(5)) if body is None else body
    return commands.request(CONSUME, {"consumerGroup": "g", "clientId": "c1"}, data)


async def answered(stage: Stage, command: RemotingCommand, timeout: float = 5) -> RemotingCommand:
    return await stage.client().request(command, timeout)


# Running info.


async def test_what_is_known_of_a_client_needs_no_stream() -> None:
    stage, talk = await consumer()
    await talk.broken()
    body = orjson.loads((await answered(stage, info())).body)
    # The fields of RocketMQ's ConsumerRunningInfo, which its tools read without looking.
    assert body["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert int(body["properties"]["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
    assert body["properties"]["PROP_CLIENT_VERSION"] == "5.0.7"
    (subscription,) = body["subscriptionSet"]
    assert (subscription["topic"], subscription["subString"]) == ("orders", "a||b")
    assert (body["mqTable"], body["mqPopTable"], body["statusTable"]) == ({}, {}, {})
    assert "jstack" not in body


async def test_its_threads_are_its_own_to_tell() -> None:
    stage, talk = await consumer()
    question = stage.client().request(info(jstackEnable="true"), 5)
    nonce = (await talk.told()).print_thread_stack_trace_command.nonce
    trace = ThreadStackTrace(nonce=nonce, thread_stack_trace="main at rest")
    talk.send(TelemetryCommand(status=Status(code=Code.OK), thread_stack_trace=trace))
    assert orjson.loads((await question).body)["jstack"] == "main at rest"


async def test_a_client_may_not_know_its_threads() -> None:
    stage, talk = await consumer()
    question = stage.client().request(info(jstackEnable="true"), 5)
    nonce = (await talk.told()).print_thread_stack_trace_command.nonce
    status = Status(code=Code.UNSUPPORTED, message="C# cannot")
    talk.send(TelemetryCommand(status=status, thread_stack_trace=ThreadStackTrace(nonce=nonce)))
    assert orjson.loads((await question).body)["jstack"] == "UNSUPPORTED: C# cannot"


# Consuming directly.


async def verify(status: Status, answer: str = "verify_message_result") -> RemotingCommand:
    """What a tool is told when the client answers with this status."""
    stage, talk = await consumer()
    question = stage.client().request(consume(), 5)
    command = (await talk.told()).verify_message_command
    assert (command.message.body, command.message.system_properties.message_id) == (b"body", "id-5")
    if answer == "verify_message_result":
        talk.send(TelemetryCommand(status=status, verify_message_result=VerifyMessageResult(nonce=command.nonce)))
    else:
        talk.send(TelemetryCommand(status=status, verify_message_command=VerifyMessageCommand(nonce=command.nonce)))
    return await question


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
    ],
)
async def test_what_became_of_a_message(code: Code, result: str) -> None:
    reply = await verify(Status(code=code, message="said so"))
    body = orjson.loads(reply.body)
    assert (reply.code, body["consumeResult"], body["remark"]) == (0, result, "said so")
    assert (body["order"], body["autoCommit"]) == (False, True)
    assert body["spentTimeMills"] >= 0


async def test_the_node_client_answers_with_the_question() -> None:
    assert orjson.loads((await verify(Status(code=Code.OK), "question")).body)["consumeResult"] == "CR_SUCCESS"


@pytest.mark.parametrize("code", [Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, Code.UNSUPPORTED, Code.NOT_IMPLEMENTED, 12345])
async def test_what_is_no_result_is_an_error(code: Any) -> None:
    reply = await verify(Status(code=code, message="no"))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None
    assert reply.remark.endswith(": no")


async def test_without_a_stream_it_fails_at_once() -> None:
    stage, talk = await consumer()
    await talk.broken()
    for command in (consume(), info(jstackEnable="true")):
        with pytest.raises(ConsumerNotOnline):
            await answered(stage, command)


async def test_a_client_that_says_nothing_is_not_waited_for_for_ever() -> None:
    stage, _ = await consumer()
    with pytest.raises(RequestTimeout):
        await answered(stage, consume(), 0.01)


async def test_a_message_that_cannot_be_read_is_the_tools_mistake() -> None:
    stage, _ = await consumer()
    with pytest.raises(BodyError):
        await answered(stage, consume(b"garbage"))


# Everything else.


async def test_offsets_are_the_brokers() -> None:
    stage, _ = await consumer()
    fields = {"topic": "orders", "group": "g"}
    reset = await answered(stage, commands.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields))
    assert reset.code == ResponseCode.SUCCESS
    status = await answered(stage, commands.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields))
    assert orjson.loads(status.body) == {"messageQueueTable": {}}


@pytest.mark.parametrize("code", [RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.CHECK_TRANSACTION_STATE, 99])
async def test_what_means_nothing_to_a_grpc_client_is_said_to(code: int) -> None:
    stage, talk = await consumer()
    with pytest.raises(UnsupportedRequest):
        await answered(stage, commands.request(code, {}))
    # Where no answer is wanted, none is given.
    stage.client().oneway(commands.request(code, {}, oneway=True))
    assert talk.got.empty()


async def test_changes_of_the_group_are_not_passed_on() -> None:
    stage, talk = await consumer()
    notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    stage.client().oneway(notice)
    assert talk.got.empty()


async def test_the_end_of_a_lite_subscription_is_told() -> None:
    stage, talk = await consumer()
    fields = {"clientId": "c1", "consumerGroup": "g", "liteTopic": "l1"}
    notice = commands.request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, fields, oneway=True)
    stage.client().oneway(notice)
    assert (await talk.told()).notify_unsubscribe_lite_command.lite_topic == "l1"
    await talk.broken()
    stage.client().oneway(notice)
