"""What settles a delivery: the commands that acknowledge it, hide it for longer, or put it in the dead letter queue."""

import asyncio
import logging

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.core import Core
from grpc_gateway.status import Refused, of_error, of_response, status
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from remoting import command as commands
from remoting import pop_offset_info
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.pop_offset_info import Retry

_log = logging.getLogger("gantry.grpc")

# The delay level that means the dead letter queue.
_DEAD_LETTER = "-1"
# As long as messages that somebody gives back stay invisible, in ms.
SOON = 1_000

# Consumers repeat whatever fails for ever, unless they are told that the handle is of no use. So that is what they
# are told of everything that no other try will change.
_PERMANENT = frozenset(
    (
        ResponseCode.NO_MESSAGE,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    )
)
# A broker that no longer has a message says SYSTEM_ERROR and this (SendMessageProcessor).
_VANISHED = "look message by offset failed"


def of_reply(reply: RemotingCommand) -> Status:
    """The status of a settlement that a broker has answered."""
    if reply.code in _PERMANENT or (reply.code == ResponseCode.SYSTEM_ERROR and _VANISHED in (reply.remark or "")):
        return status(Code.INVALID_RECEIPT_HANDLE, reply.remark or "the message is not there any more")
    return of_response(reply)


def of_failure(error: Exception) -> Status:
    """The status of a settlement that failed."""
    if isinstance(error, RemotingError) and error.code in _PERMANENT:
        return status(Code.INVALID_RECEIPT_HANDLE, str(error))
    return of_error(error)


def ack(group: str, topic: str, handle: ReceiptHandle, lite_topic: str = "") -> RemotingCommand:
    """ACK_MESSAGE of one delivery; `topic` is the one that was asked for."""
    return commands.request(RequestCode.ACK_MESSAGE, _fields(group, topic, handle, lite_topic))


def change(
    group: str, topic: str, handle: ReceiptHandle, invisible: int, lite_topic: str = "", suspend: bool = False
) -> RemotingCommand:
    """CHANGE_MESSAGE_INVISIBLETIME of one delivery: `invisible` ms from now.

    suspend: it shall not count as a delivery attempt (brokers from 5.5 on; older ones leave the field aside).
    """
    fields = _fields(group, topic, handle, lite_topic)
    fields["invisibleTime"] = str(invisible)
    if suspend:
        fields["suspend"] = "true"
    return commands.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)


def changed(handle: ReceiptHandle, reply: RemotingCommand) -> ReceiptHandle:
    """The new handle that a CHANGE_MESSAGE_INVISIBLETIME was answered with. Raises Refused, InvalidRequest."""
    pop_time = reply.integer("popTime")
    if pop_time <= 0:
        # So a broker answers where a message popped in order has been committed already.
        raise Refused(Code.INVALID_RECEIPT_HANDLE, "the message has been consumed already")
    return handle.changed(pop_time, reply.integer("invisibleTime"), reply.integer("reviveQid"))


def dead_letter(group: str, topic: str, handle: ReceiptHandle, message_id: str) -> RemotingCommand:
    """CONSUMER_SEND_MSG_BACK to the group's dead letter queue. The delivery has still to be acknowledged."""
    return commands.request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {
            "offset": str(handle.commit_log_offset),
            "group": group,
            "delayLevel": _DEAD_LETTER,
            "originMsgId": message_id,
            "originTopic": real_topic(group, topic, handle),
            "maxReconsumeTimes": "0",
            "bname": handle.broker_name,
        },
    )


def real_topic(group: str, topic: str, handle: ReceiptHandle) -> str:
    """The topic a delivery came from: the one that was asked for, or the group's retry topic."""
    return topic if handle.retry == "0" else pop_offset_info.real_topic(topic, group, Retry(handle.retry))


def _fields(group: str, topic: str, handle: ReceiptHandle, lite_topic: str) -> dict[str, str]:
    fields = {
        "consumerGroup": group,
        "topic": real_topic(group, topic, handle),
        "queueId": str(handle.queue_id),
        "extraInfo": handle.text,
        "offset": str(handle.queue_offset),
        "bname": handle.broker_name,
    }
    if lite_topic:
        fields["liteTopic"] = lite_topic
    return fields


def quietly(core: Core, client: Client, command: RemotingCommand) -> None:
    """Have a command served whose outcome nobody waits for: should it fail, the message comes again."""
    try:
        reply = core.handle(client, command)
    except RemotingError as error:
        _log.debug("%r was not served: %s", command, error)
        return
    if reply is not None:
        reply.add_done_callback(_noted)


def _noted(reply: "asyncio.Future[RemotingCommand]") -> None:
    if not reply.cancelled() and (error := reply.exception()) is not None:
        _log.debug("a settlement was not served: %s", error)
