"""PullMessage, UpdateOffset, GetOffset, QueryOffset: consuming by offset. Official proxies do not serve these."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import NamedTuple

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc, Write
from grpc_gateway.consuming.body_decompression import BodyDecompression
from grpc_gateway.consuming.filters import Filter, parse_filter
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.message_decoding import encode_stored, is_compressed
from grpc_gateway.response_status import OK, Refused, status, status_from_reply
from grpc_gateway.wire_encoding import LengthDelimited
from protos.apache.rocketmq.v2.definition_pb2 import Code, MessageQueue, QueryOffsetPolicy, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    GetOffsetRequest,
    GetOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.loop_turns import LoopTurns
from remoting.messages import PullSysFlag, StoredMessage

# Maximum number of messages in a broker's reply.
_MAX_MESSAGES = 32
# Pulls that begin in one turn of the event loop.
_PULLS_PER_TURN = 4
# Messages of an inner batch after which other clients have their turn; a filter may skip thousands of small ones.
_MESSAGES_PER_TURN = 256
_NO_MESSAGES = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_UNREAD = status(Code.TOO_MANY_REQUESTS, "the client has not read its responses")
_LONG_POLLING = PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND
_POLICY_CODES = {
    QueryOffsetPolicy.BEGINNING: RequestCode.GET_MIN_OFFSET,
    QueryOffsetPolicy.END: RequestCode.GET_MAX_OFFSET,
    QueryOffsetPolicy.TIMESTAMP: RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
}


class _Queue(NamedTuple):
    """A message queue of a request."""

    topic: str
    broker: str
    queue_id: int

    @property
    def fields(self) -> dict[str, str]:
        return {"topic": self.topic, "queueId": str(self.queue_id), "bname": self.broker}


_MESSAGE = LengthDelimited(PullMessageResponse.DESCRIPTOR.fields_by_name["message"].number)


async def _write_status(rpc: Rpc, write: Write, status: Status) -> None:
    rpc.code = status.code
    await write([PullMessageResponse(status=status).SerializeToString()])


class PullService:
    """Serves pulls and offsets."""

    def __init__(self, core: Core, options: GatewayOptions) -> None:
        self._core = core
        self._options = options
        self._decompression = BodyDecompression(options.max_body)
        self._turns = LoopTurns(_PULLS_PER_TURN)

    async def pull(self, rpc: Rpc, request: PullMessageRequest, write: Write) -> None:
        """Write the status, the messages, and the offset of the next pull. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        expression = parse_filter(request.filter_expression)
        _check_offset(request.offset)
        await self._turns.next()
        if not rpc.may_hold(self._core.unread_limit):
            # Before the pull: a client with hundreds of streams would get as many replies into memory.
            await _write_status(rpc, write, _UNREAD)
            return
        reply = await self._request_pull(
            rpc, _pull_command(queue, group, expression, request, self._polling_time(rpc, request))
        )
        next_offset = request.offset
        if reply is None or reply.code in _NO_MESSAGES:
            await _write_status(rpc, write, OK)
        elif reply.code == ResponseCode.SUCCESS and not rpc.hold(len(reply.body), self._core.unread_limit):
            # The client may not read the status either; the messages must not wait with it.
            reply.body = b""
            await _write_status(rpc, write, _UNREAD)
            return
        elif reply.code == ResponseCode.SUCCESS:
            try:
                await _write_status(rpc, write, OK)
                for record in messages.decode_messages(reply.body):
                    async for stored in self._messages(record):
                        # An inner batch may begin before the requested offset.
                        if stored.queue_offset >= request.offset and expression.matches(stored.get(properties.TAGS)):
                            rpc.count_delivery(len(stored.body), stored.reconsume_times + 1)
                            await write([_MESSAGE.message(await self._v2_message(queue, stored))])
            finally:
                rpc.release(len(reply.body))
        elif reply.code == ResponseCode.PULL_OFFSET_MOVED:
            text = f"offset {request.offset} is outside the offsets of the queue"
            await _write_status(rpc, write, status(Code.ILLEGAL_OFFSET, text))
        else:
            await _write_status(rpc, write, status_from_reply(reply))
            return
        if reply is not None:
            next_offset = reply.integer("nextBeginOffset")
        await write([PullMessageResponse(next_offset=next_offset).SerializeToString()])

    async def _messages(self, record: StoredMessage) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a record. One that cannot be decoded is delivered as it is stored, as others are."""
        count = 0
        try:
            for stored in messages.iterate_messages(record, self._options.max_body):
                yield stored
                count += 1
                # The first message of a compressed batch follows its decompression.
                if count % _MESSAGES_PER_TURN == 0 or (count == 1 and stored is not record):
                    await asyncio.sleep(0)
        except BodyError:
            if count == 0:
                yield record

    async def _v2_message(self, queue: _Queue, stored: StoredMessage) -> bytes:
        attempt = stored.reconsume_times + 1
        if is_compressed(stored):
            # Just before it is sent, so that the decompressed messages of a reply are in memory one after the other.
            message = await self._decompression.message(stored, topic=queue.topic, delivery_attempt=attempt)
            return message.SerializeToString()
        return encode_stored(stored, queue.topic, None, attempt)

    async def update_offset(self, rpc: Rpc, request: UpdateOffsetRequest) -> UpdateOffsetResponse:
        """Store the offset of a group in a queue. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        _check_offset(request.offset)
        fields = {"consumerGroup": group, "commitOffset": str(request.offset)}
        return UpdateOffsetResponse(
            status=status_from_reply(await self._request(rpc, RequestCode.UPDATE_CONSUMER_OFFSET, queue, fields))
        )

    async def get_offset(self, rpc: Rpc, request: GetOffsetRequest) -> GetOffsetResponse:
        """Return the offset of a group in a queue. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        # Otherwise a broker may return 0 for a queue that the group has never read.
        fields = {"consumerGroup": group, "setZeroIfNotFound": "false"}
        reply = await self._request(rpc, RequestCode.QUERY_CONSUMER_OFFSET, queue, fields)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return GetOffsetResponse(
                status=status(Code.OFFSET_NOT_FOUND, f"consumer group {group} has no offset in this queue")
            )
        result, offset = _offset_result(reply)
        return GetOffsetResponse(status=result, offset=offset)

    async def query_offset(self, rpc: Rpc, request: QueryOffsetRequest) -> QueryOffsetResponse:
        """Return a queue's first offset, its end, or the offset of a time. Raises Refused, RemotingError."""
        queue = _queue(request.message_queue)
        code = _POLICY_CODES.get(request.query_offset_policy)
        if code is None:
            raise Refused(Code.BAD_REQUEST, f"query_offset_policy {request.query_offset_policy} is unknown")
        fields = {}
        if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            if not request.HasField("timestamp"):
                raise Refused(Code.BAD_REQUEST, "timestamp is required by query_offset_policy TIMESTAMP")
            # Not validated: brokers return the first or last offset for a time out of range.
            fields["timestamp"] = str(validation.milliseconds(request.timestamp))
        result, offset = _offset_result(await self._request(rpc, code, queue, fields))
        return QueryOffsetResponse(status=result, offset=offset)

    def _polling_time(self, rpc: Rpc, request: PullMessageRequest) -> int:
        """Return the time that the broker may wait for a message, in ms."""
        polling = min(validation.milliseconds(request.long_polling_timeout), int(self._options.max_polling * 1000))
        remaining = rpc.remaining()
        if remaining is not None:
            polling = min(polling, int((remaining - self._options.polling_margin) * 1000))
        return max(polling, 0)

    async def _request_pull(self, rpc: Rpc, command: RemotingCommand) -> RemotingCommand | None:
        """Return the reply; None if there is none shortly before the deadline.

        Brokers check only every five seconds whether a poll has timed out, which may be after the deadline.
        """
        remaining = rpc.remaining()
        fields = command.fields
        reply = rpc.request(self._core, command, fields["bname"], int(fields["queueId"]))
        if remaining is None or fields["suspendTimeoutMillis"] == "0":
            return await reply
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(remaining - self._options.polling_margin):
                return await reply
        return None

    async def _request(self, rpc: Rpc, code: RequestCode, queue: _Queue, fields: dict[str, str]) -> RemotingCommand:
        command = commands.request(code, {**queue.fields, **fields})
        return await rpc.request(self._core, command, queue.broker, queue.queue_id)


def _queue(queue: MessageQueue) -> _Queue:
    """Return the queue of a request. Raises Refused."""
    topic = validation.topic(queue.topic)
    if not queue.broker.name or queue.id < 0:
        raise Refused(Code.BAD_REQUEST, "message_queue must have a broker name and an id of at least 0")
    return _Queue(topic, queue.broker.name, queue.id)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise Refused(Code.ILLEGAL_OFFSET, f"offset must not be negative: {offset}")


def _pull_command(
    queue: _Queue, group: str, expression: Filter, request: PullMessageRequest, polling: int
) -> RemotingCommand:
    return commands.request(
        RequestCode.PULL_MESSAGE,
        {
            **queue.fields,
            "consumerGroup": group,
            "queueOffset": str(request.offset),
            "maxMsgNums": str(max(1, min(request.batch_size, _MAX_MESSAGES))),
            "sysFlag": str(int(_LONG_POLLING if polling else PullSysFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(polling),
            "subscription": expression.expression,
            "expressionType": expression.kind,
            "subVersion": "0",
        },
    )


def _offset_result(reply: RemotingCommand) -> tuple[Status, int]:
    """Return the status and the offset of a reply; 0 without an offset."""
    return status_from_reply(reply), reply.integer("offset") if reply.code == ResponseCode.SUCCESS else 0
