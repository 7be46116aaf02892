"""Scans: all messages of a topic within a time, queue after queue, in parts."""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

import orjson

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.operations.broker_requests import SHORT_TIMEOUT
from proxy.operations.cooperative_yield import CooperativeYield
from proxy.operations.messages import stored_messages
from proxy.operations.messages.message_lookup import Found
from proxy.operations.replica import Replica
from remoting import properties
from remoting.messages import StoredMessage
from remoting.routes import TopicRoute

# Maximum requests of one part: a filter may match nothing for long, and a topic may have many queues.
_MAX_ASKED = 128
_ALL = "*"


@dataclass(frozen=True, slots=True)
class ScanFilter:
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

    def __init__(self, replica: Replica, route: TopicRoute, wanted: ScanFilter, cursor: Cursor) -> None:
        self.cursor: Cursor | None = cursor
        self._replica = replica
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
        where = (self._replica, broker, self._topic, queue)
        if offset < 0:
            self._asked += 1
            offset = await stored_messages.find_stored_at(*where, self._wanted.begin, timeout=SHORT_TIMEOUT)
        self._asked += 1
        end = await stored_messages.find_end(*where, timeout=SHORT_TIMEOUT)
        pause = CooperativeYield()
        while offset < end and self._asked < _MAX_ASKED:
            self._asked += 1
            found, following = await stored_messages.read(*where, offset, tags=self._wanted.tags, timeout=SHORT_TIMEOUT)
            for message in stored_messages.unwrap(found):
                # An inner batch may begin before the offset, and have millions of messages.
                await pause.checkpoint()
                if message.queue_offset < offset:
                    continue
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
