"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: settlement of deliveries.

A consumer repeats an acknowledgement or a change until its status is OK or INVALID_RECEIPT_HANDLE, and a dead letter
until it is OK (ProcessQueueImpl of the Java client), so a dead letter is stored even after its delivery has expired.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.consuming import settlement_commands
from grpc_gateway.consuming.ack_request import AckEntry, AckRequest, ack_entry
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.recent_acks import RecentAcks
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.consuming.settlement import Settlement, claim
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
            settlement = await self._claim(group, topic, entry)
        except Refused as error:
            return settlement_error_status(error)
        try:
            await self._send(rpc, settlement)
        finally:
            settlement.release()
        return settlement.status

    async def _ack_many(self, rpc: Rpc, group: str, topic: str, entries: Sequence[AckEntry]) -> list[Status]:
        results: list[Settlement | Status] = []
        try:
            for entry in entries:
                try:
                    results.append(await self._claim(group, topic, entry))
                except Refused as error:
                    results.append(settlement_error_status(error))
            await self._send_all(rpc, [result for result in results if isinstance(result, Settlement)])
        finally:
            for result in results:
                if isinstance(result, Settlement):
                    result.release()
        return [result.status if isinstance(result, Settlement) else result for result in results]

    async def _send_all(self, rpc: Rpc, settlements: list[Settlement]) -> None:
        """Send acknowledgements to their brokers, in batches if possible."""
        single: list[Settlement] = []
        batches: dict[str, list[Settlement]] = {}
        for settlement in settlements:
            if self._can_batch(settlement):
                batches.setdefault(settlement.newest.broker_name, []).append(settlement)
            else:
                single.append(settlement)
        await asyncio.gather(
            *(self._send(rpc, settlement) for settlement in single),
            *(self._send_batch(rpc, broker, batch) for broker, batch in batches.items()),
        )

    def _can_batch(self, settlement: Settlement) -> bool:
        """Return whether a broker reports the same status for an acknowledgement in a batch as on its own.

        The reply to a batch confirms only that it was decoded. A broker silently skips acknowledgements that it cannot
        use: those of wrong queues, and some of deliveries in order.
        """
        handle = settlement.newest
        span = handle.queue_offset - handle.start_offset
        if handle.is_order or settlement.lite_topic or not 0 <= span < _MAX_CHECKPOINT_SPAN:
            return False
        route = self._core.cached_route(settlement.topic)
        return route is not None and any(
            handle.broker_name == queues.broker and handle.queue_id < queues.read for queues in route.queues
        )

    async def _send_batch(self, rpc: Rpc, broker: str, batch: list[Settlement]) -> None:
        """Send acknowledgements to one broker, and end them."""
        if len(batch) == 1:
            await self._send(rpc, batch[0])
            return
        try:
            reply = await rpc.request(self._core, _batch_command(broker, batch), broker)
            if reply.code == _NOT_SUPPORTED:
                # The broker is too old for batches.
                await asyncio.gather(*(self._send(rpc, settlement) for settlement in batch))
                return
            status = settlement_status(reply)
        except RemotingError as error:
            status = settlement_error_status(error)
        for settlement in batch:
            self._end(settlement, status)

    async def _send(self, rpc: Rpc, settlement: Settlement) -> None:
        """Send one acknowledgement to its broker, and end it."""
        handle = settlement.newest
        try:
            command = settlement_commands.ack(settlement.group, settlement.topic, handle, settlement.lite_topic)
            status = settlement_status(await rpc.request(self._core, command, handle.broker_name, handle.queue_id))
        except RemotingError as error:
            status = settlement_error_status(error)
        self._end(settlement, status)

    def _end(self, settlement: Settlement, status: Status) -> None:
        if status.code == _OK:
            self._acknowledged.add(settlement.group, settlement.original.text)
        settlement.end(status)

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
        settlement = await claim(self._renewal, self._clocks, group, topic, handle, lite_topic)
        newest = used = settlement.newest
        try:
            command = settlement_commands.change_invisible_duration(
                group, topic, used, invisible, lite_topic, request.suspend
            )
            reply = await rpc.request(self._core, command, used.broker_name, used.queue_id)
            status = settlement_status(reply)
            if status.code == Code.OK:
                newest = settlement_commands.changed_handle(used, reply)
        except (RemotingError, Refused) as error:
            status = settlement_error_status(error)
        finally:
            settlement.release()
        settlement.end(status, invisible)
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
        settlement = await claim(self._renewal, self._clocks, group, topic, handle, lite_topic, may_be_expired=True)
        used = settlement.newest
        try:
            command = settlement_commands.dead_letter(group, topic, used, request.message_id)
            status = settlement_status(await rpc.request(self._core, command, used.broker_name, used.queue_id))
        except RemotingError as error:
            status = settlement_error_status(error)
        finally:
            settlement.release()
        if status.code == Code.OK:
            settlement_commands.send_in_background(
                self._core, rpc.client, settlement_commands.ack(group, topic, used, lite_topic)
            )
        settlement.end(status)
        rpc.messages = 1
        return ForwardMessageToDeadLetterQueueResponse(status=status)

    # Common to all settlements.

    def _lite_topic(
        self, request: AckEntry | ChangeInvisibleDurationRequest | ForwardMessageToDeadLetterQueueRequest
    ) -> str:
        return validation.lite_topic(request.lite_topic, self._options) if request.lite_topic else ""

    def _claim(self, group: str, topic: str, entry: AckEntry) -> Coroutine[Any, Any, Settlement]:
        """Begin the acknowledgement of an entry. Raises Refused."""
        handle = ReceiptHandle.parse(entry.receipt_handle)
        return claim(self._renewal, self._clocks, group, topic, handle, self._lite_topic(entry))


def _batch_command(broker: str, batch: Sequence[Settlement]) -> RemotingCommand:
    """Return the acknowledgement of deliveries of one topic to one group."""
    infos = [settlement.newest.info for settlement in batch]
    body = BatchAckBody(broker, batch_acks(batch[0].topic, batch[0].group, infos))
    return commands.request(RequestCode.BATCH_ACK_MESSAGE, {"bname": broker}, body.encode())
