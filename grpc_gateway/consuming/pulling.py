"""PullMessage, UpdateOffset, GetOffset, QueryOffset: consuming by offset. (Official proxies do not serve these.)"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import NamedTuple

from grpc_gateway import message, validation
from grpc_gateway.call import Call
from grpc_gateway.consuming import filters
from grpc_gateway.consuming.filters import Filter
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, of_response, status
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message, MessageQueue, QueryOffsetPolicy, Status
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
from remoting.messages import PullSysFlag, StoredMessage

# As many messages as a broker gives at once.
_MAX = 32
_NOT_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_WAIT = PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND
_POLICIES = {
    QueryOffsetPolicy.BEGINNING: RequestCode.GET_MIN_OFFSET,
    QueryOffsetPolicy.END: RequestCode.GET_MAX_OFFSET,
    QueryOffsetPolicy.TIMESTAMP: RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
}


class _Queue(NamedTuple):
    """A message queue, as requests name it."""

    topic: str
    broker: str
    number: int

    @property
    def fields(self) -> dict[str, str]:
        return {"topic": self.topic, "queueId": str(self.number), "bname": self.broker}


class Pulling:
    """Pulls and offsets."""

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options

    async def pull(self, call: Call, request: PullMessageRequest) -> AsyncGenerator[PullMessageResponse, None]:
        """The status, the messages, and the offset to go on from. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        wanted = filters.of(request.filter_expression)
        _offset(request.offset)
        reply = await self._wait(call, request, _pull(queue, group, wanted, request, self._polling(call, request)))
        if reply is None or reply.code in _NOT_YET:
            yield PullMessageResponse(status=OK)
        elif reply.code == ResponseCode.SUCCESS:
            yield PullMessageResponse(status=OK)
            for stored in messages.unwrap(messages.decode_messages(reply.body)):
                # An inner batch may begin before the offset that was asked for.
                if stored.queue_offset >= request.offset and wanted.matches(stored.get(properties.TAGS)):
                    call.delivers(len(stored.body), stored.reconsume_times + 1)
                    yield PullMessageResponse(message=_shown(queue, stored))
        elif reply.code == ResponseCode.PULL_OFFSET_MOVED:
            yield PullMessageResponse(
                status=status(Code.ILLEGAL_OFFSET, f"the queue has no offset {request.offset} (any more)")
            )
        else:
            yield PullMessageResponse(status=of_response(reply))
            return
        yield PullMessageResponse(next_offset=request.offset if reply is None else reply.integer("nextBeginOffset"))

    async def update_offset(self, call: Call, request: UpdateOffsetRequest) -> UpdateOffsetResponse:
        """Store how far a group has come in a queue. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        _offset(request.offset)
        fields = {"consumerGroup": group, "commitOffset": str(request.offset)}
        return UpdateOffsetResponse(
            status=of_response(await self._ask(call, RequestCode.UPDATE_CONSUMER_OFFSET, queue, fields))
        )

    async def get_offset(self, call: Call, request: GetOffsetRequest) -> GetOffsetResponse:
        """How far a group has come in a queue, if it is known. Raises Refused, RemotingError."""
        queue, group = _queue(request.message_queue), validation.group(request.group)
        # Otherwise a broker may say 0 of a queue that a group has never read.
        fields = {"consumerGroup": group, "setZeroIfNotFound": "false"}
        reply = await self._ask(call, RequestCode.QUERY_CONSUMER_OFFSET, queue, fields)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return GetOffsetResponse(status=status(Code.OFFSET_NOT_FOUND, f"{group} has no offset in this queue"))
        found, offset = _answer(reply)
        return GetOffsetResponse(status=found, offset=offset)

    async def query_offset(self, call: Call, request: QueryOffsetRequest) -> QueryOffsetResponse:
        """The first offset of a queue, the one after its last, or that of a time. Raises Refused, RemotingError."""
        queue = _queue(request.message_queue)
        code = _POLICIES.get(request.query_offset_policy)
        if code is None:
            raise Refused(Code.BAD_REQUEST, "query_offset_policy is not set to a value that is known here")
        fields = {}
        if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            if not request.HasField("timestamp"):
                raise Refused(Code.BAD_REQUEST, "query_offset_policy TIMESTAMP needs a timestamp")
            # Whatever it is: a time that cannot be has the offset of one that is as early or late.
            fields["timestamp"] = str(validation.milliseconds(request.timestamp))
        found, offset = _answer(await self._ask(call, code, queue, fields))
        return QueryOffsetResponse(status=found, offset=offset)

    def _polling(self, call: Call, request: PullMessageRequest) -> int:
        """How long the broker may wait for a message, in ms."""
        wait = min(validation.milliseconds(request.long_polling_timeout), int(self._options.max_polling * 1000))
        remaining = call.remaining()
        if remaining is not None:
            wait = min(wait, int((remaining - self._options.polling_margin) * 1000))
        return max(wait, 0)

    async def _wait(self, call: Call, request: PullMessageRequest, command: RemotingCommand) -> RemotingCommand | None:
        """The answer; None where there was none before it was time to tell the client so.

        Brokers look only every five seconds whether a wait is over, which may be too late for the call's deadline.
        """
        remaining = call.remaining()
        fields = command.fields
        answer = call.ask(self._core, command, fields["bname"], int(fields["queueId"]))
        if remaining is None or fields["suspendTimeoutMillis"] == "0":
            return await answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(remaining - self._options.polling_margin):
                return await answer
        return None

    async def _ask(self, call: Call, code: RequestCode, queue: _Queue, fields: dict[str, str]) -> RemotingCommand:
        command = commands.request(code, {**queue.fields, **fields})
        return await call.ask(self._core, command, queue.broker, queue.number)


def _queue(queue: MessageQueue) -> _Queue:
    """The queue of a request. Raises Refused."""
    topic = validation.topic(queue.topic)
    if not queue.broker.name or queue.id < 0:
        raise Refused(Code.BAD_REQUEST, "the message queue needs a broker name, and an id of 0 or more")
    return _Queue(topic, queue.broker.name, queue.id)


def _offset(offset: int) -> None:
    if offset < 0:
        raise Refused(Code.ILLEGAL_OFFSET, f"an offset is not negative: {offset}")


def _pull(queue: _Queue, group: str, wanted: Filter, request: PullMessageRequest, wait: int) -> RemotingCommand:
    return commands.request(
        RequestCode.PULL_MESSAGE,
        {
            **queue.fields,
            "consumerGroup": group,
            "queueOffset": str(request.offset),
            "maxMsgNums": str(max(1, min(request.batch_size, _MAX))),
            "sysFlag": str(int(_WAIT if wait else PullSysFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(wait),
            "subscription": wanted.expression,
            "expressionType": wanted.kind,
            "subVersion": "0",
        },
    )


def _shown(queue: _Queue, stored: StoredMessage) -> Message:
    return message.of_stored(stored, topic=queue.topic, delivery_attempt=stored.reconsume_times + 1)


def _answer(reply: RemotingCommand) -> tuple[Status, int]:
    """The status and the offset of an answer."""
    return of_response(reply), reply.integer("offset") if reply.code == ResponseCode.SUCCESS else 0
