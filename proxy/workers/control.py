"""Between parent and worker: a socket pair, and frames on it, each a length of 4 bytes and that many more.

A worker sends an empty frame when it is ready; it answers each empty frame with a snapshot of its metrics. The end of
the stream tells either side that the other is gone.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.metrics.family import Snapshot
from proxy.metrics.snapshot import encode

_log = logging.getLogger("gantry.workers")

_LENGTH = struct.Struct(">I")
# A snapshot is some megabytes at the very most.
_LARGEST = 2**28


class Frames:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> "Frames":
        """Take over this end."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end))

    async def read(self) -> bytes | None:
        """The next frame; None when the other side is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return await self._reader.readexactly(length) if length <= _LARGEST else None
        except (asyncio.IncompleteReadError, OSError):
            return None

    def write(self, frame: bytes = b"") -> None:
        """Send a frame; to nobody where the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(frame)) + frame)

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()


class Control:
    """A worker's end; of a process that is nobody's worker it does nothing."""

    def __init__(self, frames: Frames | None, snapshot: Callable[[], Snapshot]) -> None:
        self._frames = frames
        self._snapshot = snapshot
        self._gone = asyncio.Event()

    def ready(self) -> None:
        """Clients are served."""
        if self._frames is not None:
            self._frames.write()

    async def until_gone(self, then: Callable[[], object]) -> None:
        """Call this when there is nobody any more to work for."""
        await self._gone.wait()
        _log.warning("the parent process is gone")
        then()

    async def answer(self, frames: Frames) -> None:
        """Hand in a snapshot whenever it is asked for, until the parent is gone."""
        while await frames.read() is not None:
            frames.write(self._encoded())
        self._gone.set()

    def _encoded(self) -> bytes:
        try:
            return encode(self._snapshot())
        except Exception:
            # A mistake of ours; who waits for an answer gets one, and that the parent goes must be noticed as ever.
            _log.exception("the metrics cannot be told")
            return encode([])


@asynccontextmanager
async def controlled(descriptor: int | None, snapshot: Callable[[], Snapshot]) -> AsyncIterator[Control]:
    """Be a worker whose parent has the other end of this socket; None: be nobody's."""
    if descriptor is None:
        yield Control(None, snapshot)
        return
    frames = await Frames.over(socket.socket(fileno=descriptor))
    control = Control(frames, snapshot)
    answering = asyncio.ensure_future(control.answer(frames))
    try:
        yield control
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        frames.close()
