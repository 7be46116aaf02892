"""What is observed of an rpc: what its request says, and what the gateway noted of it on the way."""

import time
from collections.abc import Callable
from typing import Any

from grpc_gateway import validation
from grpc_gateway.call import Call
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest
from proxy.core.events import MAX_NAME_LENGTH, Observation
from proxy.core.grpc_channel import GrpcChannel

# A client may name any time, and what is shown of it are milliseconds of 64 bits.
_FURTHEST = 2**53
# The answer says that there is nothing, not that something went wrong.
_OK = frozenset({Code.OK, Code.MESSAGE_NOT_FOUND, Code.OFFSET_NOT_FOUND})


def of_rpc(name: str, call: Call, request: Any, code: int, started: float, now: float) -> Observation:
    """The observation of an rpc that ended now with this v2 code (0: the client gave it up, or saw no status).

    `request` is None where there was none to look at.
    """
    client = call.client
    channel = client if isinstance(client, GrpcChannel) else None
    seen = Observation("grpc", name, code, code in _OK, call.peer, channel, started, now - started)
    seen.broker = call.broker
    seen.queue = call.queue
    seen.attempt = call.attempt
    seen.trace_id = call.trace_id
    seen.bytes_out = call.bytes_out
    if call.broker_seconds is not None:
        # Brokers asked side by side take longer than all together.
        seen.broker_seconds = min(call.broker_seconds, seen.seconds)
    if seen.ok:
        seen.messages = call.messages
    if request is not None:
        _LOOKS[name](seen, request)
    return seen


def _send(seen: Observation, request: SendMessageRequest) -> None:
    messages = request.messages
    if not messages:
        return
    first = messages[0]
    seen.topic = first.topic.name[:MAX_NAME_LENGTH]
    seen.bytes_in = len(first.body) if len(messages) == 1 else sum(len(message.body) for message in messages)
    system = first.system_properties
    seen.key = (next(iter(system.keys), "") or system.message_group)[:MAX_NAME_LENGTH] or None
    if system.HasField("delivery_timestamp"):
        ahead = validation.milliseconds(system.delivery_timestamp) - int(time.time() * 1000)
        seen.delay_ms = min(max(ahead, 0), _FURTHEST)


def _queue(seen: Observation, request: Any) -> None:
    seen.topic = request.message_queue.topic.name[:MAX_NAME_LENGTH] or None
    seen.group = request.group.name[:MAX_NAME_LENGTH] or None


def _queue_alone(seen: Observation, request: Any) -> None:
    seen.topic = request.message_queue.topic.name[:MAX_NAME_LENGTH] or None


def _topic_and_group(seen: Observation, request: Any) -> None:
    seen.topic = request.topic.name[:MAX_NAME_LENGTH] or None
    seen.group = request.group.name[:MAX_NAME_LENGTH] or None


def _topic(seen: Observation, request: Any) -> None:
    seen.topic = request.topic.name[:MAX_NAME_LENGTH] or None


def _group(seen: Observation, request: Any) -> None:
    seen.group = request.group.name[:MAX_NAME_LENGTH] or None


_LOOKS: dict[str, Callable[[Observation, Any], None]] = {
    "QueryRoute": _topic,
    "SendMessage": _send,
    "EndTransaction": _topic,
    "RecallMessage": _topic,
    "QueryAssignment": _topic_and_group,
    "ReceiveMessage": _queue,
    "AckMessage": _topic_and_group,
    "ChangeInvisibleDuration": _topic_and_group,
    "ForwardMessageToDeadLetterQueue": _topic_and_group,
    "SyncLiteSubscription": _topic_and_group,
    "PullMessage": _queue,
    "UpdateOffset": _queue,
    "GetOffset": _queue,
    "QueryOffset": _queue_alone,
    "Heartbeat": _group,
    "NotifyClientTermination": _group,
}
