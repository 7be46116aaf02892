"""Reading a topic's message queues by offset, without committing anything."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from proxy.tools.cli.arguments import EARLIEST, LATEST, Filter, Start
from proxy.tools.cli.client import Client, CommandError
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import StoredMessage
from remoting.names import TOOLS_GROUP
from remoting.pulling import NOTHING, reading_fields
from remoting.routes import TopicRoute

_BATCH = 32
_C = RequestCode


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A message queue of a topic."""

    topic: str
    broker: str
    number: int

    @property
    def fields(self) -> dict[str, object]:
        """Return the ext fields that name it."""
        return {"topic": self.topic, "queueId": self.number, "bname": self.broker}

    def __str__(self) -> str:
        return f"{self.broker}/{self.number}"


def queues_of(route: TopicRoute) -> list[Queue]:
    """Return the readable queues of the topic."""
    return [Queue(route.topic, queues.broker, number) for queues in route.queues for number in range(queues.readable)]


async def bounds(client: Client, queue: Queue) -> tuple[int, int]:
    """Return the offset of the first message and the one after the last."""
    first, end = await asyncio.gather(
        client.ask(_C.GET_MIN_OFFSET, queue.fields), client.ask(_C.GET_MAX_OFFSET, queue.fields)
    )
    return first.integer("offset"), end.integer("offset")


async def begin_at(client: Client, queue: Queue, start: Start) -> int:
    """Return the offset of a starting point."""
    if start.time is not None:
        reply = await client.ask(_C.SEARCH_OFFSET_BY_TIMESTAMP, {**queue.fields, "timestamp": start.time})
        return reply.integer("offset")
    first, end = await bounds(client, queue)
    if start.edge == EARLIEST:
        return first
    return end if start.edge == LATEST else max(first, end - (start.last or 0))


class Reader:
    """Read one queue from an offset on, page by page."""

    def __init__(self, client: Client, queue: Queue, offset: int, wanted: Filter) -> None:
        self.queue = queue
        self.offset = offset
        self._client = client
        self._filter = wanted

    async def page(self, wait: float = 0.0) -> list[StoredMessage]:
        """Return the next matching messages, waiting up to `wait` seconds; possibly none, although more follow."""
        wanted, wait_ms = self._filter, int(wait * 1000)
        fields = {
            **self.queue.fields,
            **reading_fields(
                TOOLS_GROUP, self.offset, _BATCH, wait_ms=wait_ms, expression=wanted.expression, kind=wanted.kind
            ),
        }
        reply = await self._client.ask(_C.PULL_MESSAGE, fields, accept=NOTHING, wait=wait)
        following = reply.integer("nextBeginOffset")
        if reply.code == ResponseCode.PULL_OFFSET_MOVED and following == self.offset:
            raise CommandError(f"queue {self.queue} cannot be read at offset {self.offset}")
        self.offset = following
        if reply.code != ResponseCode.SUCCESS:
            return []
        found = messages.unwrap(messages.decode_messages(reply.body))
        return [message for message in found if self._filter.passes(message.get(properties.TAGS))]

    async def until(self, end: int) -> AsyncIterator[StoredMessage]:
        """Yield the messages before this offset, prefetching one page."""
        position = self.offset
        ahead = asyncio.create_task(self.page()) if position < end else None
        try:
            while ahead is not None:
                page = await ahead
                # Without progress, messages have expired since the end was read.
                ahead = asyncio.create_task(self.page()) if position < self.offset < end else None
                position = self.offset
                for message in page:
                    if message.queue_offset < end:
                        yield message
        finally:
            if ahead is not None:
                ahead.cancel()
        # Messages of a page beyond the end are kept for further reads.
        self.offset = min(self.offset, end)


async def merged(readers: Sequence[tuple[Reader, int]]) -> AsyncIterator[tuple[Queue, StoredMessage]]:
    """Yield the messages of queues up to an end each, by storage time, in order within each queue."""
    sources = [(reader.queue, reader.until(end)) for reader, end in readers]
    firsts = await asyncio.gather(*(_next(source) for _, source in sources))
    heap = [(message.store_timestamp, index, message) for index, message in enumerate(firsts) if message is not None]
    heapq.heapify(heap)
    while heap:
        _, index, message = heap[0]
        queue, source = sources[index]
        yield queue, message
        following = await _next(source)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following.store_timestamp, index, following))


async def _next(source: AsyncIterator[StoredMessage]) -> StoredMessage | None:
    return await anext(source, None)
