"""SendMessage: each message becomes a SEND_MESSAGE_V2 to a queue of its topic."""

import asyncio
import time
from collections import defaultdict

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.core import Core
from grpc_gateway.message import sys_flag, to_body, to_properties, type_of
from grpc_gateway.options import Options
from grpc_gateway.producing import queue_selection
from grpc_gateway.producing.transaction_id import TransactionId
from grpc_gateway.status import OK, Refused, joint, of_error, of_response
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse, SendResultEntry
from remoting import command as commands
from remoting import send_message
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConnectionLost, RemotingError, ServiceUnavailable
from remoting.ids import OffsetMessageId
from remoting.names import DLQ_PREFIX, RETRY_PREFIX
from remoting.properties import MessageType
from remoting.routes import TopicRoute

# Topics of messages that are on their way back to a consumer take every type.
_UNTYPED_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
# Messages of one request, each of which is a request to a broker.
_MAX_MESSAGES = 1_024
# How many brokers a message is offered to that could not be reached.
_BROKERS = 3


class Sending:
    """Sends."""

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options
        self._turns = queue_selection.Turns()

    async def send(self, call: Call, request: SendMessageRequest) -> SendMessageResponse:
        """Store the messages; one entry for each, in their order."""
        messages = request.messages
        if not messages:
            raise Refused(Code.MESSAGE_CORRUPTED, "there is no message in the request")
        if len(messages) > _MAX_MESSAGES:
            raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"a request has at most {_MAX_MESSAGES} messages")
        first = messages[0]
        topic = validation.topic(first.topic)
        accepted = await self._accepted(topic)
        route = self._core.cached_route(topic) or await self._core.route(topic)
        call.client.publishes(topic)
        if len(messages) == 1:
            command, kind = self._command(first, topic, accepted)
            entry = await self._store(call, route, first, command, kind)
            call.messages = 1
            return SendMessageResponse(status=entry.status, entries=(entry,))
        if any(message.topic != first.topic for message in messages):
            raise Refused(Code.MESSAGE_CORRUPTED, "the messages of one request have one topic")
        # All are looked at before any is sent.
        prepared = []
        for message in messages:
            prepared.append((message, *self._command(message, topic, accepted)))
            # Others have a turn: packing a body takes a while.
            await asyncio.sleep(0)
        entries = await self._store_all(call, route, prepared)
        call.messages = sum(entry.status.code == Code.OK for entry in entries)
        return SendMessageResponse(status=joint(entry.status for entry in entries), entries=entries)

    async def _accepted(self, topic: str) -> MessageType:
        """The type that the topic takes; UNSPECIFIED: any."""
        if not self._options.validate_message_type or topic.startswith(_UNTYPED_PREFIXES):
            return MessageType.UNSPECIFIED
        config = self._core.cached_topic(topic) or await self._core.topic(topic)
        return config.message_type

    def _command(self, message: Message, topic: str, accepted: MessageType) -> tuple[RemotingCommand, MessageType]:
        """The request that stores a message, without its queue. Raises Refused."""
        kind = type_of(message)
        if accepted is not kind and accepted not in _ANY:
            raise Refused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"topic {topic} takes {accepted} messages, this one is {kind}"
            )
        now = time.time()
        body, body_flag = to_body(message, self._options)
        born_timestamp = validation.milliseconds(message.system_properties.born_timestamp)
        fields = send_message.send_fields(
            producer_group=topic,
            topic=topic,
            sys_flag=sys_flag(kind, body_flag),
            born_timestamp=born_timestamp if born_timestamp > 0 else int(now * 1000),
            properties=to_properties(message, kind, now, self._options),
        )
        return commands.request(RequestCode.SEND_MESSAGE_V2, fields, body), kind

    async def _store_all(
        self, call: Call, route: TopicRoute, prepared: list[tuple[Message, RemotingCommand, MessageType]]
    ) -> list[SendResultEntry]:
        """Store several messages at once, those of one message group one after the other."""
        entries: list[SendResultEntry] = [SendResultEntry()] * len(prepared)

        async def store_in_order(numbers: list[int]) -> None:
            for number in numbers:
                message, command, kind = prepared[number]
                try:
                    entries[number] = await self._store(call, route, message, command, kind)
                except (Refused, RemotingError) as error:
                    entries[number] = SendResultEntry(status=of_error(error))

        lines: defaultdict[object, list[int]] = defaultdict(list)
        for number, (message, _, _) in enumerate(prepared):
            lines[message.system_properties.message_group or number].append(number)
        await asyncio.gather(*map(store_in_order, lines.values()))
        return entries

    async def _store(
        self, call: Call, route: TopicRoute, message: Message, command: RemotingCommand, kind: MessageType
    ) -> SendResultEntry:
        """Store one message; where its broker cannot be reached, at another, unless its group binds it."""
        message_group = message.system_properties.message_group
        if message_group:
            broker, queue_id = queue_selection.of_group(route, message_group)
            return _entry(message, kind, broker, await self._ask(call, command, broker, queue_id))
        unreachable: frozenset[str] = frozenset()
        while True:
            broker, queue_id = self._turns.next(route, unreachable)
            try:
                reply = await self._ask(call, command, broker, queue_id)
            except ConnectionLost:
                # It may have been stored.
                raise
            except ServiceUnavailable:
                unreachable |= {broker}
                if len(unreachable) >= _BROKERS or unreachable.issuperset(queue[0] for queue in route.writable):
                    raise
                continue
            return _entry(message, kind, broker, reply)

    async def _ask(self, call: Call, command: RemotingCommand, broker: str, queue_id: int) -> RemotingCommand:
        command.fields[send_message.V2.queue_id] = str(queue_id)
        command.fields[send_message.V2.broker] = broker
        return await call.ask(self._core, command, broker, queue_id)


_ANY = (MessageType.UNSPECIFIED, MessageType.MIXED)


def _entry(message: Message, kind: MessageType, broker: str, reply: RemotingCommand) -> SendResultEntry:
    """What became of one message."""
    if reply.code not in STORED:
        return SendResultEntry(status=of_response(reply))
    fields = reply.fields
    return SendResultEntry(
        status=OK if reply.code == ResponseCode.SUCCESS else of_response(reply),
        message_id=message.system_properties.message_id,
        offset=int(fields.get("queueOffset") or 0),
        transaction_id=_transaction_id(message, broker, fields) if kind is MessageType.TRANSACTION else "",
        recall_handle=fields.get("recallHandle", ""),
    )


def _transaction_id(message: Message, broker: str, fields: dict[str, str]) -> str:
    try:
        commit_log_offset = OffsetMessageId.parse(fields.get("msgId", "")).offset
    except BodyError:
        # Stored all the same: the broker will ask how it ended.
        return ""
    message_id = fields.get("transactionId") or message.system_properties.message_id
    return str(TransactionId(broker, int(fields.get("queueOffset") or 0), commit_log_offset, message_id))
