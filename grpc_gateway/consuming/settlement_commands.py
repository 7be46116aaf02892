"""Commands that settle a delivery: acknowledge it, change its invisible duration, or send it to the dead letter queue.

`topic` is the topic of the receive, also for a delivery from the group's retry topic.
"""

import asyncio
import logging
from typing import Final

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.core import Core
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import command as commands
from remoting import pop_offset_info
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.pop_offset_info import Retry

_log = logging.getLogger("gantry.grpc")

# For every acknowledgement: reading a member from its enum is slow.
_ACK: Final = int(RequestCode.ACK_MESSAGE)
# Delay level of the dead letter queue.
_DEAD_LETTER_LEVEL: Final = "-1"
# Invisible duration of a delivery that is returned to the broker, in ms.
RETURN_DELAY: Final = 1_000


def ack(group: str, topic: str, handle: ReceiptHandle, lite_topic: str = "") -> RemotingCommand:
    """Return the ACK_MESSAGE of one delivery."""
    return commands.request(_ACK, _fields(group, topic, handle, lite_topic))


def change_invisible_duration(
    group: str, topic: str, handle: ReceiptHandle, invisible: int, lite_topic: str = "", suspend: bool = False
) -> RemotingCommand:
    """Return the CHANGE_MESSAGE_INVISIBLETIME of one delivery.

    invisible: ms from now. suspend: the delivery does not count as an attempt (brokers since 5.5, others ignore it).
    """
    fields = _fields(group, topic, handle, lite_topic)
    fields["invisibleTime"] = str(invisible)
    if suspend:
        fields["suspend"] = "true"
    return commands.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)


def changed_handle(handle: ReceiptHandle, reply: RemotingCommand) -> ReceiptHandle:
    """Return the new handle from the reply to CHANGE_MESSAGE_INVISIBLETIME. Raises Refused, InvalidRequest."""
    pop_time = reply.integer("popTime")
    if pop_time <= 0:
        # Brokers return no time if a message popped in order has been committed.
        raise Refused(Code.INVALID_RECEIPT_HANDLE, "INVALID_RECEIPT_HANDLE: the message has been consumed already")
    return handle.changed(pop_time, reply.integer("invisibleTime"), reply.integer("reviveQid"))


def dead_letter(group: str, topic: str, handle: ReceiptHandle, message_id: str) -> RemotingCommand:
    """Return the CONSUMER_SEND_MSG_BACK to the group's dead letter queue; acknowledge the delivery after it."""
    return commands.request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {
            "offset": str(handle.commit_log_offset),
            "group": group,
            "delayLevel": _DEAD_LETTER_LEVEL,
            "originMsgId": message_id,
            "originTopic": source_topic(group, topic, handle),
            "maxReconsumeTimes": "0",
            "bname": handle.broker_name,
        },
    )


def source_topic(group: str, topic: str, handle: ReceiptHandle) -> str:
    """Return the topic that stores a delivery: the received topic, or the group's retry topic."""
    return topic if handle.retry == "0" else pop_offset_info.real_topic(topic, group, Retry(handle.retry))


def _fields(group: str, topic: str, handle: ReceiptHandle, lite_topic: str) -> dict[str, str]:
    fields = {
        "consumerGroup": group,
        "topic": source_topic(group, topic, handle),
        "queueId": str(handle.queue_id),
        "extraInfo": handle.text,
        "offset": str(handle.queue_offset),
        "bname": handle.broker_name,
    }
    if lite_topic:
        fields["liteTopic"] = lite_topic
    return fields


def send_in_background(core: Core, client: Client, command: RemotingCommand) -> None:
    """Send a settlement without waiting for its result; the message is redelivered if it fails."""
    try:
        reply = core.handle(client, command)
    except RemotingError as error:
        _log.debug("%r failed: %s", command, error)
        return
    if reply is not None:
        reply.add_done_callback(_log_error)


def _log_error(reply: "asyncio.Future[RemotingCommand]") -> None:
    if not reply.cancelled() and (error := reply.exception()) is not None:
        _log.debug("a settlement in the background failed: %s", error)
