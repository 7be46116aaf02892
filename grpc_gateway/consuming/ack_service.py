"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: settlement of deliveries.

A consumer repeats an acknowledgement or a change until its status is OK or INVALID_RECEIPT_HANDLE, and a dead letter
until it is OK (ProcessQueueImpl of the Java client), so a dead letter is stored even after its delivery has expired.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.consuming import settlement_commands
from grpc_gateway.consuming.ack_request import AckEntry, AckRequest, ack_entry
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.recent_acks import RecentAcks
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.consuming.settlement_status import settlement_error_status, settlement_status
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import OK, Refused, combined_status
from grpc_gateway.wire_encoding import LengthDelimited
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from remoting import command as commands
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

# For every acknowledgement: reading a member from its enum is slow.
_OK: Final = int(Code.OK)
_NOT_SUPPORTED: Final = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
# The response to one acknowledgement is encoded without its objects.
_STATUS_OK: Final = AckMessageResponse(status=OK).SerializeToString()
_ENTRIES: Final = LengthDelimited(AckMessageResponse.DESCRIPTOR.fields_by_name["entries"].number)
_RESULT: Final = AckMessageResultEntry.DESCRIPTOR.fields_by_name
_MESSAGE_ID: Final = LengthDelimited(_RESULT["message_id"].number)
_RECEIPT_HANDLE: Final = LengthDelimited(_RESULT["receipt_handle"].number)
_ENTRY_OK: Final = AckMessageResultEntry(status=OK).SerializeToString()
# Offsets that a checkpoint of a broker can span; a handle with more is forged.
_MAX_CHECKPOINT_SPAN: Final = 4_096
# Entries per request, since each may be a request to a broker.
_MAX_ENTRIES = 1_024


class _Acknowledgement:
    """One entry of an AckMessage: the consumer's handle, and the newest handle, which is sent to the broker."""

    __slots__ = ("handle", "lite_topic", "newest", "status")

    def __init__(self, lite_topic: str, handle: ReceiptHandle, newest: ReceiptHandle) -> None:
        self.lite_topic = lite_topic
        self.handle = handle
        self.newest = newest
        self.status = OK


def _acknowledged(entry: AckEntry) -> bytes:
    """Return the serialized response to an acknowledgement that has succeeded."""
    result = _MESSAGE_ID.text(entry.message_id) + _RECEIPT_HANDLE.text(entry.receipt_handle) + _ENTRY_OK
    return _STATUS_OK + _ENTRIES.message(result)


class AckService:
    """Serves acknowledgements, changes of the invisible duration, and dead letters."""

    def __init__(self, core: Core, renewal: Renewal, options: GatewayOptions, clocks: BrokerClocks) -> None:
        self._core = core
        self._renewal = renewal
        self._options = options
        self._clocks = clocks
        self._acknowledged = RecentAcks()

    async def ack(self, rpc: Rpc, request: AckRequest | AckMessageRequest) -> AckMessageResponse | bytes:
        """Acknowledge deliveries, with a status for each. Return a response, or a serialized one. Raises Refused."""
        if isinstance(request, AckRequest):
            topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
            entries = [request.entry]
        else:
            topic, group = validation.topic(request.topic), validation.group(request.group)
            count = len(request.entries)
            if count > _MAX_ENTRIES:
                raise Refused(Code.BAD_REQUEST, f"the request has {count} entries; the maximum is {_MAX_ENTRIES}")
            entries = [ack_entry(entry) for entry in request.entries]
        rpc.topic, rpc.group = topic, group
        if len(entries) == 1:
            entry = entries[0]
            status = await self._ack_one(rpc, group, topic, entry)
            if status is OK:
                rpc.messages = 1
                return _acknowledged(entry)
            statuses = [status]
        else:
            statuses = await self._ack_many(rpc, group, topic, entries)
        rpc.messages = sum(status.code == _OK for status in statuses)
        return AckMessageResponse(
            status=combined_status(statuses),
            entries=[
                AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
                for entry, status in zip(entries, statuses, strict=True)
            ],
        )

    async def _ack_one(self, rpc: Rpc, group: str, topic: str, entry: AckEntry) -> Status:
        try:
            item = await self._acknowledgement(group, entry)
        except Refused as error:
            return settlement_error_status(error)
        await self._send(rpc, group, topic, [item], _ack_command(group, topic, item))
        return item.status

    async def _ack_many(self, rpc: Rpc, group: str, topic: str, entries: Sequence[AckEntry]) -> list[Status]:
        results: list[_Acknowledgement | Status] = []
        try:
            for entry in entries:
                try:
                    results.append(await self._acknowledgement(group, entry))
                except Refused as error:
                    results.append(settlement_error_status(error))
        except BaseException:
            for result in results:
                if isinstance(result, _Acknowledgement):
                    self._finish(group, topic, result.handle, result.newest, None)
            raise
        single: list[_Acknowledgement] = []
        batches: dict[str, list[_Acknowledgement]] = {}
        for result in results:
            if isinstance(result, _Acknowledgement):
                if self._can_batch(topic, result):
                    batches.setdefault(result.newest.broker_name, []).append(result)
                else:
                    single.append(result)
        await asyncio.gather(
            *(self._send(rpc, group, topic, [item], _ack_command(group, topic, item)) for item in single),
            *(self._send_batch(rpc, group, topic, broker, items) for broker, items in batches.items()),
        )
        return [result.status if isinstance(result, _Acknowledgement) else result for result in results]

    def _can_batch(self, topic: str, item: _Acknowledgement) -> bool:
        """Return whether a broker reports the same status for an acknowledgement in a batch as on its own.

        The reply to a batch confirms only that it was decoded. A broker silently skips acknowledgements that it cannot
        use: those of wrong queues, and some of deliveries in order.
        """
        handle = item.newest
        span = handle.queue_offset - handle.start_offset
        if handle.is_order or item.lite_topic or not 0 <= span < _MAX_CHECKPOINT_SPAN:
            return False
        route = self._core.cached_route(topic)
        return route is not None and any(
            handle.broker_name == queues.broker and handle.queue_id < queues.read for queues in route.queues
        )

    async def _send_batch(self, rpc: Rpc, group: str, topic: str, broker: str, items: list[_Acknowledgement]) -> None:
        if len(items) > 1 and await self._send(rpc, group, topic, items, _batch_command(group, topic, broker, items)):
            return
        await asyncio.gather(
            *(self._send(rpc, group, topic, [item], _ack_command(group, topic, item)) for item in items)
        )

    async def _send(
        self, rpc: Rpc, group: str, topic: str, items: Sequence[_Acknowledgement], command: RemotingCommand
    ) -> bool:
        """Send acknowledgements to their broker, and set their status.

        Return False, without a status, if the command is a batch and the broker is too old for batches.
        """
        try:
            reply = await rpc.request(self._core, command, *_target(items))
            if len(items) > 1 and reply.code == _NOT_SUPPORTED:
                return False
            status = settlement_status(reply)
        except RemotingError as error:
            status = settlement_error_status(error)
        except BaseException:
            for item in items:
                self._finish(group, topic, item.handle, item.newest, None)
            raise
        for item in items:
            item.status = status
            if status.code == _OK:
                self._acknowledged.add(group, item.handle.text)
            self._finish(group, topic, item.handle, item.newest, status)
        return True

    async def change_invisible_duration(
        self, rpc: Rpc, request: ChangeInvisibleDurationRequest
    ) -> ChangeInvisibleDurationResponse:
        """Change a delivery's invisible duration, and return its new handle. Raises Refused.

        A duration of 0 makes the message visible at once. A delivery that was acknowledged at this replica is refused
        with INVALID_RECEIPT_HANDLE, although brokers accept it.
        """
        topic, group = validation.topic(request.topic), validation.group(request.group)
        invisible = validation.invisible_duration(request.invisible_duration, 0, self._options)
        lite_topic = self._lite_topic(request)
        handle = ReceiptHandle.parse(request.receipt_handle)
        if (group, handle.text) in self._acknowledged:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "INVALID_RECEIPT_HANDLE: the message has been consumed already")
        used = await self._claim_newest(group, handle)
        command = settlement_commands.change_invisible_duration(
            group, topic, used, invisible, lite_topic, request.suspend
        )
        status: Status | None = None
        newest = used
        try:
            reply = await rpc.request(self._core, command, used.broker_name, used.queue_id)
            status = settlement_status(reply)
            if status.code == Code.OK:
                newest = settlement_commands.changed_handle(used, reply)
        except (RemotingError, Refused) as error:
            status = settlement_error_status(error)
        finally:
            self._finish(group, topic, handle, used, status, invisible)
        rpc.messages = 1
        # Also after an error, since some clients replace their handle by the one of the response.
        return ChangeInvisibleDurationResponse(status=status, receipt_handle=newest.text)

    async def forward_to_dead_letter_queue(
        self, rpc: Rpc, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Put a message in the group's dead letter queue, then acknowledge its delivery. Raises Refused.

        The delivery may have expired: the official proxy (ConsumerProcessor.forwardMessageToDeadLetterQueue) checks
        only that the handle contains the commit log offset, by which the broker finds the message.
        """
        topic, group = validation.topic(request.topic), validation.group(request.group)
        lite_topic = self._lite_topic(request)
        handle = ReceiptHandle.parse(request.receipt_handle)
        if handle.commit_log_offset < 0:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle does not contain the commit log offset")
        used = await self._claim(group, handle)
        status: Status | None = None
        try:
            command = settlement_commands.dead_letter(group, topic, used, request.message_id)
            status = settlement_status(await rpc.request(self._core, command, used.broker_name, used.queue_id))
        except RemotingError as error:
            status = settlement_error_status(error)
        finally:
            if status is not None and status.code == Code.OK:
                settlement_commands.send_in_background(
                    self._core, rpc.client, settlement_commands.ack(group, topic, used, lite_topic)
                )
            self._finish(group, topic, handle, used, status)
        rpc.messages = 1
        return ForwardMessageToDeadLetterQueueResponse(status=status)

    # Common to all settlements.

    def _lite_topic(
        self, request: AckEntry | ChangeInvisibleDurationRequest | ForwardMessageToDeadLetterQueueRequest
    ) -> str:
        return validation.lite_topic(request.lite_topic, self._options) if request.lite_topic else ""

    async def _acknowledgement(self, group: str, entry: AckEntry) -> _Acknowledgement:
        """Return the acknowledgement of an entry. Raises Refused."""
        handle = ReceiptHandle.parse(entry.receipt_handle)
        return _Acknowledgement(self._lite_topic(entry), handle, await self._claim_newest(group, handle))

    async def _claim(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """Return the newest handle of a delivery, which may have expired, and suspend its renewal."""
        return await self._renewal.claim(group, handle) if handle.renewal_id else handle

    async def _claim_newest(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """Return the newest handle of a delivery, and suspend its renewal. Raises Refused if the handle has expired."""
        newest = await self._claim(group, handle)
        if self._clocks.has_passed(newest.broker_name, newest.visible_at):
            if handle.renewal_id:
                self._renewal.unclaim(group, handle)
            raise Refused(
                Code.INVALID_RECEIPT_HANDLE,
                "INVALID_RECEIPT_HANDLE: receipt handle is expired",
            )
        return newest

    def _finish(
        self,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        used: ReceiptHandle,
        status: Status | None,
        invisible: int | None = None,
    ) -> None:
        """End the claim of a renewed delivery. status: None if the rpc was cancelled."""
        if not handle.renewal_id:
            return
        if status is not None and status.code in _FINAL_CODES:
            self._renewal.settled(group, topic, handle, used, invisible)
        else:
            self._renewal.unclaim(group, handle)


# Codes after which the delivery is not renewed: it is settled, or no settlement of it can succeed.
_FINAL_CODES: Final = (Code.OK, Code.INVALID_RECEIPT_HANDLE)


def _ack_command(group: str, topic: str, item: _Acknowledgement) -> RemotingCommand:
    return settlement_commands.ack(group, topic, item.newest, item.lite_topic)


def _target(items: Sequence[_Acknowledgement]) -> tuple[str, int]:
    """Return the broker, and the queue id of a single acknowledgement or else -1."""
    handle = items[0].newest
    return handle.broker_name, handle.queue_id if len(items) == 1 else -1


def _batch_command(group: str, topic: str, broker: str, items: Sequence[_Acknowledgement]) -> RemotingCommand:
    body = BatchAckBody(broker, batch_acks(topic, group, [item.newest.info for item in items]))
    return commands.request(RequestCode.BATCH_ACK_MESSAGE, {"bname": broker}, body.encode())
