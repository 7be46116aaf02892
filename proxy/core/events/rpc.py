"""Observations of gRPC calls, from the request and from the gateway's notes on the call."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest
from proxy.core.events import MAX_NAME_LENGTH, Observation, Observer, publish
from proxy.core.grpc_channel import GrpcChannel

_log = logging.getLogger("gantry.messaging")

# A client may send any delivery time; observers store milliseconds in 64 bits.
_MAX_DELAY_MS: Final = 2**53
# Codes that are no errors: they report success, or that nothing was found.
_OK: Final = frozenset({Code.OK, Code.MESSAGE_NOT_FOUND, Code.OFFSET_NOT_FOUND})
# Errors with which messages are stored, or some of them.
_STORED: Final = frozenset(
    {Code.MASTER_PERSISTENCE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT, Code.HA_NOT_AVAILABLE, Code.MULTIPLE_RESULTS}
)


class RpcObserver:
    """Makes an observation of each rpc that has ended, and calls the observers with it."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = observers

    def observe(self, name: str, call: Rpc, request: Any, code: int, started: float) -> None:
        """Implements `grpc_gateway.clients.rpc.Observer`."""
        try:
            observation = of_rpc(name, call, request, code, started, time.monotonic())
        except Exception:
            _log.exception("observing a request failed")
        else:
            publish(self._observers, observation)


def of_rpc(name: str, call: Rpc, request: Any, code: int, started: float, now: float) -> Observation:
    """Return the observation of an rpc that ended at `now` with this v2 code (0: cancelled, or without a status).

    `request` is None if the call ended before its request was read. Times are in seconds of `time.monotonic`.
    """
    client = call.client
    channel = client if isinstance(client, GrpcChannel) else None
    observation = Observation("grpc", name, code, code in _OK, call.peer, channel, started, now - started)
    observation.broker = call.broker
    observation.queue = call.queue
    observation.attempt = call.attempt
    observation.trace_id = call.trace_id
    observation.bytes_out = call.bytes_out
    if call.broker_seconds is not None:
        # Concurrent requests to several brokers add up to more than the latency.
        observation.broker_seconds = min(call.broker_seconds, observation.seconds)
    if observation.ok or code in _STORED:
        observation.messages = call.messages
    if call.topic is not None:
        observation.topic, observation.group, observation.bytes_in = call.topic, call.group, call.bytes_in
        key = call.key
        observation.key = None if key is None else key[:MAX_NAME_LENGTH]
    elif request is not None:
        _READERS[name](observation, request)
    return observation


def _read_send(observation: Observation, request: SendMessageRequest) -> None:
    messages = request.messages
    if not messages:
        return
    first = messages[0]
    observation.topic = first.topic.name[:MAX_NAME_LENGTH]
    observation.bytes_in = len(first.body) if len(messages) == 1 else sum(len(message.body) for message in messages)
    system = first.system_properties
    keys = system.keys
    observation.key = ((keys[0] if keys else "") or system.message_group)[:MAX_NAME_LENGTH] or None
    if system.HasField("delivery_timestamp"):
        ahead = validation.milliseconds(system.delivery_timestamp) - int(time.time() * 1000)
        observation.delay_ms = min(max(ahead, 0), _MAX_DELAY_MS)


def _read_queue(observation: Observation, request: Any) -> None:
    observation.topic = request.message_queue.topic.name[:MAX_NAME_LENGTH] or None
    observation.group = request.group.name[:MAX_NAME_LENGTH] or None


def _read_queue_topic(observation: Observation, request: Any) -> None:
    observation.topic = request.message_queue.topic.name[:MAX_NAME_LENGTH] or None


def _read_topic_and_group(observation: Observation, request: Any) -> None:
    observation.topic = request.topic.name[:MAX_NAME_LENGTH] or None
    observation.group = request.group.name[:MAX_NAME_LENGTH] or None


def _read_topic(observation: Observation, request: Any) -> None:
    observation.topic = request.topic.name[:MAX_NAME_LENGTH] or None


def _read_group(observation: Observation, request: Any) -> None:
    observation.group = request.group.name[:MAX_NAME_LENGTH] or None


_READERS: Final[dict[str, Callable[[Observation, Any], None]]] = {
    "QueryRoute": _read_topic,
    "SendMessage": _read_send,
    "EndTransaction": _read_topic,
    "RecallMessage": _read_topic,
    "QueryAssignment": _read_topic_and_group,
    "ReceiveMessage": _read_queue,
    "AckMessage": _read_topic_and_group,
    "ChangeInvisibleDuration": _read_topic_and_group,
    "ForwardMessageToDeadLetterQueue": _read_topic_and_group,
    "SyncLiteSubscription": _read_topic_and_group,
    "PullMessage": _read_queue,
    "UpdateOffset": _read_queue,
    "GetOffset": _read_queue,
    "QueryOffset": _read_queue_topic,
    "Heartbeat": _read_group,
    "NotifyClientTermination": _read_group,
}
