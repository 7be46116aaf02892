"""The open streams of a connection: their ends, their changes, and the windows for received DATA."""

from collections.abc import Callable

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.limits import Limits
from grpc_gateway.http2.sender import FrameSender
from grpc_gateway.http2.stream import Stream
from grpc_gateway.http2.stream_ids import StreamIds


class StreamTable:
    """Open streams by identifier.

    sender: the sending side of the connection.
    open: the streams.
    ids: the identifiers that the peer has used.
    changed: streams that have changed since `take_changed`, each once.
    receiving: received bytes are being processed.
    receive_window: bytes of DATA that the peer may send on all streams together.
    """

    __slots__ = (
        "_stream_threshold",
        "_threshold",
        "_uncredited",
        "changed",
        "ids",
        "open",
        "receive_window",
        "receiving",
        "sender",
    )

    def __init__(self, now: float, limits: Limits, wake: Callable[[], None], on_overflow: Callable[[], None]) -> None:
        self.sender = FrameSender(now, limits, wake, self, on_overflow)
        self.open: dict[int, Stream] = {}
        self.ids = StreamIds(limits.remembered_resets)
        self.changed: list[Stream] = []
        self.receiving = False
        self.receive_window = limits.connection_window
        # Consumed bytes that are returned to the windows at once, to save WINDOW_UPDATE frames.
        self._threshold = limits.connection_window >> 2
        self._stream_threshold = limits.stream_window >> 1
        # Bytes consumed and not yet returned to the connection's window.
        self._uncredited = 0

    # Changes.

    def mark(self, stream: Stream) -> None:
        """Add a stream to the changed ones, unless the application itself has changed it."""
        if not stream.marked and self.receiving:
            stream.marked = True
            self.changed.append(stream)

    def take_changed(self) -> list[Stream]:
        """Return the streams that have changed since the last call, in the order of their changes."""
        changed, self.changed = self.changed, []
        for stream in changed:
            stream.marked = False
        return changed

    # Windows.

    def consume(self, stream: Stream, size: int) -> None:
        """Return `size` received bytes to the windows of the stream and of the connection."""
        self.credit(size)
        self.widen(stream, size)

    def widen(self, stream: Stream, size: int) -> None:
        """Return `size` received bytes to the stream's window."""
        if stream.ended or stream.closed:
            return
        stream.uncredited += size
        if stream.uncredited >= self._stream_threshold:
            self.sender.write(frames.window_update(stream.id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def credit(self, size: int) -> None:
        """Return `size` received bytes to the connection's window."""
        self._uncredited += size
        if self._uncredited >= self._threshold:
            self.sender.write(frames.window_update(0, self._uncredited))
            self.receive_window += self._uncredited
            self._uncredited = 0

    # Ends.

    def finish(self, stream: Stream) -> None:
        """Close a stream whose response has been sent, with RST_STREAM if its request goes on (section 8.1)."""
        stream.finished = True
        if stream.ended:
            stream.closed = True
            del self.open[stream.id]
            if stream.unread:
                self.credit(stream.unread)
                stream.unread = 0
        else:
            self.reset(stream, ErrorCode.NO_ERROR)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Close a stream with RST_STREAM."""
        self.sender.write(frames.rst_stream(stream.id, code))
        self.ids.remember_reset(stream.id)
        self.close(stream)

    def close(self, stream: Stream) -> None:
        """Close a stream without a frame, and discard its unsent data."""
        stream.closed = True
        self.open.pop(stream.id, None)
        self.sender.discard(stream)
        if stream.unread:
            self.credit(stream.unread)
            stream.unread = 0

    def close_all(self) -> None:
        """Close all streams and mark them as changed, as the connection ends."""
        for stream in list(self.open.values()):
            self.close(stream)
            if not stream.marked:
                stream.marked = True
                self.changed.append(stream)
