"""The tap of several workers: their streams, merged as events arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass

import orjson

from proxy.operations.failures import Failure, FailureKind, OperationFailed, failure_of
from proxy.operations.request_tap import KEEP_ALIVE, EventKind, RequestTap, TapEvent, TapFilter
from proxy.operations.workers import Workers
from proxy.workers.worker_rpc import SendPart, WorkerRpc, WorkerUnavailable

_TAP = "tap"
# Events that wait for the watcher. Beyond them, workers queue events, and drop those that do not fit.
_MAX_WAITING = 64
# Seconds for a stream to begin, and beyond the usual interval for its next keep-alive.
_TIMEOUT = 5.0
# Seconds until a stream that has ended is opened again.
_RETRY_DELAY = 1.0
# Seconds that the other streams have to end once the first has.
_GRACE = 1.0

Events = AsyncGenerator[TapEvent, None]


@dataclass(frozen=True, slots=True)
class TapQuery:
    """The requests to stream, and for how many seconds; None: until the watcher closes the stream."""

    filter: TapFilter
    seconds: float | None = None


class MergedTap:
    """The taps of all workers as one."""

    def __init__(self, tap: RequestTap, workers: Workers) -> None:
        self._tap = tap
        self._workers = workers

    def join(self, rpc: WorkerRpc) -> None:
        """Serve this worker's stream to the others."""
        rpc.handlers[_TAP] = self._serve

    def stream(self, query: TapQuery, worker: int | None = None) -> Events:
        """Yield the events of all workers, or of one. Raises OperationFailed if the stream cannot begin.

        The stream of this worker, or of the given one, begins and ends it. Where there are several workers, each event
        has its worker; `missing` events report the end of a worker's stream, and `joined` events its next begin.
        """
        if not self._workers.several:
            return self._tap.stream(query.filter, query.seconds)
        first = self._workers.number if worker is None else worker
        others = [] if worker is not None else [number for number in self._workers.numbers if number != first]
        return _MergedStream(self, query, first, others).events()

    def events_of(self, worker: int, query: TapQuery) -> Events:
        """Yield one worker's events. Raises OperationFailed, WorkerUnavailable, TimeoutError."""
        if worker == self._workers.number:
            return self._tap.stream(query.filter, query.seconds)
        return self._remote_events(worker, query)

    async def _remote_events(self, worker: int, query: TapQuery) -> Events:
        rpc = self._workers.rpc
        assert rpc is not None
        timeout = _TIMEOUT
        try:
            async with rpc.call(worker, _TAP, orjson.dumps(asdict(query))) as call:
                while True:
                    async with asyncio.timeout(timeout):
                        part = await anext(call, None)
                    if part is None:
                        return
                    kind, data = orjson.loads(part)
                    if kind == "failure":
                        raise OperationFailed(Failure(FailureKind(data["kind"]), data["detail"]))
                    event = TapEvent(EventKind(kind), data)
                    if event.kind is EventKind.WATCHING:
                        self._workers.answered(worker)
                        timeout = KEEP_ALIVE + _TIMEOUT
                    yield event
        except (WorkerUnavailable, TimeoutError) as error:
            self._workers.missed(worker, error)
            raise

    async def _serve(self, content: bytes, send: SendPart) -> None:
        query = orjson.loads(content)
        async with aclosing(self._tap.stream(TapFilter(**query["filter"]), query["seconds"])) as events:
            try:
                async for event in events:
                    await send(orjson.dumps([event.kind, event.data]))
            except OperationFailed as error:
                failure = failure_of(error)
                await send(orjson.dumps(["failure", {"kind": failure.kind, "detail": failure.detail}]))


class _MergedStream:
    """One watcher's stream."""

    def __init__(self, tap: MergedTap, query: TapQuery, first: int, others: Sequence[int]) -> None:
        self._tap = tap
        self._query = query
        self._first = first
        self._others = others
        # Set once the first stream has ended.
        self._over = asyncio.Event()
        # None: there are no more.
        self._queue: asyncio.Queue[TapEvent | None] = asyncio.Queue(_MAX_WAITING)

    async def events(self) -> Events:
        """Yield the events of all streams."""
        async with aclosing(self._tap.events_of(self._first, self._query)) as first:
            try:
                begin = await anext(first)
            except (WorkerUnavailable, TimeoutError):
                detail = f"worker {self._first} does not answer"
                raise OperationFailed(Failure(FailureKind.UNAVAILABLE, detail), [self._first]) from None
            leading = asyncio.ensure_future(self._lead(first))
            following = [asyncio.ensure_future(self._follow(worker)) for worker in self._others]
            ending = asyncio.ensure_future(self._end(leading, following))
            try:
                yield begin
                while (event := await self._queue.get()) is not None:
                    yield event
            finally:
                tasks = [leading, *following, ending]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, events: Events) -> None:
        """Queue the events of the first stream."""
        try:
            async for event in events:
                await self._queue.put(_of_worker(event, self._first))
        except (WorkerUnavailable, TimeoutError):
            await self._queue.put(_of_worker(TapEvent(EventKind.MISSING), self._first))

    async def _follow(self, worker: int) -> None:
        """Queue the events of another worker's stream; open it again when it ends."""
        missing = False
        while not self._over.is_set():
            ended = False
            try:
                async with aclosing(self._tap.events_of(worker, self._query)) as events:
                    async for event in events:
                        if event.kind is EventKind.WATCHING:
                            if missing:
                                missing = False
                                await self._queue.put(_of_worker(TapEvent(EventKind.JOINED), worker))
                        elif event.kind is not EventKind.KEEP_ALIVE:
                            await self._queue.put(_of_worker(event, worker))
                # The first stream may end at the same time: then the worker is not missing.
                ended = await self._pause()
            except (WorkerUnavailable, TimeoutError, OperationFailed):
                pass
            if not ended and not missing:
                missing = True
                await self._queue.put(_of_worker(TapEvent(EventKind.MISSING), worker))
            await self._pause()

    async def _pause(self) -> bool:
        """Wait before the next attempt; return whether the first stream has ended."""
        try:
            await asyncio.wait_for(self._over.wait(), _RETRY_DELAY)
        except TimeoutError:
            return False
        return True

    async def _end(self, leading: "asyncio.Future[None]", following: "Sequence[asyncio.Future[None]]") -> None:
        await asyncio.wait((leading,))
        self._over.set()
        if following:
            await asyncio.wait(following, timeout=_GRACE)
        await self._queue.put(None)


def _of_worker(event: TapEvent, worker: int) -> TapEvent:
    if event.kind is EventKind.KEEP_ALIVE:
        return event
    return TapEvent(event.kind, {"worker": worker, **event.data})
