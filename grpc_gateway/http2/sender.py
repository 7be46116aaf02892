"""The sending side of an HTTP/2 connection: frames to send, the encoder, and the peer's windows."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from grpc_gateway.http2 import frames, settings_frame
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.hpack import Block, Encoder
from grpc_gateway.http2.limits import Limits
from grpc_gateway.http2.stream import Fields, Stream

_DATA: Final = frames.DATA
_CONTINUATION: Final = frames.CONTINUATION
_END_STREAM: Final = frames.END_STREAM
_END_HEADERS: Final = frames.END_HEADERS
# Larger frames save nothing, and would delay other streams.
_MAX_FRAME_SIZE: Final = 65_536

# Starts of the small frames of a response, by payload size.
_HEADERS_STARTS: Final = [frames.start(frames.HEADERS, _END_HEADERS, size) for size in range(256)]
_TRAILERS_STARTS: Final = [frames.start(frames.HEADERS, _END_HEADERS | _END_STREAM, size) for size in range(256)]


class SendListener(Protocol):
    """The owner of the streams that a sender sends for."""

    def finish(self, stream: Stream) -> None:
        """Handle that END_STREAM of the response has been sent."""

    def mark(self, stream: Stream) -> None:
        """Handle that some of the stream's waiting bytes have been sent."""


class FrameSender:
    """Frames in the order in which they are sent, as far as the peer's windows allow.

    output: encoded frames that `take` returns.
    flushed_bytes: bytes that `take` has returned.
    wake: called when `output` gets its first bytes.
    now: the time of the event being processed, in seconds.
    waiting: bytes of responses that wait for the peer's windows.
    progressed_at: when some of them were last sent.
    responded: a response has been sent since the peer's last ping.
    initial_window: the peer's window for new streams.
    peer_header_list: bytes of a header list that the peer accepts, or None without a limit.
    """

    __slots__ = (
        "_blocked",
        "_encoder",
        "_frame_size",
        "_hard_buffer",
        "_listener",
        "_on_overflow",
        "_window",
        "flushed_bytes",
        "initial_window",
        "now",
        "output",
        "peer_header_list",
        "progressed_at",
        "responded",
        "waiting",
        "wake",
    )

    def __init__(
        self,
        now: float,
        limits: Limits,
        wake: Callable[[], None],
        listener: SendListener,
        on_overflow: Callable[[], None],
    ) -> None:
        self.now = self.progressed_at = now
        self.wake = wake
        self.output: list[bytes] = []
        self.flushed_bytes = 0
        self.waiting = 0
        # The peer may ping before the first response.
        self.responded = True
        self.initial_window = settings_frame.DEFAULT_WINDOW
        self.peer_header_list: int | None = None
        self._listener = listener
        # Called when more than `Limits.hard_buffer` bytes wait for the peer.
        self._on_overflow = on_overflow
        self._hard_buffer = limits.hard_buffer
        self._encoder = Encoder()
        self._window = settings_frame.DEFAULT_WINDOW
        self._frame_size = settings_frame.DEFAULT_FRAME_SIZE
        # Streams that wait for the connection's window alone, the longest waiting first.
        self._blocked: dict[Stream, None] = {}

    def take(self) -> bytes:
        """Return and remove the bytes to send."""
        output, self.output = self.output, []
        data = output[0] if len(output) == 1 else b"".join(output)
        self.flushed_bytes += len(data)
        return data

    def write(self, data: bytes) -> None:
        """Append an encoded frame."""
        output = self.output
        if not output:
            self.wake()
        output.append(data)

    # Responses.

    def send_response(self, stream: Stream, head: Block, prefix: bytes, body: bytes, trailers: Block) -> None:
        """Send a whole response, in one step if the windows allow."""
        size = len(prefix) + len(body)
        if size > self._window or size > stream.send_window or size > self._frame_size or stream.outbox:
            stream.send_headers(head)
            stream.send_data(prefix + body)
            stream.send_trailers(trailers)
            return
        encoder, key, output = self._encoder, stream.key, self.output
        head_block = encoder.block(head)
        trailers_block = encoder.block(trailers)
        self._window -= size
        if not output:
            self.wake()
        output += (
            _HEADERS_STARTS[len(head_block)],
            key,
            head_block,
            frames.start(_DATA, 0, size),
            key,
            prefix,
            body,
            _TRAILERS_STARTS[len(trailers_block)],
            key,
            trailers_block,
        )
        self.responded = True
        self._listener.finish(stream)

    def send_headers(self, stream: Stream, fields: Fields, end: bool) -> None:
        """Send HEADERS, and CONTINUATION frames for a large block."""
        block = self._encoder.block(fields) if isinstance(fields, Block) else self._encoder.fields(fields)
        flags = _END_STREAM if end else 0
        size = self._frame_size
        kind = frames.HEADERS
        while len(block) > size:
            self.write(frames.start(kind, flags, size) + stream.key + block[:size])
            kind, flags, block = _CONTINUATION, 0, block[size:]
        self.write(frames.start(kind, flags | _END_HEADERS, len(block)) + stream.key + block)
        self.responded = True
        if end:
            self._listener.finish(stream)

    def send_data(self, stream: Stream, data: bytes, end: bool) -> None:
        """Append data to the stream's outbox, and send as much of it as the windows allow."""
        if stream.outbox is None:
            stream.outbox = deque()
            if not self.waiting:
                self.progressed_at = self.now
        if data or (end and not stream.outbox):
            size = self._frame_size
            stream.outbox += [data[start : start + size] for start in range(0, len(data), size)] or (data,)
        stream.waiting += len(data)
        self.waiting += len(data)
        stream.finished = end
        self.send_waiting(stream)
        if self.waiting > self._hard_buffer:
            self._on_overflow()

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send trailers, now or after the data that wait."""
        if stream.outbox:
            stream.trailers = fields
            stream.finished = True
        else:
            self.send_headers(stream, fields, True)

    def send_waiting(self, stream: Stream, one_frame: bool = False) -> None:
        """Send as much of a stream's outbox as the windows allow, or one frame of it."""
        outbox, waiting = stream.outbox, stream.waiting
        assert outbox is not None
        while outbox:
            data = outbox[0]
            size = min(len(data), self._frame_size, stream.send_window, self._window)
            if size <= 0 and data:
                break
            if size < len(data):
                outbox[0] = data[size:]
                data = data[:size]
            else:
                outbox.popleft()
            last = stream.finished and not outbox and stream.trailers is None
            self.write(frames.start(_DATA, _END_STREAM if last else 0, size) + stream.key + data)
            stream.send_window -= size
            self._window -= size
            stream.waiting -= size
            if one_frame:
                break
        self.waiting -= waiting - stream.waiting
        if waiting != stream.waiting:
            self.responded = True
            self.progressed_at = self.now
            self._listener.mark(stream)
        if not outbox:
            stream.outbox = None
            self._end_data(stream)
        elif stream.send_window > 0:
            self._blocked[stream] = None

    def _end_data(self, stream: Stream) -> None:
        if stream.trailers is not None:
            fields, stream.trailers = stream.trailers, None
            self.send_headers(stream, fields, True)
        elif stream.finished:
            self._listener.finish(stream)

    def discard(self, stream: Stream) -> None:
        """Drop the unsent data and trailers of a stream."""
        self._blocked.pop(stream, None)
        self.waiting -= stream.waiting
        stream.waiting = 0
        stream.outbox = stream.trailers = None

    # The peer's windows and settings.

    def widen(self, increment: int) -> None:
        """Widen the connection's window (RFC 9113 section 6.9). Raises ConnectionFault if it becomes too large."""
        self._window += increment
        if self._window > settings_frame.MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes the connection's window too large")
        blocked = self._blocked
        while blocked and self._window > 0:
            stream = next(iter(blocked))
            del blocked[stream]
            # One frame of each stream in turn, so that a large response does not delay the others.
            self.send_waiting(stream, one_frame=True)

    def apply_settings(self, settings: Iterable[tuple[int, int]], streams: Iterable[Stream]) -> None:
        """Apply the peer's SETTINGS. Raises ConnectionFault if they make a stream's window too large."""
        window = self.initial_window
        for identifier, value in settings:
            if identifier == settings_frame.HEADER_TABLE_SIZE:
                self._encoder.resize(value)
            elif identifier == settings_frame.MAX_FRAME_SIZE:
                self._frame_size = min(value, _MAX_FRAME_SIZE)
            elif identifier == settings_frame.MAX_HEADER_LIST_SIZE:
                self.peer_header_list = value
            elif identifier == settings_frame.INITIAL_WINDOW_SIZE:
                window = value
        difference = window - self.initial_window
        if not difference:
            return
        # Applied once: a frame may have thousands of values, each of which would change the windows of all streams,
        # also below 0 (RFC 9113 section 6.9.2).
        for stream in streams:
            stream.send_window += difference
            if stream.send_window > settings_frame.MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window too large")
        self.initial_window = window
