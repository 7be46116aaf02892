"""The socket pair between the supervisor and a worker, with frames on it.

A worker reports that it is ready, replies to requests for metrics snapshots, and calls other workers through the
supervisor. The end of the stream means that the other process has ended.
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

_READ_SIZE = 256 * 1024


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
        """Take ownership of this end."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end))

    async def read(self) -> Frame | None:
        """Return the next frame; None at the end of the stream, or if it cannot be read."""
        while not self._complete:
            try:
                data = b"" if self._bad else await self._reader.read(_READ_SIZE)
                if not data:
                    return None
                self._complete.extend(self._decoder.feed(data))
            except OSError:
                return None
            except BadFrame as error:
                self._bad = True
                _log.error("frames between supervisor and worker cannot be read: %s", error)
        return self._complete.popleft()

    def write(self, frame: Frame) -> None:
        """Send a frame; drop it if the stream has ended."""
        if not self._writer.is_closing():
            self._writer.write(encode(frame))

    @property
    def unread(self) -> int:
        """Bytes that the other side has not read."""
        return self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


class Control:
    """A worker's end; of a process without a supervisor, it does nothing."""

    def __init__(self, frames: Frames | None, snapshot: Callable[[], Snapshot], rpc: WorkerRpc | None = None) -> None:
        self.rpc = rpc
        self._frames = frames
        self._snapshot = snapshot
        self._supervisor_ended = asyncio.Event()

    def ready(self) -> None:
        """Report that clients are served."""
        if self._frames is not None:
            self._frames.write(Frame(Kind.READY))

    async def until_supervisor_ends(self, then: Callable[[], object]) -> None:
        """Call `then` when the supervisor has ended."""
        await self._supervisor_ended.wait()
        _log.warning("the supervisor has ended")
        then()

    async def process(self, frames: Frames) -> None:
        """Process frames until the supervisor ends."""
        while (frame := await frames.read()) is not None:
            if frame.kind is Kind.SNAPSHOT:
                frames.write(Frame(Kind.SNAPSHOT, content=self._encoded()))
            elif self.rpc is not None:
                self.rpc.receive(frame)
        self._supervisor_ended.set()

    def _encoded(self) -> bytes:
        try:
            return snapshots.encode(self._snapshot())
        except Exception:
            # A bug: the supervisor must not wait for its timeout, and its end must still be noticed.
            _log.exception("the metrics snapshot failed")
            return snapshots.encode([])


@asynccontextmanager
async def controlled(
    descriptor: int | None, snapshot: Callable[[], Snapshot], number: int = 0, workers: int = 1
) -> AsyncIterator[Control]:
    """Run as worker `number` of `workers`, whose supervisor has the other end of this socket; None: without one."""
    if descriptor is None:
        yield Control(None, snapshot)
        return
    frames = await Frames.over(socket.socket(fileno=descriptor))
    rpc = WorkerRpc(number, workers, frames.write)
    control = Control(frames, snapshot, rpc)
    processing = asyncio.ensure_future(control.process(frames))
    try:
        yield control
    finally:
        rpc.close()
        processing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await processing
        frames.close()
