"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: how consumers settle deliveries.

What a consumer is told counts: INVALID_RECEIPT_HANDLE makes it give up, everything else makes it try again, for ever.
"""

import asyncio
from collections.abc import Sequence

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.consuming import settlement_commands
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, joint
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    AckMessageEntry,
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

# Checkpoints span less; whoever names more has made the handle up.
_WIDEST = 4_096
# Entries of one request, each of which may be a request to a broker.
_MAX_ENTRIES = 1_024


class _Delivery:
    """One entry of an acknowledgement: the handle that came, and the newest, which is used."""

    __slots__ = ("entry", "handle", "lite_topic", "status", "used")

    def __init__(self, entry: AckMessageEntry, lite_topic: str, handle: ReceiptHandle, used: ReceiptHandle) -> None:
        self.entry = entry
        self.lite_topic = lite_topic
        self.handle = handle
        self.used = used
        self.status = OK


class Acking:
    """Settlements."""

    def __init__(self, core: Core, renewal: Renewal, options: Options, clocks: BrokerClocks) -> None:
        self._core = core
        self._renewal = renewal
        self._options = options
        self._clocks = clocks

    async def ack(self, call: Call, request: AckMessageRequest) -> AckMessageResponse:
        """Acknowledge deliveries, each with a status of its own. Raises Refused."""
        topic, group = validation.topic(request.topic), validation.group(request.group)
        statuses: list[Status]
        if len(request.entries) > _MAX_ENTRIES:
            raise Refused(Code.BAD_REQUEST, f"a request has at most {_MAX_ENTRIES} entries")
        if len(request.entries) == 1:
            statuses = [await self._ack(call, group, topic, request.entries[0])]
        else:
            statuses = await self._ack_all(call, group, topic, request.entries)
        call.messages = sum(status.code == Code.OK for status in statuses)
        return AckMessageResponse(
            status=joint(statuses),
            entries=[
                AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
                for entry, status in zip(request.entries, statuses, strict=True)
            ],
        )

    async def _ack(self, call: Call, group: str, topic: str, entry: AckMessageEntry) -> Status:
        try:
            delivery = await self._delivery(group, entry)
        except Refused as error:
            return settlement_commands.of_failure(error)
        await self._serve(call, group, topic, [delivery], _single(group, topic, delivery))
        return delivery.status

    async def _ack_all(self, call: Call, group: str, topic: str, entries: Sequence[AckMessageEntry]) -> list[Status]:
        found: list[_Delivery | Status] = []
        try:
            for entry in entries:
                try:
                    found.append(await self._delivery(group, entry))
                except Refused as error:
                    found.append(settlement_commands.of_failure(error))
        except BaseException:
            for one in found:
                if isinstance(one, _Delivery):
                    self._note(group, topic, one.handle, one.used, None)
            raise
        alone: list[_Delivery] = []
        together: dict[str, list[_Delivery]] = {}
        for one in found:
            if isinstance(one, _Delivery):
                if self._may_batch(topic, one):
                    together.setdefault(one.used.broker_name, []).append(one)
                else:
                    alone.append(one)
        await asyncio.gather(
            *(self._serve(call, group, topic, [one], _single(group, topic, one)) for one in alone),
            *(self._serve_batch(call, group, topic, broker, some) for broker, some in together.items()),
        )
        return [one.status if isinstance(one, _Delivery) else one for one in found]

    def _may_batch(self, topic: str, delivery: _Delivery) -> bool:
        """Whether a broker would say the same of the delivery in a batch as alone.

        Of a batch it tells nothing but that it has been read: what it cannot use in it is left out silently, which
        is wrong queues and, where deliveries in order are concerned, other things.
        """
        used = delivery.used
        if used.is_order or delivery.lite_topic or not 0 <= used.queue_offset - used.start_offset < _WIDEST:
            return False
        route = self._core.cached_route(topic)
        return route is not None and any(
            used.broker_name == queues.broker and used.queue_id < queues.read for queues in route.queues
        )

    async def _serve_batch(self, call: Call, group: str, topic: str, broker: str, deliveries: list[_Delivery]) -> None:
        if len(deliveries) > 1 and await self._serve(
            call, group, topic, deliveries, _batch(group, topic, broker, deliveries)
        ):
            return
        await asyncio.gather(
            *(self._serve(call, group, topic, [one], _single(group, topic, one)) for one in deliveries)
        )

    async def _serve(
        self, call: Call, group: str, topic: str, deliveries: Sequence[_Delivery], command: RemotingCommand
    ) -> bool:
        """Have the broker serve an acknowledgement, and note what became of it.

        False: it is an old broker that knows no batches, and nothing became of it.
        """
        try:
            reply = await call.ask(self._core, command, *_place(deliveries))
            if len(deliveries) > 1 and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
            status = settlement_commands.of_reply(reply)
        except RemotingError as error:
            status = settlement_commands.of_failure(error)
        except BaseException:
            for delivery in deliveries:
                self._note(group, topic, delivery.handle, delivery.used, None)
            raise
        for delivery in deliveries:
            delivery.status = status
            self._note(group, topic, delivery.handle, delivery.used, status)
        return True

    async def change_invisible(
        self, call: Call, request: ChangeInvisibleDurationRequest
    ) -> ChangeInvisibleDurationResponse:
        """Hide a message until later (or, with no duration, no longer); the answer has its new handle."""
        topic, group = validation.topic(request.topic), validation.group(request.group)
        invisible = validation.invisible(request.invisible_duration, 0, self._options)
        lite_topic = self._lite_topic(request)
        handle = ReceiptHandle.parse(request.receipt_handle)
        used = await self._newest(group, handle)
        command = settlement_commands.change(group, topic, used, invisible, lite_topic, request.suspend)
        status: Status | None = None
        newest = used
        try:
            reply = await call.ask(self._core, command, used.broker_name, used.queue_id)
            status = settlement_commands.of_reply(reply)
            if status.code == Code.OK:
                newest = settlement_commands.changed(used, reply)
        except (RemotingError, Refused) as error:
            status = settlement_commands.of_failure(error)
        finally:
            self._note(group, topic, handle, used, status, invisible)
        call.messages = 1
        # A client that keeps the handle of the answer must find one in it.
        return ChangeInvisibleDurationResponse(status=status, receipt_handle=newest.text)

    async def forward(
        self, call: Call, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Put a message in the group's dead letter queue, and acknowledge it once it is there."""
        topic, group = validation.topic(request.topic), validation.group(request.group)
        lite_topic = self._lite_topic(request)
        handle = ReceiptHandle.parse(request.receipt_handle)
        if handle.commit_log_offset < 0:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the receipt handle does not say where the message is stored")
        used = await self._newest(group, handle)
        status: Status | None = None
        try:
            command = settlement_commands.dead_letter(group, topic, used, request.message_id)
            status = settlement_commands.of_reply(await call.ask(self._core, command, used.broker_name, used.queue_id))
        except RemotingError as error:
            status = settlement_commands.of_failure(error)
        finally:
            if status is not None and status.code == Code.OK:
                settlement_commands.quietly(
                    self._core, call.client, settlement_commands.ack(group, topic, used, lite_topic)
                )
            self._note(group, topic, handle, used, status)
        call.messages = 1
        return ForwardMessageToDeadLetterQueueResponse(status=status)

    # What all have in common.

    def _lite_topic(
        self, request: AckMessageEntry | ChangeInvisibleDurationRequest | ForwardMessageToDeadLetterQueueRequest
    ) -> str:
        return validation.lite_topic(request.lite_topic, self._options) if request.lite_topic else ""

    async def _delivery(self, group: str, entry: AckMessageEntry) -> _Delivery:
        """The delivery of an entry. Raises Refused."""
        handle = ReceiptHandle.parse(entry.receipt_handle)
        return _Delivery(entry, self._lite_topic(entry), handle, await self._newest(group, handle))

    async def _newest(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """The handle to settle a delivery by. Raises Refused where that has expired."""
        newest = await self._renewal.claim(group, handle) if handle.holder else handle
        if self._clocks.passed(newest.broker_name, newest.visible_at):
            if handle.holder:
                self._renewal.unclaim(group, handle)
            raise Refused(
                Code.INVALID_RECEIPT_HANDLE, "the receipt handle has expired: the message is for others to consume"
            )
        return newest

    def _note(
        self,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        used: ReceiptHandle,
        status: Status | None,
        invisible: int | None = None,
    ) -> None:
        """A settlement is over, with this status or, None, with its call."""
        if not handle.holder:
            return
        if status is not None and status.code in _SETTLED:
            self._renewal.settled(group, topic, handle, used, invisible)
        else:
            self._renewal.unclaim(group, handle)


# Whoever is told one of these does not come back.
_SETTLED = (Code.OK, Code.INVALID_RECEIPT_HANDLE)


def _single(group: str, topic: str, delivery: _Delivery) -> RemotingCommand:
    return settlement_commands.ack(group, topic, delivery.used, delivery.lite_topic)


def _place(deliveries: Sequence[_Delivery]) -> tuple[str, int]:
    """The broker, and the queue if there is but one."""
    used = deliveries[0].used
    return used.broker_name, used.queue_id if len(deliveries) == 1 else -1


def _batch(group: str, topic: str, broker: str, deliveries: Sequence[_Delivery]) -> RemotingCommand:
    body = BatchAckBody(broker, batch_acks(topic, group, [delivery.used.info for delivery in deliveries]))
    return commands.request(RequestCode.BATCH_ACK_MESSAGE, {"bname": broker}, body.encode())
