"""ReceiveMessage: a POP, the messages of its answer as a stream of responses."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncGenerator
from functools import partial

from grpc_gateway import message, validation
from grpc_gateway.call import Call
from grpc_gateway.consuming import filters, lite, settlement_commands
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle, of_popped
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core, ask
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, of_error, of_response, status
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, GoAway, RemotingError
from remoting.pop import PoppedMessage
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig

_log = logging.getLogger("gantry.grpc")

# As many messages as a broker hands out at once.
_MAX = 32
# A group that is new starts with what is sent from then on (RocketMQ's ConsumeInitMode.MAX).
_INIT_MODE = "1"
_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT)
_NOTHING = status(Code.MESSAGE_NOT_FOUND, "no new message")
_NO_MATCH = status(Code.MESSAGE_NOT_FOUND, "no message matched the filter")
# Seconds for which a receive is held before it is told TOO_MANY_REQUESTS: consumers come again after 20 ms.
_HOLD = 1.0


class _Receive:
    """One receive as it was asked for. Times are ms.

    lite: it is from lite topics. renew: the messages are renewed for the consumer.
    """

    __slots__ = ("batch", "call", "config", "filter", "group", "invisible", "lite", "polling", "renew", "topic")

    def __init__(self, call: Call, request: ReceiveMessageRequest, options: Options) -> None:
        """Raises Refused."""
        self.call = call
        self.topic = validation.topic(request.message_queue.topic)
        self.group = validation.group(request.group)
        self.filter = filters.of(request.filter_expression)
        self.renew = request.auto_renew and options.auto_renew
        self.invisible = (
            int(options.renewal * 1000)
            if self.renew
            else validation.invisible(request.invisible_duration, options.min_invisible, options)
        )
        self.batch = max(1, min(request.batch_size, options.receive_batch, _MAX))
        self.polling = validation.polling(request, call.remaining(), options)
        self.lite = False
        self.config: GroupConfig


class Receiving:
    """Receives."""

    def __init__(self, core: Core, renewal: Renewal, options: Options, clocks: BrokerClocks) -> None:
        self._core = core
        self._renewal = renewal
        self._options = options
        self._clocks = clocks
        self._turn = itertools.count()

    async def receive(self, call: Call, request: ReceiveMessageRequest) -> AsyncGenerator[ReceiveMessageResponse, None]:
        """The status, the messages, and when they were sent; or nothing but a status.

        Raises Refused, RemotingError. What was popped for a stream that ends early is given back.
        """
        receive = _Receive(call, request, self._options)
        core, topic, group = self._core, receive.topic, receive.group
        receive.config = core.cached_group(group) or await core.group(group)
        receive.lite = lite.is_lite(call.client, core.cached_topic(topic) or await core.topic(topic))
        call.client.subscribed(topic, request.filter_expression)
        broker, queue_id = self._queue(receive, request, core.cached_route(topic) or await core.route(topic))
        reply = await self._poll(receive, _command(receive, request, broker, queue_id))
        if isinstance(reply, Status):
            if reply.code == Code.TOO_MANY_REQUESTS:
                await asyncio.sleep(_HOLD)
            yield ReceiveMessageResponse(status=reply)
            return
        deliveries = self._deliveries(receive, broker, reply)
        if not deliveries:
            yield ReceiveMessageResponse(status=_NO_MATCH)
            return
        complete = False
        try:
            yield _OK
            for _, _, response in deliveries:
                shown = response.message
                receive.call.delivers(len(shown.body), shown.system_properties.delivery_attempt)
                yield response
            last = ReceiveMessageResponse()
            last.delivery_timestamp.FromNanoseconds(time.time_ns())
            yield last
            await receive.call.flushed()
            complete = True
        finally:
            if not complete:
                self._give_back(receive, [(handle, lite_topic) for handle, lite_topic, _ in deliveries])

    # What to ask for.

    def _queue(self, receive: _Receive, request: ReceiveMessageRequest, route: TopicRoute) -> tuple[str, int]:
        """Broker and queue id to pop from; -1 is all of the broker's queues. Raises Refused (FORBIDDEN)."""
        readable = {queues.broker: queues.readable for queues in route.queues if queues.readable}
        if not readable:
            raise Refused(Code.FORBIDDEN, f"topic {route.topic} has no readable queue")
        wanted = request.message_queue.broker.name
        if wanted not in readable:
            return list(readable)[next(self._turn) % len(readable)], -1
        number = request.message_queue.id
        # Push consumers, and only they renew, name a queue of their assignment; others some queue of the route, and
        # would miss what comes on another one meanwhile.
        if receive.config.orderly and request.auto_renew and 0 <= number < readable[wanted]:
            return wanted, number
        return wanted, -1

    async def _poll(self, receive: _Receive, command: RemotingCommand) -> RemotingCommand | Status:
        """The answer that has messages, or the status where there are none."""
        try:
            handling = ask(self._core, receive.call.client, command)
            receive.call.trace_id = command.trace_id
            try:
                reply = await receive.call.answer(
                    handling, command.fields["bname"], int(command.fields.get("queueId", -1))
                )
            except asyncio.CancelledError:
                self._missed(receive, command.fields["bname"], handling)
                raise
        except GoAway:
            # Whoever asks again asks elsewhere.
            return _NOTHING
        except RemotingError as error:
            return of_error(error)
        if reply.code == ResponseCode.SUCCESS:
            return reply
        return _NOTHING if reply.code in _EMPTY else of_response(reply)

    # What there is.

    def _deliveries(
        self, receive: _Receive, broker: str, reply: RemotingCommand
    ) -> list[tuple[ReceiptHandle, str, ReceiveMessageResponse]]:
        """Handle, lite topic and response of each message that is for the client. Raises BodyError.

        The others that came are settled in the background.
        """
        popped = _popped(receive, broker, reply)
        if popped:
            self._clocks.note(broker, popped[0].extra_info.pop_time)
        deliveries = []
        for one in popped:
            lite_topic = _lite_topic(receive, one)
            if not receive.filter.matches(one.message.get(properties.TAGS)):
                self._settle(receive, settlement_commands.ack(receive.group, receive.topic, _handle(one), lite_topic))
            elif one.reconsume_times >= receive.config.max_attempts and not receive.config.assumed:
                self._bury(receive, one, lite_topic)
            else:
                deliveries.append(self._delivery(receive, one, lite_topic))
        return deliveries

    def _delivery(
        self, receive: _Receive, one: PoppedMessage, lite_topic: str
    ) -> tuple[ReceiptHandle, str, ReceiveMessageResponse]:
        holder = self._renewal.holder() if receive.renew else ""
        handle, attempt = _handle(one, holder), one.reconsume_times + 1
        shown = message.of_stored(
            one.message, topic=receive.topic, receipt_handle=handle.text, delivery_attempt=attempt
        )
        if holder:
            self._renewal.hold(receive.call.client, receive.group, receive.topic, handle, attempt, lite_topic)
        return handle, lite_topic, ReceiveMessageResponse(message=shown)

    # What becomes of the rest.

    def _settle(self, receive: _Receive, command: RemotingCommand) -> None:
        settlement_commands.quietly(self._core, receive.call.client, command)

    def _missed(self, receive: _Receive, broker: str, handling: "asyncio.Future[RemotingCommand]") -> None:
        """The client has gone in the very turn in which the answer came: what it brought would be seen by nobody."""
        if handling.cancelled() or not handling.done() or handling.exception() is not None:
            return
        reply = handling.result()
        if reply.code == ResponseCode.SUCCESS:
            with contextlib.suppress(BodyError):
                popped = _popped(receive, broker, reply)
                self._give_back(receive, [(_handle(one), _lite_topic(receive, one)) for one in popped])

    def _give_back(self, receive: _Receive, handles: list[tuple[ReceiptHandle, str]]) -> None:
        """Make messages visible again that nobody will work on: clients use nothing of a stream that broke."""
        for handle, lite_topic in handles:
            self._renewal.drop(handle)
            self._settle(
                receive,
                settlement_commands.change(
                    receive.group, receive.topic, handle, settlement_commands.SOON, lite_topic, bool(lite_topic)
                ),
            )

    def _bury(self, receive: _Receive, one: PoppedMessage, lite_topic: str) -> None:
        """A message has been tried often enough. It is acknowledged only once the dead letter queue has it."""
        group, topic, handle = receive.group, receive.topic, _handle(one)
        command = settlement_commands.dead_letter(
            group, topic, handle, one.message.get(properties.UNIQ_CLIENT_MESSAGE_ID) or message.offset_id(one.message)
        )
        try:
            burial = self._core.handle(receive.call.client, command)
        except RemotingError as error:
            _log.warning("a message of %s for %s is not yet in the dead letter queue: %s", topic, group, error)
            return
        assert burial is not None
        burial.add_done_callback(partial(self._buried, receive, handle, lite_topic))

    def _buried(
        self, receive: _Receive, handle: ReceiptHandle, lite_topic: str, burial: "asyncio.Future[RemotingCommand]"
    ) -> None:
        group, topic = receive.group, receive.topic
        error = None if burial.cancelled() else burial.exception()
        if not burial.cancelled() and error is None and burial.result().code == ResponseCode.SUCCESS:
            self._settle(receive, settlement_commands.ack(group, topic, handle, lite_topic))
            return
        # It comes again, and with it the next try.
        why = error or (burial.cancelled() and "cancelled") or burial.result().remark
        _log.warning("a message of %s for %s is not yet in the dead letter queue: %s", topic, group, why)


_OK = ReceiveMessageResponse(status=OK)


def _popped(receive: _Receive, broker: str, reply: RemotingCommand) -> list[PoppedMessage]:
    """The messages of an answer. Raises BodyError."""
    stored = messages.decode_messages(reply.body)
    if receive.lite:
        return pop.popped_lite(stored, reply.fields, broker)
    return pop.popped(stored, receive.topic, reply.fields, broker)


def _lite_topic(receive: _Receive, one: PoppedMessage) -> str:
    return (one.message.get(properties.LITE_TOPIC) or "") if receive.lite else ""


def _handle(one: PoppedMessage, holder: str = "") -> ReceiptHandle:
    return of_popped(one.extra_info, one.message.commit_log_offset, holder)


def _command(receive: _Receive, request: ReceiveMessageRequest, broker: str, queue_id: int) -> RemotingCommand:
    fields = {
        "consumerGroup": receive.group,
        "topic": receive.topic,
        "invisibleTime": str(receive.invisible),
        "pollTime": str(receive.polling),
        # So that the broker counts the poll from its own clock.
        "bornTime": "0",
        "bname": broker,
    }
    if request.attempt_id:
        fields["attemptId"] = request.attempt_id
    if receive.lite:
        fields["clientId"] = receive.call.client.client_id
        fields["maxMsgNum"] = str(receive.batch)
        return commands.request(RequestCode.POP_LITE_MESSAGE, fields)
    fields["queueId"] = str(queue_id)
    fields["maxMsgNums"] = str(receive.batch)
    fields["initMode"] = _INIT_MODE
    fields["expType"] = receive.filter.kind
    fields["exp"] = receive.filter.expression
    fields["order"] = "true" if receive.config.orderly else "false"
    return commands.request(RequestCode.POP_MESSAGE, fields)
