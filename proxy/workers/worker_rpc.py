"""Remote calls between workers, through the supervisor: a reply is a stream of parts. Tasks, but no I/O."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from proxy.workers.frames import Frame, Kind

_log = logging.getLogger("gantry.workers")

# Unread parts that a callee may send; the caller returns credit for half a window at a time.
_WINDOW = 32

SendPart = Callable[[bytes], Awaitable[None]]
# Replies to a request's content in parts.
Handler = Callable[[bytes, SendPart], Awaitable[None]]


class WorkerUnavailable(Exception):
    """Another worker does not reply: it is not running, does not serve the request, or failed."""


class WorkerRpc:
    """This worker's end of all calls. `handlers` serve requests, by name."""

    def __init__(self, number: int, workers: int, send: Callable[[Frame], None]) -> None:
        self.number = number
        self.numbers = range(workers)
        self.handlers: dict[str, Handler] = {}
        self._send = send
        # Random, so that a restarted worker does not take replies to its predecessor's calls for its own.
        self._call_numbers = count(random.getrandbits(62) + 1)
        self._calls: dict[int, Call] = {}
        self._served: dict[tuple[int, int], _ServedCall] = {}

    @asynccontextmanager
    async def call(self, worker: int, name: str, content: bytes) -> AsyncIterator["Call"]:
        """Call another worker; leaving the context cancels the call."""
        number = next(self._call_numbers)
        call = self._calls[number] = Call(worker, number, self._send)
        self._send(Frame(Kind.REQUEST, worker, number, name.encode() + b"\n" + content))
        try:
            yield call
        finally:
            del self._calls[number]
            if not call.ended:
                self._send(Frame(Kind.CANCEL, worker, number))

    async def request(self, worker: int, name: str, content: bytes, timeout: float) -> list[bytes]:
        """Return all parts of another worker's reply. Raises WorkerUnavailable, and TimeoutError after `timeout` s."""
        async with asyncio.timeout(timeout), self.call(worker, name, content) as call:
            return [part async for part in call]

    def receive(self, frame: Frame) -> None:
        """Process a frame from another worker, or from the supervisor on its behalf."""
        if frame.kind is Kind.REQUEST:
            self._serve(frame)
        elif frame.kind is Kind.UNAVAILABLE and not frame.call:
            self._end_calls(frame.worker)
        elif frame.kind in (Kind.CREDIT, Kind.CANCEL):
            served = self._served.get((frame.worker, frame.call))
            if served is not None:
                served.receive(frame)
        else:
            call = self._calls.get(frame.call)
            if call is not None and call.worker == frame.worker:
                call.receive(frame)

    def close(self) -> None:
        """Cancel all calls that this worker serves."""
        for served in list(self._served.values()):
            served.cancel()

    def _serve(self, frame: Frame) -> None:
        name, _, content = frame.content.partition(b"\n")
        handler = self.handlers.get(name.decode("utf-8", "replace"))
        if handler is None:
            self._send(Frame(Kind.UNAVAILABLE, frame.worker, frame.call))
            return
        key = frame.worker, frame.call
        served = self._served[key] = _ServedCall(frame.worker, frame.call, self._send)
        served.start(handler, content, lambda: self._served.pop(key, None))

    def _end_calls(self, worker: int) -> None:
        for call in list(self._calls.values()):
            if call.worker == worker:
                call.receive(Frame(Kind.UNAVAILABLE, worker, call.number))
        for (caller, _), served in list(self._served.items()):
            if caller == worker:
                served.cancel()


class Call:
    """A call in flight; iterating over it yields the reply's parts. Raises WorkerUnavailable."""

    def __init__(self, worker: int, number: int, send: Callable[[Frame], None]) -> None:
        self.worker = worker
        self.number = number
        self.ended = False
        self._send = send
        self._failed = False
        self._parts: deque[bytes] = deque()
        # Parts read since credit was returned.
        self._read = 0
        self._wake = asyncio.Event()

    def receive(self, frame: Frame) -> None:
        """Process a part of the reply, or its end."""
        if frame.kind is Kind.PART:
            self._parts.append(frame.content)
        else:
            self.ended = True
            self._failed = frame.kind is Kind.UNAVAILABLE
        self._wake.set()

    def __aiter__(self) -> "Call":
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._failed:
                raise WorkerUnavailable(f"worker {self.worker} does not answer")
            if self.ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        part = self._parts.popleft()
        self._read += 1
        if self._read == _WINDOW // 2:
            self._read = 0
            if not self.ended:
                self._send(Frame(Kind.CREDIT, self.worker, self.number))
        return part


class _ServedCall:
    """A call from another worker that this one serves."""

    def __init__(self, worker: int, call: int, send: Callable[[Frame], None]) -> None:
        self._worker = worker
        self._call = call
        self._send = send
        self._credit = _WINDOW
        self._credited = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, handler: Handler, content: bytes, done: Callable[[], object]) -> None:
        """Run the handler; `done` is called when it ends, fails or is cancelled."""
        self._task = asyncio.ensure_future(self._run(handler, content))
        self._task.add_done_callback(lambda _: done())

    def receive(self, frame: Frame) -> None:
        """Process credit or cancellation."""
        if frame.kind is Kind.CANCEL:
            self.cancel()
        else:
            self._credit += _WINDOW // 2
            self._credited.set()

    def cancel(self) -> None:
        """Stop the handler."""
        assert self._task is not None
        self._task.cancel()

    async def _run(self, handler: Handler, content: bytes) -> None:
        try:
            await handler(content, self._send_part)
        except asyncio.CancelledError:
            self._send(Frame(Kind.UNAVAILABLE, self._worker, self._call))
            raise
        except Exception:
            # A bug: the caller must not wait for its timeout.
            _log.exception("a request of worker %d failed", self._worker)
            self._send(Frame(Kind.UNAVAILABLE, self._worker, self._call))
        else:
            self._send(Frame(Kind.END, self._worker, self._call))

    async def _send_part(self, part: bytes) -> None:
        while not self._credit:
            self._credited.clear()
            await self._credited.wait()
        self._credit -= 1
        self._send(Frame(Kind.PART, self._worker, self._call, part))
