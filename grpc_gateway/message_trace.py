"""Trace records of messages that gRPC clients send and consume.

The recorder wraps the functions that serve rpcs, so that rpcs without a trace cost nothing. The request id of a
consumption is derived from the place of the delivery, because an acknowledgement may reach another replica.
"""

import hashlib
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from grpc_gateway.clients.rpc import Rpc, Write
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.response_status import Refused
from grpc_gateway.unary import parsed
from grpc_gateway.wire_decoding import as_message
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message, MessageType
from remoting import message_trace
from remoting.message_trace import CONSUMED, FAILED, ConsumptionEnd, ConsumptionStart, Publication, Record

_Request = TypeVar("_Request", contravariant=True)
_Response = TypeVar("_Response")
# A function that serves a unary rpc; it may serialize its response.
Serve = Callable[[Rpc, _Request], Coroutine[Any, Any, _Response | bytes]]
Receive = Callable[[Rpc, pb.ReceiveMessageRequest, Write], Awaitable[None]]
Forward = Serve[pb.ForwardMessageToDeadLetterQueueRequest, pb.ForwardMessageToDeadLetterQueueResponse]
Change = Serve[pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse]

# Records that wait to be written, and their bytes; further ones are dropped.
_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 16 * 1024 * 1024
# Maximum characters of names and ids that a client gives: those of a refused request may be of any length.
_MAX_NAME = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REGION = "DefaultRegion"
# Ordinals of the Java client's MessageType; without an entry it is a normal message.
_KINDS = {MessageType.TRANSACTION: 1, MessageType.DELAY: 3, MessageType.FIFO: 4}


class MessageTrace:
    """Records of messages, until they are written. topic: the trace topic, whose own messages have no records.

    waiting: keys of a record's messages, and its text, encoded. waiting_bytes: the size of these. counts: records by
    outcome.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.waiting: deque[tuple[bytes, bytes]] = deque()
        self.waiting_bytes = 0
        self.counts: Counter[str] = Counter()

    def _add(self, topic: str, record: Record) -> None:
        if topic == self.topic:
            return
        names = _CONTROL.sub(" ", f"{record.message_id} {record.keys}").strip().encode()
        text = message_trace.encode(record).encode()
        size = len(names) + len(text)
        if len(self.waiting) >= _MAX_WAITING or self.waiting_bytes + size > _MAX_WAITING_BYTES:
            self.counts["dropped"] += 1
            return
        self.waiting.append((names, text))
        self.waiting_bytes += size

    def take(self) -> tuple[bytes, bytes]:
        """Remove the first waiting record; return its keys and its text."""
        names, text = self.waiting.popleft()
        self.waiting_bytes -= len(names) + len(text)
        return names, text

    # Publications.

    def sends(
        self, send: Serve[pb.SendMessageRequest, pb.SendMessageResponse]
    ) -> Serve[pb.SendMessageRequest, pb.SendMessageResponse]:
        """Return a function that serves a SendMessage, and records its messages.

        The fields of a message without an entry in the response may not have been checked: its tag and keys are not
        recorded.
        """

        async def traced(rpc: Rpc, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
            request = as_message(request)
            start = time.time()
            try:
                response: pb.SendMessageResponse = parsed(pb.SendMessageResponse, await send(rpc, request))
            except Exception:
                self._published(request.messages, (), start)
                raise
            self._published(request.messages, response.entries, start)
            return response

        return traced

    def _published(self, messages: Iterable[Message], entries: Iterable[pb.SendResultEntry], start: float) -> None:
        cost = round((time.time() - start) * 1000)
        outcomes = [entry.status.code == Code.OK for entry in entries]
        for number, message in enumerate(messages):
            topic, system = _name(message.topic.name), message.system_properties
            checked = number < len(outcomes)
            record = Publication(
                time=int(start * 1000),
                region=_REGION,
                group=topic,
                topic=topic,
                message_id=_name(system.message_id),
                tag=system.tag if checked else "",
                keys=" ".join(system.keys) if checked else "",
                store_host="",
                body_length=len(message.body),
                cost=cost,
                kind=_KINDS.get(system.message_type, 0),
                offset_message_id="",
                success=outcomes[number] if checked else False,
            )
            self._add(topic, record)

    # Consumptions.

    def receives(self, receive: Receive) -> Receive:
        """Return a function that serves a ReceiveMessage, and records the messages delivered."""

        async def traced(rpc: Rpc, request: pb.ReceiveMessageRequest, write: Write) -> None:
            async def write_traced(responses: list[bytes]) -> None:
                for data in responses:
                    response = pb.ReceiveMessageResponse.FromString(data)
                    if response.HasField("message"):
                        self._delivered(request.group.name, response.message)
                await write(responses)

            await receive(rpc, request, write_traced)

        return traced

    def _delivered(self, group: str, message: Message) -> None:
        system = message.system_properties
        topic = message.topic.name
        handle = ReceiptHandle.parse(system.receipt_handle)
        record = ConsumptionStart(
            time=int(time.time() * 1000),
            region=_REGION,
            group=group,
            request_id=_request_id(group, topic, handle),
            message_id=system.message_id,
            retries=max(system.delivery_attempt - 1, 0),
            keys=" ".join(system.keys),
        )
        self._add(topic, record)

    def acks(
        self, ack: Serve[pb.AckMessageRequest, pb.AckMessageResponse]
    ) -> Serve[pb.AckMessageRequest, pb.AckMessageResponse]:
        """Return a function that serves an AckMessage, and records the messages acknowledged."""

        async def traced(rpc: Rpc, request: pb.AckMessageRequest) -> pb.AckMessageResponse:
            request = as_message(request)
            response: pb.AckMessageResponse = parsed(pb.AckMessageResponse, await ack(rpc, request))
            for entry in response.entries:
                if entry.status.code == Code.OK:
                    self._ended(
                        request.group.name, request.topic.name, entry.message_id, entry.receipt_handle, CONSUMED
                    )
            return response

        return traced

    def dead_letters(self, forward: Forward) -> Forward:
        """Return a function that serves a ForwardMessageToDeadLetterQueue, and records the failed message."""

        async def traced(
            rpc: Rpc, request: pb.ForwardMessageToDeadLetterQueueRequest
        ) -> pb.ForwardMessageToDeadLetterQueueResponse:
            response: pb.ForwardMessageToDeadLetterQueueResponse = parsed(
                pb.ForwardMessageToDeadLetterQueueResponse, await forward(rpc, request)
            )
            if response.status.code == Code.OK:
                self._ended(request.group.name, request.topic.name, request.message_id, request.receipt_handle, FAILED)
            return response

        return traced

    def changes(self, change: Change, returns: Callable[[Rpc], bool]) -> Change:
        """Return a function that serves a ChangeInvisibleDuration, and records messages that a consumer returns.

        returns: whether a client returns failed messages by this rpc, as push consumers do.
        """

        async def traced(rpc: Rpc, request: pb.ChangeInvisibleDurationRequest) -> pb.ChangeInvisibleDurationResponse:
            response: pb.ChangeInvisibleDurationResponse = parsed(
                pb.ChangeInvisibleDurationResponse, await change(rpc, request)
            )
            if response.status.code == Code.OK and returns(rpc):
                self._ended(request.group.name, request.topic.name, request.message_id, request.receipt_handle, FAILED)
            return response

        return traced

    def _ended(self, group: str, topic: str, message_id: str, receipt_handle: str, code: int) -> None:
        try:
            handle = ReceiptHandle.parse(receipt_handle)
        except Refused:
            return
        now = int(time.time() * 1000)
        record = ConsumptionEnd(
            request_id=_request_id(group, topic, handle),
            message_id=_name(message_id),
            cost=max(now - handle.pop_time, 0),
            success=code == CONSUMED,
            keys="",
            code=code,
            time=now,
            group=group,
        )
        self._add(topic, record)


def _name(text: str) -> str:
    """Return a name or an id of a request as it is recorded."""
    return _CONTROL.sub("?", text[:_MAX_NAME])


def _request_id(group: str, topic: str, handle: ReceiptHandle) -> str:
    place = f"{group}\n{topic}\n{handle.broker_name}\n{handle.queue_id}\n{handle.queue_offset}\n{handle.retry}"
    return hashlib.blake2b(place.encode(), digest_size=16).hexdigest().upper()
