"""ReceiveMessage: pops messages, and streams them to the consumer."""

import asyncio
import contextlib
import itertools
import logging
import time
from functools import partial
from typing import Final

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc, Write
from grpc_gateway.consuming import settlement_commands
from grpc_gateway.consuming.body_decompression import BodyDecompression
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.filters import parse_filter
from grpc_gateway.consuming.lite_subscriptions import is_lite
from grpc_gateway.consuming.receipt_handle import ReceiptHandle, handle_from_pop
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.message_decoding import encode_stored, is_compressed, offset_message_id
from grpc_gateway.response_status import OK, Refused, status, status_from_reply
from grpc_gateway.wire_encoding import LengthDelimited
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, GoAway, RemotingError
from remoting.loop_turns import LoopTurns
from remoting.messages import StoredMessage
from remoting.pop import PoppedMessage
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig

_log = logging.getLogger("gantry.grpc")

# Maximum number of messages in a broker's reply.
_MAX_MESSAGES = 32
# Pops that begin in one turn of the event loop.
_POPS_PER_TURN = 4
# Time in ms by which brokers end a long poll early: 50 ms, by a clock of whole ms.
_BROKER_MARGIN = 51
# Queue id of a pop from all queues of a broker.
_ALL_QUEUES = -1
# A new group starts at the end of the queues (RocketMQ's ConsumeInitMode.MAX).
_INIT_MODE = "1"
_NO_MESSAGES = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT)
_NO_NEW_MESSAGE = status(Code.MESSAGE_NOT_FOUND, "no new message")
_UNREAD = status(Code.TOO_MANY_REQUESTS, "the client has not read its responses")
_NO_ROOM = "polling full"
_NO_MATCH = status(Code.MESSAGE_NOT_FOUND, "no match message")


class _Receive:
    """Parameters of one receive. Times are ms.

    lite: it pops from lite topics. renew: the deliveries are renewed for the consumer.
    """

    __slots__ = ("batch", "config", "filter", "group", "invisible", "lite", "polling", "renew", "rpc", "topic")

    def __init__(self, rpc: Rpc, request: ReceiveMessageRequest, options: GatewayOptions) -> None:
        """Raises Refused."""
        self.rpc = rpc
        self.topic = validation.topic(request.message_queue.topic)
        self.group = validation.group(request.group)
        self.filter = parse_filter(request.filter_expression)
        self.renew = request.auto_renew and options.auto_renew
        self.invisible = (
            int(options.renewal * 1000)
            if self.renew
            else validation.invisible_duration(request.invisible_duration, options.min_invisible, options)
        )
        self.batch = max(1, min(request.batch_size, options.receive_batch, _MAX_MESSAGES))
        client = rpc.client
        self.polling = validation.polling_time(request, rpc.remaining(), options, client.settings, client.version)
        self.lite = False
        self.config: GroupConfig


class _Delivery:
    """A message for the consumer."""

    __slots__ = ("attempt", "handle", "lite_topic", "stored")

    def __init__(self, handle: ReceiptHandle, lite_topic: str, stored: StoredMessage, attempt: int) -> None:
        self.handle = handle
        self.lite_topic = lite_topic
        self.stored = stored
        self.attempt = attempt


class ReceiveService:
    """Serves receives."""

    def __init__(self, core: Core, renewal: Renewal, options: GatewayOptions, clocks: BrokerClocks) -> None:
        self._core = core
        self._renewal = renewal
        self._options = options
        self._clocks = clocks
        self._decompression = BodyDecompression(options.max_body)
        self._next_broker = itertools.count()
        self._turns = LoopTurns(_POPS_PER_TURN)

    async def receive(self, rpc: Rpc, request: ReceiveMessageRequest, write: Write) -> None:
        """Write the status, the messages, and the delivery timestamp; only a status if there is no message.

        Raises Refused, RemotingError. If the stream ends early, the popped messages are returned to the broker.
        """
        receive = _Receive(rpc, request, self._options)
        core, topic, group = self._core, receive.topic, receive.group
        receive.config = core.cached_group(group) or await core.group(group)
        receive.lite = is_lite(rpc.client, core.cached_topic(topic) or await core.topic(topic))
        route = core.cached_route(topic) or await core.route(topic)
        rpc.client.record_subscription(topic, request.filter_expression)
        broker, queue_id = self._choose_queue(receive, request, route)
        await self._turns.next()
        if not rpc.may_hold(self._core.unread_limit):
            # Before the pop: a client with hundreds of streams would get as many replies into memory.
            await _write_status(rpc, write, _UNREAD)
            return
        reply = await self._pop(receive, _pop_command(receive, request, broker, queue_id))
        if isinstance(reply, Status):
            await _write_status(rpc, write, reply)
            return
        deliveries = self._deliveries(receive, broker, reply)
        if not deliveries:
            await _write_status(rpc, write, _NO_MATCH)
            return
        if not rpc.hold(len(reply.body), self._core.unread_limit):
            self._return(receive, deliveries)
            # The client may not read the status either; the messages must not wait with it.
            reply.body = b""
            deliveries.clear()
            await _write_status(rpc, write, _UNREAD)
            return
        complete = False
        try:
            await self._write(receive, deliveries, write)
            complete = True
        finally:
            rpc.release(len(reply.body))
            if not complete:
                self._return(receive, deliveries)

    async def _write(self, receive: _Receive, deliveries: list[_Delivery], write: Write) -> None:
        """Write the responses of a receive with messages, and wait until the client's windows have taken them."""
        rpc = receive.rpc
        rpc.code = _OK
        responses = [_OK_RESPONSE]
        size = 0
        for delivery in deliveries:
            stored, attempt = delivery.stored, delivery.attempt
            if is_compressed(stored):
                # Decompressed messages of a batch are in memory one after the other.
                await write(responses)
                decompressed = await self._decompression.message(
                    stored, topic=receive.topic, receipt_handle=delivery.handle.text, delivery_attempt=attempt
                )
                responses, size = [_MESSAGE.message(decompressed.SerializeToString())], 0
                rpc.count_delivery(len(decompressed.body), attempt)
                continue
            message = _MESSAGE.message(encode_stored(stored, receive.topic, delivery.handle.text, attempt))
            rpc.count_delivery(len(stored.body), attempt)
            responses.append(message)
            size += len(message)
            if size > _WRITE_BYTES:
                await write(responses)
                responses, size = [], 0
        last = ReceiveMessageResponse()
        last.delivery_timestamp.FromNanoseconds(time.time_ns())
        responses.append(last.SerializeToString())
        await write(responses)
        await rpc.flushed()

    # The pop.

    def _choose_queue(self, receive: _Receive, request: ReceiveMessageRequest, route: TopicRoute) -> tuple[str, int]:
        """Return the broker and the queue id to pop from. Raises Refused (FORBIDDEN)."""
        readable = {queues.broker: queues.readable for queues in route.queues if queues.readable}
        if not readable:
            raise Refused(Code.FORBIDDEN, "no readable queue")
        broker = request.message_queue.broker.name
        hung = self._core.unresponsive_brokers()
        if hung and not receive.config.orderly:
            # A consumer would wait for the broker's messages, and get none of the others. Their order is the queues'.
            readable = {name: queues for name, queues in readable.items() if name not in hung} or readable
        if broker not in readable:
            return list(readable)[next(self._next_broker) % len(readable)], _ALL_QUEUES
        queue_id = request.message_queue.id
        # Only push consumers renew, and only they name a queue of their assignment. Others name any queue of the
        # route, and would miss new messages of the other queues.
        if receive.config.orderly and request.auto_renew and 0 <= queue_id < readable[broker]:
            return broker, queue_id
        return broker, _ALL_QUEUES

    async def _pop(self, receive: _Receive, command: RemotingCommand) -> RemotingCommand | Status:
        """Return the reply with messages, or the status if there is none. Raises Refused, RemotingError."""
        rpc, broker = receive.rpc, command.fields["bname"]
        try:
            pending = rpc.dispatch(self._core, command)
            try:
                reply = await rpc.wait_for(pending, broker, int(command.fields.get("queueId") or _ALL_QUEUES))
            except asyncio.CancelledError:
                self._return_undelivered(receive, broker, pending)
                raise
        except GoAway:
            # The consumer's next receive is served by another broker.
            return _NO_NEW_MESSAGE
        if reply.code == ResponseCode.SUCCESS:
            return reply
        if reply.code in _NO_MESSAGES:
            return _NO_NEW_MESSAGE
        error = status_from_reply(reply)
        raise Refused(error.code, _NO_ROOM if reply.code == ResponseCode.POLLING_FULL else error.message)

    # Popped messages.

    def _deliveries(self, receive: _Receive, broker: str, reply: RemotingCommand) -> list[_Delivery]:
        """Return the deliveries for the consumer, and settle the other messages in the background. Raises BodyError."""
        popped = _popped_messages(receive, broker, reply)
        if popped:
            # Not of a message, whose properties a producer sets.
            self._clocks.update(broker, reply.integer("popTime"))
        deliveries = []
        for message in popped:
            lite_topic = _lite_topic(receive, message)
            if not receive.filter.matches(message.message.get(properties.TAGS)):
                self._settle(
                    receive, settlement_commands.ack(receive.group, receive.topic, _handle(message), lite_topic)
                )
            elif message.reconsume_times >= receive.config.max_attempts and not receive.config.assumed:
                self._send_to_dead_letter_queue(receive, message, lite_topic)
            else:
                deliveries.append(self._delivery(receive, message, lite_topic))
        return deliveries

    def _delivery(self, receive: _Receive, popped: PoppedMessage, lite_topic: str) -> _Delivery:
        renewal_id = self._renewal.new_renewal_id() if receive.renew else ""
        handle, attempt = _handle(popped, renewal_id), popped.reconsume_times + 1
        if renewal_id:
            self._renewal.add(receive.rpc.client, receive.group, receive.topic, handle, attempt, lite_topic)
        return _Delivery(handle, lite_topic, popped.message, attempt)

    # Messages that are not delivered.

    def _settle(self, receive: _Receive, command: RemotingCommand) -> None:
        settlement_commands.send_in_background(self._core, receive.rpc.client, command)

    def _return_undelivered(self, receive: _Receive, broker: str, pending: "asyncio.Future[RemotingCommand]") -> None:
        """Return the messages of a reply that came in the same loop iteration in which the rpc was cancelled."""
        if pending.cancelled() or not pending.done() or pending.exception() is not None:
            return
        reply = pending.result()
        if reply.code == ResponseCode.SUCCESS:
            with contextlib.suppress(BodyError):
                popped = _popped_messages(receive, broker, reply)
                for message in popped:
                    self._return_one(receive, _handle(message), _lite_topic(receive, message))

    def _return(self, receive: _Receive, deliveries: list[_Delivery]) -> None:
        """Make messages visible again; clients discard all messages of a broken stream."""
        for delivery in deliveries:
            self._renewal.discard(delivery.handle)
            self._return_one(receive, delivery.handle, delivery.lite_topic)

    def _return_one(self, receive: _Receive, handle: ReceiptHandle, lite_topic: str) -> None:
        self._settle(
            receive,
            settlement_commands.change_invisible_duration(
                receive.group,
                receive.topic,
                handle,
                settlement_commands.RETURN_DELAY,
                lite_topic,
                suspend=bool(lite_topic),
            ),
        )

    def _send_to_dead_letter_queue(self, receive: _Receive, popped: PoppedMessage, lite_topic: str) -> None:
        """Forward a message without attempts left, and acknowledge it when the dead letter queue has it."""
        group, topic, handle = receive.group, receive.topic, _handle(popped)
        message_id = popped.message.get(properties.UNIQ_CLIENT_MESSAGE_ID) or offset_message_id(popped.message)
        try:
            forwarding = self._core.handle(
                receive.rpc.client, settlement_commands.dead_letter(group, topic, handle, message_id)
            )
        except RemotingError as error:
            _log_dead_letter_failure(receive, error)
            return
        assert forwarding is not None
        forwarding.add_done_callback(partial(self._forwarded, receive, handle, lite_topic))

    def _forwarded(
        self,
        receive: _Receive,
        handle: ReceiptHandle,
        lite_topic: str,
        forwarding: "asyncio.Future[RemotingCommand]",
    ) -> None:
        if forwarding.cancelled():
            _log_dead_letter_failure(receive, "cancelled")
        elif (error := forwarding.exception()) is not None:
            _log_dead_letter_failure(receive, error)
        elif (reply := forwarding.result()).code != ResponseCode.SUCCESS:
            _log_dead_letter_failure(receive, reply.remark)
        else:
            self._settle(receive, settlement_commands.ack(receive.group, receive.topic, handle, lite_topic))


_OK: Final = int(Code.OK)
_OK_RESPONSE: Final = ReceiveMessageResponse(status=OK).SerializeToString()
_MESSAGE: Final = LengthDelimited(ReceiveMessageResponse.DESCRIPTOR.fields_by_name["message"].number)


# Bytes of messages that are encoded before they are written.
_WRITE_BYTES: Final = 64 * 1024


async def _write_status(rpc: Rpc, write: Write, status: Status) -> None:
    rpc.code = status.code
    await write([ReceiveMessageResponse(status=status).SerializeToString()])


def _log_dead_letter_failure(receive: _Receive, reason: object) -> None:
    _log.warning(
        "cannot put a message of topic %s in the dead letter queue of group %s; retrying at its next delivery: %s",
        receive.topic,
        receive.group,
        reason,
    )


def _popped_messages(receive: _Receive, broker: str, reply: RemotingCommand) -> list[PoppedMessage]:
    """Return the messages of a reply. Raises BodyError."""
    stored = messages.decode_messages(reply.body)
    if receive.lite:
        return pop.popped_lite(stored, reply.fields, broker)
    return pop.popped(stored, receive.topic, reply.fields, broker)


def _lite_topic(receive: _Receive, popped: PoppedMessage) -> str:
    return (popped.message.get(properties.LITE_TOPIC) or "") if receive.lite else ""


def _handle(popped: PoppedMessage, renewal_id: str = "") -> ReceiptHandle:
    return handle_from_pop(popped.extra_info, popped.message.commit_log_offset, renewal_id)


def _pop_command(receive: _Receive, request: ReceiveMessageRequest, broker: str, queue_id: int) -> RemotingCommand:
    fields = {
        "consumerGroup": receive.group,
        "topic": receive.topic,
        "invisibleTime": str(receive.invisible),
        "pollTime": str(receive.polling + _BROKER_MARGIN),
        # 0: the broker measures the polling time by its own clock.
        "bornTime": "0",
        "bname": broker,
    }
    if request.attempt_id:
        fields["attemptId"] = request.attempt_id
    if receive.lite:
        fields["clientId"] = receive.rpc.client.client_id
        fields["maxMsgNum"] = str(receive.batch)
        return commands.request(RequestCode.POP_LITE_MESSAGE, fields)
    fields["queueId"] = str(queue_id)
    fields["maxMsgNums"] = str(receive.batch)
    fields["initMode"] = _INIT_MODE
    fields["expType"] = receive.filter.kind
    fields["exp"] = receive.filter.expression
    fields["order"] = "true" if receive.config.orderly else "false"
    return commands.request(RequestCode.POP_MESSAGE, fields)
