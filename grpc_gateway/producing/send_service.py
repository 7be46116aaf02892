"""SendMessage: sends each message as a SEND_MESSAGE_V2 to a queue of its topic."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.message_encoding import encode_body, encode_properties, message_type, sys_flag
from grpc_gateway.producing import queue_selection
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.unresponsive_brokers import UnresponsiveBrokers
from grpc_gateway.response_status import OK, Refused, combined_status, status_from_error, status_from_reply
from grpc_gateway.sent_message import SendRequest, SentMessage, sent_message
from grpc_gateway.transaction_id import TransactionId
from grpc_gateway.wire_encoding import LengthDelimited, Varint
from protos.apache.rocketmq.v2.definition_pb2 import Code, Encoding, Message
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse, SendResultEntry
from remoting import command as commands
from remoting import send_message
from remoting.codes import STORED, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ClientGone, ConnectionLost, RemotingError, RequestTimeout, ServiceUnavailable
from remoting.ids import OffsetMessageId
from remoting.loop_turns import LoopTurns
from remoting.names import DLQ_PREFIX, RETRY_PREFIX
from remoting.properties import MessageType
from remoting.routes import TopicRoute
from remoting.work_turns import WorkTurns

# For every message: reading a member from its enum is slow.
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_GZIP: Final = Encoding.GZIP
_DELAY: Final = MessageType.DELAY
_TRANSACTION: Final = MessageType.TRANSACTION
# The response to one message that is stored is encoded without its objects.
_STATUS_OK: Final = SendMessageResponse(status=OK).SerializeToString()
_ENTRIES: Final = LengthDelimited(SendMessageResponse.DESCRIPTOR.fields_by_name["entries"].number)
_ENTRY_OK: Final = SendResultEntry(status=OK).SerializeToString()
_RESULT: Final = SendResultEntry.DESCRIPTOR.fields_by_name
_MESSAGE_ID: Final = LengthDelimited(_RESULT["message_id"].number)
_TRANSACTION_ID: Final = LengthDelimited(_RESULT["transaction_id"].number)
_OFFSET: Final = Varint(_RESULT["offset"].number)
_RECALL_HANDLE: Final = LengthDelimited(_RESULT["recall_handle"].number)
# Topics for redelivery accept every message type.
_UNTYPED_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
# Messages per request, since each is a request to a broker.
_MAX_MESSAGES: Final = 1_024
# Seconds of an iteration of the event loop in which compressed messages of all requests are converted, and of one
# message at least.
_CONVERSION_SECONDS: Final = 0.001
_MIN_CONVERSION_SECONDS: Final = 0.000_001
# Unreachable brokers before a message is rejected.
_MAX_UNREACHABLE: Final = 3


class SendService:
    """Serves sends."""

    def __init__(self, core: Core, options: GatewayOptions, half_messages: HalfMessages) -> None:
        self._core = core
        self._options = options
        self._half_messages = half_messages
        self._round_robin = queue_selection.RoundRobin()
        self._unresponsive = UnresponsiveBrokers()
        self._turns = LoopTurns()
        self._conversions = WorkTurns(_CONVERSION_SECONDS)

    def send(
        self, rpc: Rpc, request: SendRequest | SendMessageRequest
    ) -> Coroutine[Any, Any, SendMessageResponse | bytes]:
        """Store the messages, and return an entry for each in the same order, in a response or a serialized one.

        Raises Refused, RemotingError, now or when the coroutine runs.
        """
        if isinstance(request, SendRequest):
            return self._send_one(rpc, request.message)
        messages = request.messages
        if not messages:
            raise Refused(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > _MAX_MESSAGES:
            raise Refused(
                Code.MESSAGE_BODY_TOO_LARGE, f"the request has {len(messages)} messages; the maximum is {_MAX_MESSAGES}"
            )
        if len(messages) == 1:
            return self._send_one(rpc, sent_message(messages[0]))
        return self._send_many(rpc, messages)

    async def _send_one(self, rpc: Rpc, message: SentMessage) -> SendMessageResponse | bytes:
        topic = validation.topic_name(message.topic)
        accepted_type = self._known_type(topic)
        if accepted_type is None:
            accepted_type = (await self._core.topic(topic)).message_type
        route = self._core.cached_route(topic) or await self._core.route(topic)
        rpc.client.record_publication(topic)
        if message.body_encoding == _GZIP:
            command, kind = await self._command_in_turn(message, topic, accepted_type)
        else:
            command, kind = self._command(message, topic, accepted_type)
        if message.delivery_timestamp is None:
            rpc.topic, rpc.bytes_in = topic, len(message.body)
            rpc.key = (message.keys[0] if message.keys else "") or message.message_group or None
        broker, reply = await self._store(rpc, route, message.sharding_key, command)
        rpc.messages = 1
        if reply.code == _SUCCESS:
            return _STATUS_OK + _ENTRIES.message(_ENTRY_OK + self._encode_result(message, kind, broker, reply))
        entry = self._entry(message, kind, broker, reply)
        return SendMessageResponse(status=entry.status, entries=[entry])

    async def _send_many(self, rpc: Rpc, messages: Sequence[Message]) -> SendMessageResponse:
        first = messages[0]
        topic = validation.topic(first.topic)
        accepted_type = self._known_type(topic)
        if accepted_type is None:
            accepted_type = (await self._core.topic(topic)).message_type
        route = self._core.cached_route(topic) or await self._core.route(topic)
        rpc.client.record_publication(topic)
        if any(message.topic != first.topic for message in messages):
            raise Refused(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        # Encode all messages before the first is sent, so that an invalid one rejects the whole request.
        prepared: list[tuple[SentMessage, RemotingCommand, MessageType]] = []
        for each in messages:
            message = sent_message(each)
            if message.body_encoding == _GZIP:
                # It is decompressed: one of all requests in each turn of the loop.
                await self._turns.next()
            command, kind = self._command(message, topic, accepted_type)
            prepared.append((message, command, kind))
            # Yield to the event loop: a request has up to 1,024 messages.
            await asyncio.sleep(0)
        entries = await self._store_all(rpc, route, prepared)
        # A message that is stored and not replicated in time has an id, too.
        rpc.messages = sum(entry.status.code == Code.OK or bool(entry.message_id) for entry in entries)
        return SendMessageResponse(status=combined_status(entry.status for entry in entries), entries=entries)

    def _known_type(self, topic: str) -> MessageType | None:
        """Return the message type that the topic accepts; UNSPECIFIED: any type; None: the topic is not cached."""
        if not self._options.validate_message_type or topic.startswith(_UNTYPED_PREFIXES):
            return _UNSPECIFIED
        config = self._core.cached_topic(topic)
        return None if config is None else config.message_type

    async def _command_in_turn(
        self, message: SentMessage, topic: str, accepted_type: MessageType
    ) -> tuple[RemotingCommand, MessageType]:
        """Return the same as `_command` for a message whose body is to be decompressed, which may take long."""
        await self._conversions.next()
        begin = time.perf_counter()
        try:
            return self._command(message, topic, accepted_type)
        finally:
            self._conversions.use(max(time.perf_counter() - begin, _MIN_CONVERSION_SECONDS))

    def _command(
        self, message: SentMessage, topic: str, accepted_type: MessageType
    ) -> tuple[RemotingCommand, MessageType]:
        """Return the command that stores a message, without its queue, and the message type. Raises Refused."""
        kind = message_type(message)
        if accepted_type is not kind and accepted_type not in _ANY_TYPE:
            raise validation.wrong_message_type(accepted_type, kind)
        now = time.time()
        body, body_flag = encode_body(message, self._options)
        born_timestamp = message.born_timestamp
        fields = send_message.send_fields(
            producer_group=topic,
            topic=topic,
            sys_flag=sys_flag(kind, body_flag),
            born_timestamp=born_timestamp if born_timestamp > 0 else int(now * 1000),
            properties=encode_properties(message, kind, now, self._options),
        )
        return commands.request(_SEND, fields, body), kind

    async def _store_all(
        self, rpc: Rpc, route: TopicRoute, prepared: list[tuple[SentMessage, RemotingCommand, MessageType]]
    ) -> list[SendResultEntry]:
        """Store messages concurrently, but those of one message group or lite topic one after the other."""
        entries = [SendResultEntry() for _ in prepared]

        async def store_in_order(indexes: list[int]) -> None:
            for index in indexes:
                message, command, kind = prepared[index]
                try:
                    broker, reply = await self._store(rpc, route, message.sharding_key, command)
                    entries[index] = self._entry(message, kind, broker, reply)
                except (Refused, RemotingError) as error:
                    entries[index] = SendResultEntry(status=status_from_error(error))

        # By message group or lite topic; a message without either is a sequence of its own.
        sequences: defaultdict[object, list[int]] = defaultdict(list)
        for index, (message, _, _) in enumerate(prepared):
            sequences[message.sharding_key or index].append(index)
        await asyncio.gather(*map(store_in_order, sequences.values()))
        return entries

    async def _store(
        self, rpc: Rpc, route: TopicRoute, sharding_key: str, command: RemotingCommand
    ) -> tuple[str, RemotingCommand]:
        """Store one message, and return the broker with its reply.

        sharding_key: message group, or else lite topic; it determines the queue. Without one, brokers that do not
        answer are avoided, and another one is tried if one is unreachable.
        """
        if sharding_key:
            broker, queue_id = queue_selection.queue_of_sharding_key(route, sharding_key)
            if broker in self._core.unresponsive_brokers():
                # At once, so that the response comes before the client's deadline.
                text = f"the broker {broker} does not answer, and has the queue of the message group or lite topic"
                raise Refused(Code.HA_NOT_AVAILABLE, text)
            future = self._dispatch(rpc, command, broker, queue_id)
            return broker, await rpc.wait_for(future, broker, queue_id)
        unresponsive, hung = self._unresponsive, self._core.unresponsive_brokers()
        unreachable: frozenset[str] = frozenset()
        while True:
            avoided = unreachable | hung | unresponsive.avoided() if unresponsive or hung else unreachable
            broker, queue_id = self._round_robin.next(route, avoided)
            if unresponsive:
                unresponsive.note_attempt(broker)
            # As `Rpc.wait_for`, without another coroutine.
            begin, started = unresponsive.clock(), time.monotonic()
            waiting: asyncio.Future[RemotingCommand] | None = None
            reply: RemotingCommand | None = None
            try:
                waiting = self._dispatch(rpc, command, broker, queue_id)
                reply = await waiting
            except ClientGone:
                raise
            except ConnectionLost:
                unresponsive.note_failure(broker, begin, waiting)
                # The message may have been stored.
                raise
            except ServiceUnavailable:
                unresponsive.note_failure(broker, begin, waiting)
                unreachable |= {broker}
                if len(unreachable) >= _MAX_UNREACHABLE or unreachable.issuperset(queue[0] for queue in route.writable):
                    raise
            except (RequestTimeout, asyncio.CancelledError):
                # The client's deadline may come before the timeout of the request.
                unresponsive.note_failure(broker, begin, waiting)
                raise
            finally:
                if waiting is not None:
                    rpc.note_wait(started)
            if reply is not None:
                if unresponsive:
                    unresponsive.note_answer(broker)
                return broker, reply

    def _dispatch(
        self, rpc: Rpc, command: RemotingCommand, broker: str, queue_id: int
    ) -> "asyncio.Future[RemotingCommand]":
        command.fields[send_message.V2.queue_id] = str(queue_id)
        command.fields[send_message.V2.broker] = broker
        reply = rpc.dispatch(self._core, command)
        rpc.note_target(broker, queue_id)
        return reply

    def _entry(self, message: SentMessage, kind: MessageType, broker: str, reply: RemotingCommand) -> SendResultEntry:
        """Return the result entry of one message."""
        entry = SendResultEntry(status=OK if reply.code == _SUCCESS else status_from_reply(reply))
        if reply.code in STORED:
            if reply.code != _SUCCESS:
                # Stored, but not as safely as the broker is set to. The text is the official proxy's.
                entry.status.message = f"send message failed, sendStatus={ResponseCode(reply.code).name}"
            entry.MergeFromString(self._encode_result(message, kind, broker, reply))
        return entry

    def _encode_result(self, message: SentMessage, kind: MessageType, broker: str, reply: RemotingCommand) -> bytes:
        """Return the encoded result entry of a stored message, without its status."""
        message_id = message.message_id.encode()
        encoded = _MESSAGE_ID.message(message_id) + _OFFSET.value(int(reply.field("queueOffset") or 0))
        if kind is _TRANSACTION:
            encoded += _TRANSACTION_ID.text(self._transaction_id(message, broker, reply.fields))
        else:
            # The official proxy passes the broker's transactionId on, which is the message's UNIQ_KEY for every type
            # (SendMessageProcessor): to look it up in the reply would take longer.
            encoded += _TRANSACTION_ID.message(message_id)
        # Brokers return one for timer messages.
        if kind is _DELAY and (handle := reply.field("recallHandle")):
            encoded += _RECALL_HANDLE.text(handle)
        return encoded

    def _transaction_id(self, message: SentMessage, broker: str, fields: dict[str, str]) -> str:
        message_id = fields.get("transactionId") or message.message_id
        try:
            commit_log_offset = OffsetMessageId.parse(fields.get("msgId", "")).offset
        except BodyError:
            # The message is stored. Its place is looked up at the end of the transaction.
            return message_id
        transaction = TransactionId(broker, int(fields.get("queueOffset") or 0), commit_log_offset, message_id)
        if self._options.transaction_ids == "place":
            return str(transaction)
        self._half_messages.add(message.topic, transaction)
        return message_id


_UNSPECIFIED: Final = MessageType.UNSPECIFIED
_ANY_TYPE: Final = (_UNSPECIFIED, MessageType.MIXED)
