"""Scans: all messages of a topic within a time, queue after queue, in parts."""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

import orjson

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.operations import broker_requests
from proxy.operations.message_lookup import Found
from proxy.operations.operator_channel import BrokerRefused
from proxy.operations.services import AdminServices
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import StoredMessage
from remoting.names import TOOLS_GROUP
from remoting.pulling import NOTHING, reading_fields
from remoting.routes import TopicRoute

_BATCH = 32
# Maximum requests of one part: a filter may match nothing for long, and a topic may have many queues.
_MAX_ASKED = 128
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Range:
    """Filter of a scan: inclusive times in ms since 1970; tags as in a subscription; a broker or queue, or all."""

    begin: int
    end: int
    tags: str = _ALL
    broker: str | None = None
    queue: int | None = None

    def fits(self, message: StoredMessage) -> bool:
        """Return whether a message within the time matches. Brokers compare only hashes of tags."""
        return self.tags == _ALL or message.get(properties.TAGS) in [tag.strip() for tag in self.tags.split("||")]


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Position at which a scan continues: an offset of a queue; -1: its first matching message."""

    broker: str = ""
    queue: int = 0
    offset: int = -1

    @classmethod
    def at(cls, one: Found) -> Self:
        """Return the cursor of a message."""
        return cls(one.broker, one.message.queue_id, one.message.queue_offset)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `__str__`. Raises Refused."""
        try:
            broker, queue, offset = orjson.loads(base64.urlsafe_b64decode(text))
            if isinstance(broker, str) and isinstance(queue, int) and isinstance(offset, int) and -1 <= offset < 2**63:
                return cls(broker, queue, offset)
        except (TypeError, ValueError):
            pass
        raise Refused(Code.BAD_REQUEST, "the scroll_id is none that was given out")

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([self.broker, self.queue, self.offset])).decode()


class Scan:
    """One part of a scan. `messages` yields each message; `cursor` is the next position, None at the end."""

    def __init__(self, services: AdminServices, route: TopicRoute, wanted: Range, cursor: Cursor) -> None:
        self.cursor: Cursor | None = cursor
        self._services = services
        self._topic = route.topic
        self._wanted = wanted
        self._queues = [
            (queues.broker, queue)
            for queues in route.queues
            for queue in range(queues.readable)
            if wanted.broker in (None, queues.broker) and wanted.queue in (None, queue)
        ]
        self._asked = 0

    async def messages(self) -> AsyncGenerator[Found, None]:
        """Yield messages by broker, queue and offset. Raises RemotingError."""
        start = self.cursor or Cursor()
        for broker, queue in self._queues:
            if (broker, queue) < (start.broker, start.queue):
                continue
            offset = start.offset if (broker, queue) == (start.broker, start.queue) else -1
            self.cursor = Cursor(broker, queue, offset)
            async with aclosing(self._of(broker, queue, offset)) as found:
                async for message in found:
                    yield Found(broker, message)
            if self._asked >= _MAX_ASKED:
                return
        self.cursor = None

    async def _of(self, broker: str, queue: int, offset: int) -> AsyncGenerator[StoredMessage, None]:
        where = {"topic": self._topic, "queueId": str(queue)}
        if offset < 0:
            fields = {**where, "timestamp": str(self._wanted.begin)}
            offset = await self._ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        end = await self._ask(broker, RequestCode.GET_MAX_OFFSET, where)
        while offset < end and self._asked < _MAX_ASKED:
            found, following = await self._pull(broker, where, offset)
            for message in found:
                self.cursor = Cursor(broker, queue, message.queue_offset + 1)
                if message.store_timestamp > self._wanted.end:
                    # All later messages of the queue are out of range too; continue with the next queue.
                    return
                if message.store_timestamp >= self._wanted.begin and self._wanted.fits(message):
                    yield message
            if following <= offset:
                return
            offset = following
            self.cursor = Cursor(broker, queue, offset)

    async def _ask(self, broker: str, code: RequestCode, fields: dict[str, str]) -> int:
        self._asked += 1
        return int((await broker_requests.ask(self._services, broker, code, dict(fields))).fields.get("offset", "0"))

    async def _pull(self, broker: str, where: dict[str, str], offset: int) -> tuple[list[StoredMessage], int]:
        """Return messages from an offset on, and the next offset."""
        fields = {**where, **reading_fields(TOOLS_GROUP, offset, _BATCH, expression=self._wanted.tags)}
        self._asked += 1
        reply = await broker_requests.request(self._services, broker, RequestCode.PULL_MESSAGE, fields)
        if reply.code not in (ResponseCode.SUCCESS, *NOTHING):
            raise BrokerRefused(broker, reply.code, reply.remark)
        found = messages.decode_messages(reply.body) if reply.code == ResponseCode.SUCCESS else []
        return found, int(reply.fields.get("nextBeginOffset", "0"))
