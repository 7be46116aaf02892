"""Pages of a topic's messages by store time, read from its queues in either direction without a consumer group."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from proxy.operations.cooperative_yield import CooperativeYield
from proxy.operations.messages import stored_messages
from proxy.operations.messages.message_lookup import Found
from proxy.operations.paging import BadCursor, PageRequest, Place, cursor_of
from proxy.operations.replica import Replica
from remoting.message_query import EVER

# Messages of one chunk of a queue; queues that are opened concurrently.
_CHUNK = 32
_MAX_CONCURRENT = 16
# Chunks of one page, in addition to the first of each queue: a filter may match nothing for long.
_MAX_CHUNKS = 128

_View = TypeVar("_View")


@dataclass(frozen=True, slots=True)
class QueueName:
    """A message queue of a topic."""

    topic: str
    broker: str
    number: int


@dataclass(frozen=True, slots=True)
class PageRange:
    """A part of each queue: store times in ms since 1970, inclusive, and the first offset. descending: newest first.

    after: the place behind which a page begins; None: the first page.
    """

    begin: int = 0
    end: int = EVER
    offset: int = 0
    descending: bool = True
    after: Place | None = None

    def holds(self, place: Place) -> bool:
        """Return whether a message is in the range and behind the place of the former page."""
        if not self.begin <= place.value <= self.end:
            return False
        return self.after is None or (place < self.after if self.descending else place > self.after)


def place_of(found: Found) -> Place:
    """Return the place of a message in the order of a page: by store time, then by queue and offset."""
    message = found.message
    return Place(message.store_timestamp, 0, f"{found.broker}/{message.queue_id:05}/{message.queue_offset:019}")


def page_request(limit: int, cursor: str | None, oldest: bool) -> PageRequest:
    """Read a request for a page of messages by store time. oldest: the oldest first. Raises BadCursor."""
    page = PageRequest.parse("stored" if oldest else "-stored", limit, cursor)
    if page.after is not None and type(page.after.value) is not int:
        raise BadCursor
    return page


async def read_page(
    replica: Replica,
    queues: list[QueueName],
    wanted: PageRange,
    page: PageRequest,
    view: Callable[[Found], _View | None],
) -> tuple[list[_View], str | None]:
    """Return the messages of one page that `view` presents, and the cursor of the next page; None: it is the last.

    Raises RemotingError.
    """
    found: list[_View] = []
    last: Place | None = None
    complete = True
    async with aclosing(scan(replica, queues, wanted, view)) as scanned:
        try:
            async for place, presented in scanned:
                if len(found) == page.limit:
                    complete = False
                    break
                last = place
                if presented is not None:
                    found.append(presented)
        except Exhausted:
            complete = False
    return found, None if complete or last is None else cursor_of(last, page.order)


class Exhausted(Exception):
    """The chunks of a page are used up."""


@dataclass(slots=True)
class _Budget:
    chunks: int = field(default=_MAX_CHUNKS)

    def take(self) -> None:
        """Count a chunk. Raises Exhausted."""
        if self.chunks <= 0:
            raise Exhausted
        self.chunks -= 1


async def scan(
    replica: Replica, queues: list[QueueName], wanted: PageRange, view: Callable[[Found], _View]
) -> AsyncGenerator[tuple[Place, _View], None]:
    """Yield the messages of the queues in the range's order, each as `view` presents it.

    Messages themselves are not kept: their bodies may be large. Raises Exhausted after many chunks, RemotingError.
    """
    budget = _Budget()
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    sources = [_messages(replica, queue, wanted, view, budget) for queue in queues]

    async def first(source: AsyncIterator[tuple[Place, _View]]) -> tuple[Place, _View] | None:
        async with limit:
            return await anext(source, None)

    try:
        heads = await asyncio.gather(*(first(source) for source in sources))
        heap = [_Head(wanted.descending, *head, index) for index, head in enumerate(heads) if head is not None]
        heapq.heapify(heap)
        while heap:
            head = heap[0]
            yield head.place, head.view
            following = await anext(sources[head.source], None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, _Head(wanted.descending, *following, head.source))
    finally:
        for source in sources:
            await source.aclose()


@dataclass(slots=True)
class _Head(Generic[_View]):
    """The next message of a queue. source: the number of the queue."""

    descending: bool
    place: Place
    view: _View
    source: int

    def __lt__(self, other: "_Head[_View]") -> bool:
        return self.place > other.place if self.descending else self.place < other.place


async def _messages(
    replica: Replica, queue: QueueName, wanted: PageRange, view: Callable[[Found], _View], budget: _Budget
) -> AsyncGenerator[tuple[Place, _View], None]:
    """Yield the messages of one queue that are in the range, in its order."""
    lower, upper = await _offsets(replica, queue, wanted)
    chunks = (
        ((max(lower, top - _CHUNK), top) for top in range(upper, lower, -_CHUNK))
        if wanted.descending
        else ((low, min(low + _CHUNK, upper)) for low in range(lower, upper, _CHUNK))
    )
    for number, (start, stop) in enumerate(chunks):
        if number:
            budget.take()
        found = [
            (place, view(one))
            async for one in _read(replica, queue, start, stop)
            if wanted.holds(place := place_of(one))
        ]
        for item in reversed(found) if wanted.descending else found:
            yield item


async def _read(replica: Replica, queue: QueueName, start: int, stop: int) -> AsyncGenerator[Found, None]:
    """Yield the messages of a queue between two offsets; brokers return as many at once as they like."""
    pause = CooperativeYield()
    while start < stop:
        stored, following = await stored_messages.read(
            replica, queue.broker, queue.topic, queue.number, start, stop - start
        )
        for message in stored_messages.unwrap(stored):
            if start <= message.queue_offset < stop:
                yield Found(queue.broker, message)
            # An inner batch may have millions of messages.
            await pause.checkpoint()
        if following <= start:
            return
        start = following


async def _offsets(replica: Replica, queue: QueueName, wanted: PageRange) -> tuple[int, int]:
    """Return the first offset of the range in a queue, and the one after its last."""
    where = (queue.broker, queue.topic, queue.number)
    lower, upper = await stored_messages.bounds(replica, *where)
    lower = max(lower, wanted.offset)
    begin, end = wanted.begin, wanted.end
    if wanted.after is not None:
        begin, end = (begin, wanted.after.value) if wanted.descending else (wanted.after.value, end)
    if begin > 0:
        lower = max(lower, await stored_messages.find_stored_at(replica, *where, begin))
    if end < EVER:
        # Some versions of brokers return the last message, others the offset after it, for a time after all messages.
        upper = min(upper, await stored_messages.find_stored_at(replica, *where, end + 1) + 1)
    return lower, upper
