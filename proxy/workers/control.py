"""Between parent and worker: a socket pair, and frames on it.

A worker says when it is ready, hands in a snapshot of its metrics whenever it is asked for one, and asks its
colleagues, which the parent passes on. The end of the stream tells either side that the other is gone.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.observability.metrics import snapshot as snapshots
from proxy.observability.metrics.family import Snapshot
from proxy.workers.frames import BadFrame, Decoder, Frame, Kind, encode
from proxy.workers.worker_rpc import WorkerRpc

_log = logging.getLogger("gantry.workers")

_CHUNK = 256 * 1024


class Frames:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._complete: deque[Frame] = deque()
        self._bad = False

    @classmethod
    async def over(cls, end: socket.socket) -> "Frames":
        """Take over this end."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end))

    async def read(self) -> Frame | None:
        """The next frame; None when the other side is gone, or what it sends is none."""
        while not self._complete:
            try:
                data = b"" if self._bad else await self._reader.read(_CHUNK)
                if not data:
                    return None
                self._complete.extend(self._decoder.feed(data))
            except OSError:
                return None
            except BadFrame as error:
                self._bad = True
                _log.error("what comes between parent and worker cannot be read: %s", error)
        return self._complete.popleft()

    def write(self, frame: Frame) -> None:
        """Send a frame; to nobody where the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(encode(frame))

    @property
    def waiting(self) -> int:
        """Bytes that the other side has not taken."""
        return self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()


class Control:
    """A worker's end; of a process that is nobody's worker it does nothing, and has no colleagues."""

    def __init__(self, frames: Frames | None, snapshot: Callable[[], Snapshot], rpc: WorkerRpc | None = None) -> None:
        self.rpc = rpc
        self._frames = frames
        self._snapshot = snapshot
        self._gone = asyncio.Event()

    def ready(self) -> None:
        """Clients are served."""
        if self._frames is not None:
            self._frames.write(Frame(Kind.READY))

    async def until_gone(self, then: Callable[[], object]) -> None:
        """Call this when there is nobody any more to work for."""
        await self._gone.wait()
        _log.warning("the parent process is gone")
        then()

    async def answer(self, frames: Frames) -> None:
        """Do what frames ask for, until the parent is gone."""
        while (frame := await frames.read()) is not None:
            if frame.kind is Kind.SNAPSHOT:
                frames.write(Frame(Kind.SNAPSHOT, content=self._encoded()))
            elif self.rpc is not None:
                self.rpc.receive(frame)
        self._gone.set()

    def _encoded(self) -> bytes:
        try:
            return snapshots.encode(self._snapshot())
        except Exception:
            # A mistake of ours; who waits for an answer gets one, and that the parent goes must be noticed as ever.
            _log.exception("the metrics cannot be told")
            return snapshots.encode([])


@asynccontextmanager
async def controlled(
    descriptor: int | None, snapshot: Callable[[], Snapshot], number: int = 0, many: int = 1
) -> AsyncIterator[Control]:
    """Be the worker of this number, of `many`, whose parent has the other end of this socket; None: be nobody's."""
    if descriptor is None:
        yield Control(None, snapshot)
        return
    frames = await Frames.over(socket.socket(fileno=descriptor))
    rpc = WorkerRpc(number, many, frames.write)
    control = Control(frames, snapshot, rpc)
    answering = asyncio.ensure_future(control.answer(frames))
    try:
        yield control
    finally:
        rpc.close()
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        frames.close()
