"""What workers ask each other over their parent: calls whose answers come in parts. No I/O here, but tasks."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from proxy.workers.frames import Frame, Kind

_log = logging.getLogger("gantry.workers")

# Parts that an answer may be ahead of whoever reads it; those that were read are told of half as many at a time.
_WINDOW = 32

Tell = Callable[[bytes], Awaitable[None]]
# Answers a question's content by telling parts.
Answer = Callable[[bytes, Tell], Awaitable[None]]


class Gone(Exception):
    """A colleague does not answer: it has ended, has not begun, or could not."""


def outcome(error: Gone | TimeoutError) -> str:
    """What has become of a question without an answer, as metrics call it."""
    return "late" if isinstance(error, TimeoutError) else "gone"


def silence(worker: int) -> str:
    """That a worker does not answer, in words."""
    return f"worker {worker} does not answer"


class WorkerRpc:
    """The workers, as the one with this number sees the others. `answers` is what can be asked, by name."""

    def __init__(self, number: int, many: int, send: Callable[[Frame], None]) -> None:
        self.number = number
        self.many = many
        self.answers: dict[str, Answer] = {}
        self._send = send
        # A worker that takes this one's place must not get what it asked for.
        self._numbers = count(random.getrandbits(62) + 1)
        self._calls: dict[int, Call] = {}
        self._asked: dict[tuple[int, int], _Asked] = {}

    @property
    def all(self) -> range:
        """The numbers of all workers."""
        return range(self.many)

    @asynccontextmanager
    async def ask(self, worker: int, name: str, content: bytes) -> AsyncIterator["Call"]:
        """Ask another worker; to leave the call is to want no more of it."""
        number = next(self._numbers)
        call = self._calls[number] = Call(worker, number, self._send)
        self._send(Frame(Kind.ASK, worker, number, name.encode() + b"\n" + content))
        try:
            yield call
        finally:
            del self._calls[number]
            if not call.over:
                self._send(Frame(Kind.STOP, worker, number))

    async def whole(self, worker: int, name: str, content: bytes, patience: float) -> list[bytes]:
        """All parts of another worker's answer. Raises Gone, and TimeoutError after `patience` seconds."""
        async with asyncio.timeout(patience), self.ask(worker, name, content) as call:
            return [part async for part in call]

    def receive(self, frame: Frame) -> None:
        """A colleague has sent a frame, or the parent says that there is none."""
        if frame.kind is Kind.ASK:
            self._begin(frame)
        elif frame.kind is Kind.GONE and not frame.call:
            self._leave(frame.worker)
        elif frame.kind in (Kind.MORE, Kind.STOP):
            asked = self._asked.get((frame.worker, frame.call))
            if asked is not None:
                asked.receive(frame)
        else:
            call = self._calls.get(frame.call)
            if call is not None and call.worker == frame.worker:
                call.receive(frame)

    def close(self) -> None:
        """Answer nobody any more."""
        for asked in list(self._asked.values()):
            asked.cancel()

    def _begin(self, frame: Frame) -> None:
        name, _, content = frame.content.partition(b"\n")
        answer = self.answers.get(name.decode("utf-8", "replace"))
        if answer is None:
            self._send(Frame(Kind.GONE, frame.worker, frame.call))
            return
        key = frame.worker, frame.call
        asked = self._asked[key] = _Asked(frame.worker, frame.call, self._send)
        asked.start(answer, content, lambda: self._asked.pop(key, None))

    def _leave(self, worker: int) -> None:
        for call in list(self._calls.values()):
            if call.worker == worker:
                call.receive(Frame(Kind.GONE, worker, call.number))
        for (asker, _), asked in list(self._asked.items()):
            if asker == worker:
                asked.cancel()


class Call:
    """A question under way: iterate over it for the answer's parts. Raises Gone."""

    def __init__(self, worker: int, number: int, send: Callable[[Frame], None]) -> None:
        self.worker = worker
        self.number = number
        self.over = False
        self._send = send
        self._gone = False
        self._parts: deque[bytes] = deque()
        self._taken = 0
        self._wake = asyncio.Event()

    def receive(self, frame: Frame) -> None:
        """A part of the answer, or its end."""
        if frame.kind is Kind.PART:
            self._parts.append(frame.content)
        else:
            self.over = True
            self._gone = frame.kind is Kind.GONE
        self._wake.set()

    def __aiter__(self) -> "Call":
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._gone:
                raise Gone(silence(self.worker))
            if self.over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        part = self._parts.popleft()
        self._taken += 1
        if self._taken == _WINDOW // 2:
            self._taken = 0
            if not self.over:
                self._send(Frame(Kind.MORE, self.worker, self.number))
        return part


class _Asked:
    """A question of a colleague's that is being answered."""

    def __init__(self, worker: int, call: int, send: Callable[[Frame], None]) -> None:
        self._worker = worker
        self._call = call
        self._send = send
        self._room = _WINDOW
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, answer: Answer, content: bytes, done: Callable[[], object]) -> None:
        """Begin to answer; `done` is called at the end, whatever it is."""
        self._task = asyncio.ensure_future(self._run(answer, content))
        self._task.add_done_callback(lambda _: done())

    def receive(self, frame: Frame) -> None:
        """The asker has room for more, or wants nothing more."""
        if frame.kind is Kind.STOP:
            self.cancel()
        else:
            self._room += _WINDOW // 2
            self._more.set()

    def cancel(self) -> None:
        """Nobody wants the answer."""
        assert self._task is not None
        self._task.cancel()

    async def _run(self, answer: Answer, content: bytes) -> None:
        try:
            await answer(content, self._tell)
        except asyncio.CancelledError:
            self._send(Frame(Kind.GONE, self._worker, self._call))
            raise
        except Exception:
            # A mistake of ours; who waits for an answer is told that there is none.
            _log.exception("a question of worker %d could not be answered", self._worker)
            self._send(Frame(Kind.GONE, self._worker, self._call))
        else:
            self._send(Frame(Kind.END, self._worker, self._call))

    async def _tell(self, part: bytes) -> None:
        while not self._room:
            self._more.clear()
            await self._more.wait()
        self._room -= 1
        self._send(Frame(Kind.PART, self._worker, self._call, part))
