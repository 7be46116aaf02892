"""The live tap of several workers: their streams, joined as they come."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from proxy.admin.http import worker_request
from proxy.admin.http.guard import Receive, Send
from proxy.admin.http.problems import Refused
from proxy.admin.http.scatter_gather import Inquiry
from proxy.admin.http.worker_request import Reply
from proxy.operations.request_tap import SILENCE
from proxy.workers.worker_rpc import Gone, silence

# Events that wait for the watcher; workers wait meanwhile, and drop what does not fit in the end.
_MAX_WAITING = 64
# Seconds for a stream to begin, and beyond the usual silence for its next sign of life.
_TIMEOUT = 5.0
# Seconds until a worker that has no stream is asked again.
_PAUSE = 1.0
# Seconds that the other streams have to end once the first has.
_GRACE = 1.0
_DATA = b"\ndata: {"


async def tapped(inquiry: Inquiry, receive: Receive, send: Send) -> Reply | None:
    """Send the stream of all workers, or of the one that is named; a problem is returned instead."""
    return await _Streams(inquiry).run(receive, send)


class _Streams:
    """One watcher's streams. The one of this worker, or of the one that is named, begins and ends it."""

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry
        self._first = inquiry.here if inquiry.named is None else inquiry.named
        self._reply = Reply(self._first)
        self._begun = asyncio.Event()
        self._over = asyncio.Event()
        # None: there are no more.
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING)

    async def run(self, receive: Receive, send: Send) -> Reply | None:
        first = asyncio.ensure_future(self._lead())
        tasks: list[asyncio.Future[Any]] = [first]
        try:
            begun = asyncio.ensure_future(self._begun.wait())
            tasks.append(begun)
            await asyncio.wait((first, begun), return_when=asyncio.FIRST_COMPLETED)
            if not self._begun.is_set() or not self._reply.ok:
                await first
                return self._reply
            await send({"type": "http.response.start", "status": 200, "headers": self._reply.headers})
            others = [worker for worker in self._inquiry.workers if worker != self._first]
            following = [asyncio.ensure_future(self._follow(worker)) for worker in others]
            ending = asyncio.ensure_future(self._end(first, following))
            sending = asyncio.ensure_future(self._send(send))
            leaving = asyncio.ensure_future(_left(receive))
            tasks += [*following, ending, sending, leaving]
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        """The stream that begins and ends all. Raises Refused where it cannot even begin."""
        try:
            await self._inquiry.stream(self._first, self._take, _TIMEOUT, SILENCE + _TIMEOUT)
        except (Gone, TimeoutError):
            if not self._begun.is_set():
                more = {"missing_workers": [self._first]}
                raise Refused(503, silence(self._first), more=more) from None
            await self._events.put(_event("missing", self._first))

    async def _take(self, part: bytes) -> None:
        piece = worker_request.content(part)
        if not self._begun.is_set() or not self._reply.ok:
            self._reply.take(part)
            self._begun.set()
        elif piece is not None:
            await self._events.put(_marked(piece, self._first))

    async def _follow(self, worker: int) -> None:
        """Another worker's stream, again where it breaks off."""
        missing = False

        async def take(part: bytes) -> None:
            nonlocal missing
            piece = worker_request.content(part)
            if piece is None:
                if worker_request.head(part)[0] != 200:
                    # It has as many streams as it may have.
                    raise Gone
                if missing:
                    missing = False
                    await self._events.put(_event("joined", worker))
            elif not piece.startswith(b":"):
                await self._events.put(_marked(piece, worker))

        while not self._over.is_set():
            ended = False
            with contextlib.suppress(Gone, TimeoutError):
                await self._inquiry.stream(worker, take, _TIMEOUT, SILENCE + _TIMEOUT)
                # In good order: as all of them, or as that worker alone.
                ended = await self._wait()
            if not ended and not missing:
                missing = True
                await self._events.put(_event("missing", worker))
            await self._wait()

    async def _wait(self) -> bool:
        """Wait for a moment; whether the first stream has ended by then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), _PAUSE)
        return self._over.is_set()

    async def _end(self, first: "asyncio.Future[None]", following: "Sequence[asyncio.Future[None]]") -> None:
        await asyncio.wait((first,))
        self._over.set()
        if following:
            await asyncio.wait(following, timeout=_GRACE)
        await self._events.put(None)

    async def _send(self, send: Send) -> None:
        while (event := await self._events.get()) is not None:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Wait until the watcher has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _marked(piece: bytes, worker: int) -> bytes:
    """An event with the worker that it is of."""
    return piece.replace(_DATA, _DATA + b'"worker":%d,' % worker, 1)


def _event(name: str, worker: int) -> bytes:
    return b'event: %s\ndata: {"worker":%d}\n\n' % (name.encode(), worker)
