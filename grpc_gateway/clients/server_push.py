"""What brokers and tools ask of a client: told by its telemetry stream, or answered for it."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson

from grpc_gateway.clients import subscriptions
from grpc_gateway.message import of_stored
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    NotifyUnsubscribeLiteCommand,
    PrintThreadStackTraceCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConsumerNotOnline, UnsupportedRequest

if TYPE_CHECKING:
    from grpc_gateway.clients.client import Client

# ConsumeMessageDirectlyResult by what the client says of the message. Everything else is no result.
_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


async def ask(client: "Client", command: RemotingCommand, timeout: float) -> RemotingCommand:
    """The client's answer. Raises UnsupportedRequest, ConsumerNotOnline, RequestTimeout."""
    question = _QUESTIONS.get(command.code)
    if question is None:
        raise UnsupportedRequest(f"request code {command.code} means nothing to a gRPC client")
    return await question(client, command, timeout)


def tell(client: "Client", command: RemotingCommand) -> None:
    """Tell the client, where that means something to it."""
    notice = _NOTICES.get(command.code)
    if notice is not None:
        notice(client, command)


# Questions.


async def _running_info(client: "Client", command: RemotingCommand, timeout: float) -> RemotingCommand:
    """GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo, as far as it is known; its threads are the client's to tell."""
    info: dict[str, Any] = {
        "properties": {
            "PROP_CLIENT_VERSION": client.version,
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": subscriptions.CONSUME_TYPES.get(client.kind, subscriptions.PASSIVELY),
            "PROP_CONSUMER_START_TIMESTAMP": str(client.known_since),
            "PROP_NAMESERVER_ADDR": "",
            "PROP_THREADPOOL_CORE_SIZE": "0",
        },
        "subscriptionSet": subscriptions.of_client(client),
        "mqTable": {},
        "mqPopTable": {},
        "statusTable": {},
        "userConsumerInfo": {},
    }
    if command.fields.get("jstackEnable") == "true":
        info["jstack"] = await _stack_trace(client, timeout)
    return commands.success(body=orjson.dumps(info))


async def _stack_trace(client: "Client", timeout: float) -> str:
    answer = await _asked(client, _print_stack_trace, timeout)
    if answer.status.code not in (Code.OK, Code.CODE_UNSPECIFIED):
        # Worth reading in the place where the trace would be.
        return _said(answer.status)
    return answer.thread_stack_trace.thread_stack_trace


def _print_stack_trace(nonce: str) -> TelemetryCommand:
    return TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce))


async def _consume(client: "Client", command: RemotingCommand, timeout: float) -> RemotingCommand:
    """CONSUME_MESSAGE_DIRECTLY: the client gives the message to its listener and says what became of it."""
    stored = messages.decode_message(command.body)
    message = of_stored(stored, topic=stored.topic, delivery_attempt=stored.reconsume_times + 1)

    def verify(nonce: str) -> TelemetryCommand:
        return TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce=nonce, message=message))

    started = time.monotonic()
    answer = await _asked(client, verify, timeout)
    result = _RESULTS.get(answer.status.code)
    if result is None:
        return commands.response(ResponseCode.SYSTEM_ERROR, remark=f"the client answered {_said(answer.status)}")
    body = {
        "order": False,
        "autoCommit": True,
        "consumeResult": result,
        "remark": answer.status.message,
        "spentTimeMills": int((time.monotonic() - started) * 1000),
    }
    return commands.success(body=orjson.dumps(body))


async def _asked(client: "Client", make: Callable[[str], TelemetryCommand], timeout: float) -> TelemetryCommand:
    stream = client.stream
    if stream is None:
        raise ConsumerNotOnline(f"the client {client.client_id} has no telemetry stream here now")
    return await stream.ask(make, timeout)


async def _reset(_: "Client", __: RemotingCommand, ___: float) -> RemotingCommand:
    """RESET_CONSUMER_CLIENT_OFFSET: the broker has it already; a gRPC client keeps no offsets."""
    return commands.success()


async def _consumer_status(_: "Client", __: RemotingCommand, ___: float) -> RemotingCommand:
    """GET_CONSUMER_STATUS_FROM_CLIENT: the offsets that a client keeps, which are none."""
    return commands.success(body=orjson.dumps({"messageQueueTable": {}}))


_Question = Callable[["Client", RemotingCommand, float], Awaitable[RemotingCommand]]
_QUESTIONS: dict[int, _Question] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer_status,
}


# Notices. NOTIFY_CONSUMER_IDS_CHANGED is none: clients ask for their assignments every few seconds.


def _unsubscribe_lite(client: "Client", command: RemotingCommand) -> None:
    lite_topic = command.fields.get("liteTopic")
    stream = client.stream
    if lite_topic and stream is not None:
        notice = NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
        stream.write(TelemetryCommand(notify_unsubscribe_lite_command=notice))


_NOTICES: dict[int, Callable[["Client", RemotingCommand], None]] = {
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: _unsubscribe_lite
}


def _said(status: Status) -> str:
    name = Code.Name(status.code) if status.code in Code.values() else str(status.code)
    return f"{name}: {status.message}" if status.message else name


def answer_of(command: TelemetryCommand) -> str | None:
    """The nonce of a client's answer; None for what is no answer."""
    kind = command.WhichOneof("command")
    return getattr(command, kind).nonce if kind in _ANSWERS else None


# The Node client answers a VerifyMessageCommand with another one.
_ANSWERS = frozenset({"thread_stack_trace", "verify_message_result", "verify_message_command"})
