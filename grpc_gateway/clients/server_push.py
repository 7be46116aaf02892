"""Requests and notices of brokers and admin tools to a gRPC client.

A command becomes a telemetry command of the client's stream, or is answered from the state of the gateway.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from grpc_gateway.clients import heartbeat_data
from grpc_gateway.clients.client import Client
from grpc_gateway.message_decoding import from_stored
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

# ConsumeMessageDirectlyResult by the client's status code; any other code is an error.
_CONSUME_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class TelemetryPush:
    """Delivers commands over the client's telemetry stream."""

    async def request(self, client: Client, command: RemotingCommand, timeout: float) -> RemotingCommand:
        """Return the client's reply. Raises UnsupportedRequest, ConsumerNotOnline, RequestTimeout."""
        handler = _REQUEST_HANDLERS.get(command.code)
        if handler is None:
            raise UnsupportedRequest(f"request code {command.code} is not supported by gRPC clients")
        return await handler(client, command, timeout)

    def oneway(self, client: Client, command: RemotingCommand) -> None:
        """Deliver a notice; ignore a command that gRPC clients have no use for."""
        handler = _NOTICE_HANDLERS.get(command.code)
        if handler is not None:
            handler(client, command)


TELEMETRY_PUSH = TelemetryPush()


# Requests.


async def _running_info(client: Client, command: RemotingCommand, timeout: float) -> RemotingCommand:
    """GET_CONSUMER_RUNNING_INFO: answer from the state of the gateway; only stack traces come from the client."""
    info: dict[str, Any] = {
        "properties": {
            "PROP_CLIENT_VERSION": client.version,
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": heartbeat_data.CONSUME_TYPES.get(client.client_type, heartbeat_data.CONSUME_PASSIVELY),
            "PROP_CONSUMER_START_TIMESTAMP": str(client.created_at),
            "PROP_NAMESERVER_ADDR": "",
            "PROP_THREADPOOL_CORE_SIZE": "0",
        },
        "subscriptionSet": heartbeat_data.subscription_data(client),
        "mqTable": {},
        "mqPopTable": {},
        "statusTable": {},
        "userConsumerInfo": {},
    }
    if command.fields.get("jstackEnable") == "true":
        info["jstack"] = await _stack_trace(client, timeout)
    return commands.success(body=orjson.dumps(info))


async def _stack_trace(client: Client, timeout: float) -> str:
    answer = await _request(client, _print_stack_trace, timeout)
    if answer.status.code not in (Code.OK, Code.CODE_UNSPECIFIED):
        # Show the error in place of the trace.
        return _describe(answer.status)
    return answer.thread_stack_trace.thread_stack_trace


def _print_stack_trace(nonce: str) -> TelemetryCommand:
    return TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce))


async def _consume_directly(client: Client, command: RemotingCommand, timeout: float) -> RemotingCommand:
    """CONSUME_MESSAGE_DIRECTLY: have the client consume the message, and return the result."""
    stored = messages.decode_message(command.body)
    message = from_stored(stored, topic=stored.topic, delivery_attempt=stored.reconsume_times + 1)

    def verify(nonce: str) -> TelemetryCommand:
        return TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce=nonce, message=message))

    started = time.monotonic()
    answer = await _request(client, verify, timeout)
    result = _CONSUME_RESULTS.get(answer.status.code)
    if result is None:
        return commands.response(ResponseCode.SYSTEM_ERROR, remark=f"the client answered {_describe(answer.status)}")
    body = {
        "order": False,
        "autoCommit": True,
        "consumeResult": result,
        "remark": answer.status.message,
        "spentTimeMills": int((time.monotonic() - started) * 1000),
    }
    return commands.success(body=orjson.dumps(body))


async def _request(client: Client, make: Callable[[str], TelemetryCommand], timeout: float) -> TelemetryCommand:
    stream = client.stream
    if stream is None:
        raise ConsumerNotOnline(f"client {client.client_id} has no telemetry stream on this replica")
    return await stream.request(make, timeout)


async def _reset_offset(_: Client, __: RemotingCommand, ___: float) -> RemotingCommand:
    """RESET_CONSUMER_CLIENT_OFFSET: acknowledge; the broker has reset its offset, and gRPC clients keep none."""
    return commands.success()


async def _consumer_status(_: Client, __: RemotingCommand, ___: float) -> RemotingCommand:
    """GET_CONSUMER_STATUS_FROM_CLIENT: return no offsets, since gRPC clients keep none."""
    return commands.success(body=orjson.dumps({"messageQueueTable": {}}))


_RequestHandler = Callable[[Client, RemotingCommand, float], Awaitable[RemotingCommand]]
_REQUEST_HANDLERS: dict[int, _RequestHandler] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset_offset,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer_status,
}


# Notices. NOTIFY_CONSUMER_IDS_CHANGED is not delivered: clients query their assignments every few seconds.


def _unsubscribe_lite(client: Client, command: RemotingCommand) -> None:
    lite_topic = command.fields.get("liteTopic")
    stream = client.stream
    if lite_topic and stream is not None:
        notice = NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
        stream.write(TelemetryCommand(notify_unsubscribe_lite_command=notice))


_NOTICE_HANDLERS: dict[int, Callable[[Client, RemotingCommand], None]] = {
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: _unsubscribe_lite
}


def _describe(status: Status) -> str:
    name = Code.Name(status.code) if status.code in Code.values() else str(status.code)
    return f"{name}: {status.message}" if status.message else name


def request_nonce(command: TelemetryCommand) -> str | None:
    """Return the nonce of a request to a client; None for a command without one."""
    kind = command.WhichOneof("command")
    return None if kind is None else getattr(getattr(command, kind), "nonce", None)


def reply_nonce(command: TelemetryCommand) -> str | None:
    """Return the nonce of a client's reply; None for a command that is no reply."""
    kind = command.WhichOneof("command")
    return getattr(command, kind).nonce if kind in _REPLIES else None


# The Node client replies to a VerifyMessageCommand with another VerifyMessageCommand.
_REPLIES = frozenset({"thread_stack_trace", "verify_message_result", "verify_message_command"})
