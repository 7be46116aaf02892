"""The server's side of an HTTP/2 connection (RFC 9113), without any I/O.

Bytes go in by `receive`, which returns the streams that have news; bytes to send come out by `take`. The news
are in the streams themselves (`Stream`), so a request that came and was reset in the same read is never begun. Streams
are answered by their own methods at any time; `wake` is called when that gives the first bytes to send.

Time comes from outside: `receive` and `check` are told what time it is.
"""

from collections import deque
from collections.abc import Callable

from grpc_gateway.http2 import frames, settings
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode, StreamFault
from grpc_gateway.http2.hpack import Block, Decoder, Encoder, HeaderListTooLarge
from grpc_gateway.http2.limits import DEFAULT_LIMITS, RATES, Abuse, Allowance, Limits
from grpc_gateway.http2.request_head import Field, RequestHead, check_trailers, make_field
from grpc_gateway.http2.stream import Fields, Stream

_DATA, _CONTINUATION = frames.DATA, frames.CONTINUATION
_END_STREAM, _END_HEADERS, _PADDED = frames.END_STREAM, frames.END_HEADERS, frames.PADDED
_MAX_STREAM = 2**31 - 1
# Early enough that streams in flight still get their numbers.
_LAST_COMFORTABLE_STREAM = _MAX_STREAM - 2 * 65_536
_DRAIN_PING = b"goingawa"
_KEEPALIVE_PING = b"keepaliv"
_REMEMBERED_GAPS = 16
# Larger frames save nothing, and would hold up other streams.
_LARGEST_FRAME = 65_536

# The starts of the small frames that answers are made of, by payload size.
_HEADERS_STARTS = [frames.start(frames.HEADERS, _END_HEADERS, size) for size in range(256)]
_TRAILERS_STARTS = [frames.start(frames.HEADERS, _END_HEADERS | _END_STREAM, size) for size in range(256)]


class Connection:
    """All methods may be called at any time; after a fault, and after `lost`, they do nothing.

    streams: those that are not closed. fault: why the connection was given up. waiting: bytes of answers that wait for
    the peer's windows. resets, pings: received ones, counted.
    """

    __slots__ = (
        "_acknowledged",
        "_allowances",
        "_block",
        "_block_end_stream",
        "_block_frames",
        "_block_size",
        "_block_stream",
        "_blocked",
        "_decoder",
        "_encoder",
        "_frame_size",
        "_gaps",
        "_greeted",
        "_initial_window",
        "_last_accepted",
        "_news",
        "_now",
        "_out",
        "_ping_at",
        "_ping_strikes",
        "_receive_window",
        "_receiving",
        "_reset_ids",
        "_rest",
        "_send_window",
        "_spoke",
        "_uncredited",
        "closed",
        "draining",
        "fault",
        "last_stream_id",
        "limits",
        "opened_at",
        "peer_header_list",
        "pinged",
        "pings",
        "progressed_at",
        "requests",
        "resets",
        "streams",
        "waiting",
        "wake",
    )

    def __init__(self, now: float, limits: Limits = DEFAULT_LIMITS, wake: Callable[[], None] = lambda: None) -> None:
        self.limits = limits
        self.wake = wake
        self.streams: dict[int, Stream] = {}
        self.last_stream_id = 0
        self.fault: ConnectionFault | None = None
        self.closed = False
        self.draining = False
        self.waiting = 0
        self.requests = self.resets = self.pings = 0
        self.opened_at = self.progressed_at = self._now = now
        # Bytes of a header list that the peer takes, if it has said so.
        self.peer_header_list: int | None = None
        # When our keepalive ping went out that was not answered yet.
        self.pinged: float | None = None
        self._rest = b""
        self._greeted = False
        self._acknowledged = False
        self._news: list[Stream] = []
        self._receiving = False
        self._out: list[bytes] = []
        self._decoder: Decoder[Field] = Decoder(make_field, limits.header_list)
        self._encoder = Encoder()
        # A header block that goes on in CONTINUATION frames.
        self._block: list[bytes] | None = None
        self._block_stream = self._block_size = self._block_frames = 0
        self._block_end_stream = False
        # What we may send, by the peer's leave.
        self._initial_window = self._send_window = settings.DEFAULT_WINDOW
        self._frame_size = settings.DEFAULT_FRAME_SIZE
        self._blocked: dict[Stream, None] = {}
        # What the peer may send, by ours.
        self._receive_window = limits.connection_window
        self._uncredited = 0
        self._last_accepted = _MAX_STREAM
        self._reset_ids: dict[int, None] = {}
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_GAPS)
        self._allowances: dict[Abuse, Allowance] = {}
        self._ping_at = float("-inf")
        self._ping_strikes = 0
        # An answer has gone out since the last ping: then a ping is in order (it may measure the bandwidth).
        self._spoke = True
        self._greet()

    def _greet(self) -> None:
        """Our preface (section 3.4), which need not wait for the peer's."""
        limits = self.limits
        values = {
            settings.MAX_CONCURRENT_STREAMS: limits.concurrent_streams,
            settings.INITIAL_WINDOW_SIZE: limits.stream_window,
            settings.MAX_HEADER_LIST_SIZE: limits.header_list,
        }
        self._out.append(frames.settings(values))
        if limits.connection_window > settings.DEFAULT_WINDOW:
            self._out.append(frames.window_update(0, limits.connection_window - settings.DEFAULT_WINDOW))

    # Bytes in.

    def receive(self, data: bytes, now: float) -> list[Stream]:
        """Take bytes of the peer at time `now`; the streams with news, each once, in the order of their first."""
        if self.closed:
            return []
        self._now = now
        self.pinged = None
        if self._rest:
            data = self._rest + data
        self._receiving = True
        try:
            position = 0 if self._greeted else self._preface(data)
            if self._greeted:
                position = self._frames(data, position)
            self._rest = data[position:]
        except ConnectionFault as fault:
            self.fail(fault)
        self._receiving = False
        return self.news()

    def news(self) -> list[Stream]:
        """Streams with news since this was asked last; `receive` asks itself, `check` and `fail` do not."""
        news, self._news = self._news, []
        for stream in news:
            stream.noted = False
        return news

    def _preface(self, data: bytes) -> int:
        preface = frames.PREFACE
        if not data.startswith(preface):
            if not preface.startswith(data):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not an HTTP/2 preface")
            return 0
        if len(data) < len(preface) + frames.HEADER_SIZE:
            return 0
        if data[len(preface) + 3] != frames.SETTINGS or data[len(preface) + 4] & frames.ACK:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        self._greeted = True
        return len(preface)

    def _frames(self, data: bytes, position: int) -> int:
        """Take all whole frames; the position behind the last one."""
        unpack, end = frames.unpack_header, len(data) - frames.HEADER_SIZE
        while position <= end:
            word, flags, stream_id = unpack(data, position)
            size = word >> 8
            if size > settings.DEFAULT_FRAME_SIZE:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes is larger than was offered")
            start = position + 9
            if start + size > len(data):
                break
            position = start + size
            kind = word & 0xFF
            stream_id &= _MAX_STREAM
            if self._block is not None and (kind != _CONTINUATION or stream_id != self._block_stream):
                raise _protocol_error("a header block was interrupted")
            try:
                if kind <= _CONTINUATION:
                    _TAKERS[kind](self, flags, stream_id, data[start:position])
                else:
                    self._charge(Abuse.UNKNOWN_FRAMES)
            except StreamFault as fault:
                self._refuse(stream_id, fault)
        return position

    def _charge(self, abuse: Abuse) -> None:
        """Count one act of what is harmless when rare."""
        allowance = self._allowances.get(abuse)
        if allowance is None:
            allowance = self._allowances[abuse] = Allowance(*RATES[abuse], self._now)
        if not allowance.spend(self._now):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, abuse.value, abuse)

    def _refuse(self, stream_id: int, fault: StreamFault) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._write(frames.rst_stream(stream_id, fault.code))
            self._remember_reset(stream_id)
        else:
            self.reset(stream, fault.code)
            self._note(stream)
        self._charge(Abuse.REFUSED_STREAMS if fault.code is ErrorCode.REFUSED_STREAM else Abuse.VIOLATIONS)

    def _note(self, stream: Stream) -> None:
        # What the application did itself is no news to it.
        if not stream.noted and self._receiving:
            stream.noted = True
            self._news.append(stream)

    # DATA.

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        stream = self.streams.get(stream_id)
        if stream is None or stream.ended:
            self._credit(size)
            self._late(stream_id)
            return
        if flags & _PADDED:
            payload = _unpadded(payload)
        stream.receive_window -= size
        stream.unread += size
        if stream.receive_window < 0:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        if payload:
            stream.inbox.append(payload)
        if size != len(payload):
            stream.consume(size - len(payload))
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, "the body is longer than content-length", "malformed")
        if flags & _END_STREAM:
            self._end(stream)
        elif not payload:
            self._charge(Abuse.EMPTY_DATA)
        if not stream.noted:
            stream.noted = True
            self._news.append(stream)

    def _end(self, stream: Stream) -> None:
        """The request is complete."""
        if stream.body_left:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "the body is shorter than content-length", "malformed")
        stream.ended = True

    def _late(self, stream_id: int) -> None:
        """A frame for a stream that takes none any more."""
        if stream_id & 1 and stream_id > self._last_accepted:
            # Behind a final GOAWAY streams of the peer's are not ours.
            return
        if stream_id == 0 or stream_id > self.last_stream_id or not stream_id & 1:
            raise _protocol_error(f"a frame for stream {stream_id}, which is idle")
        if stream_id not in self._reset_ids:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "the stream is closed")

    # HEADERS and CONTINUATION.

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise _protocol_error(f"HEADERS on stream {stream_id}")
        if flags & (_PADDED | frames.PRIORITY_FIELDS):
            payload = self._fragment(flags, stream_id, payload)
        if flags & _END_HEADERS:
            self._take_block(stream_id, payload, flags & _END_STREAM)
            return
        self._block = [payload]
        self._block_stream = stream_id
        self._block_size = len(payload)
        self._block_frames = 0
        self._block_end_stream = bool(flags & _END_STREAM)

    def _fragment(self, flags: int, stream_id: int, payload: bytes) -> bytes:
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & frames.PRIORITY_FIELDS:
            # Section 5.3.2: priorities are deprecated, and read past.
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS have no room for their priority")
            if frames.unpack_word(payload)[0] & _MAX_STREAM == stream_id:
                raise _protocol_error(f"stream {stream_id} depends on itself")
            payload = payload[5:]
        return payload

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise _protocol_error("CONTINUATION without HEADERS")
        self._block.append(payload)
        self._block_size += len(payload)
        self._block_frames += 1
        if self._block_frames > self.limits.continuations or self._block_size > 2 * self.limits.header_list:
            # CVE-2024-27316. What was not decoded cannot be skipped either.
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, "a header block is far too large", Abuse.CONTINUATION_FLOOD
            )
        if flags & _END_HEADERS:
            block, self._block = b"".join(self._block), None
            self._take_block(stream_id, block, self._block_end_stream)

    def _take_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        """A whole header block: it must be decoded whatever becomes of it, for the tables' sake."""
        if stream_id <= self.last_stream_id:
            self._take_trailers(stream_id, self._fields(block)[0], end_stream)
            return
        self._number(stream_id)
        head = self._decoder.memo.get(block)
        if head is None:
            fields, unchanged = self._fields(block)
            head = RequestHead(fields)
            if unchanged:
                self._decoder.remember(block, head)
        if stream_id > self._last_accepted:
            return
        if len(self.streams) >= self.limits.concurrent_streams:
            raise StreamFault(ErrorCode.REFUSED_STREAM, "too many streams at once")
        stream = Stream(self, stream_id, head, self._initial_window, self.limits.stream_window)
        stream.opened_at = self._now
        self.streams[stream_id] = stream
        self.requests += 1
        self._news.append(stream)
        if end_stream:
            self._end(stream)

    def _fields(self, block: bytes) -> tuple[list[Field], bool]:
        try:
            return self._decoder.decode(block)
        except HeaderListTooLarge:
            # gRPC takes this code for RESOURCE_EXHAUSTED.
            raise StreamFault(ErrorCode.ENHANCE_YOUR_CALM, "the header list is too large", Abuse.HEADER_LIST) from None

    def _number(self, stream_id: int) -> None:
        """A new stream's number; those that it skips are closed unused (section 5.1.1)."""
        if stream_id - self.last_stream_id > 2:
            self._gaps.append((self.last_stream_id + 1, stream_id - 1))
        self.last_stream_id = stream_id
        if stream_id > _LAST_COMFORTABLE_STREAM:
            self.drain()

    def _take_trailers(self, stream_id: int, fields: list[Field], end_stream: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id > self._last_accepted:
                return
            if any(first <= stream_id <= last for first, last in self._gaps):
                raise _protocol_error(f"stream {stream_id} was skipped")
            if stream_id not in self._reset_ids:
                raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is closed")
            return
        if stream.ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not end_stream:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "trailers must end the stream", "malformed")
        check_trailers(fields)
        self._end(stream)
        self._note(stream)

    # The small frames.

    def _take_priority(self, _: int, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise _protocol_error("PRIORITY on stream 0")
        if len(payload) != 5:
            raise StreamFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")
        if frames.unpack_word(payload)[0] & _MAX_STREAM == stream_id:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
        self._charge(Abuse.PRIORITY_FLOOD)

    def _take_rst_stream(self, _: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not 4 bytes")
        stream = self.streams.get(stream_id)
        self.resets += 1
        if stream is None:
            if stream_id == 0 or stream_id > self.last_stream_id:
                raise _protocol_error(f"RST_STREAM on stream {stream_id}")
            return
        self._close(stream, frames.unpack_word(payload)[0])
        self._note(stream)
        if self._now - stream.opened_at < self.limits.young:
            self._charge(Abuse.RAPID_RESET)

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _protocol_error("SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._acknowledged = True
            return
        window = self._initial_window
        for identifier, value in settings.parse(payload):
            if identifier == settings.HEADER_TABLE_SIZE:
                self._encoder.resize(value)
            elif identifier == settings.MAX_FRAME_SIZE:
                self._frame_size = min(value, _LARGEST_FRAME)
            elif identifier == settings.MAX_HEADER_LIST_SIZE:
                self.peer_header_list = value
            elif identifier == settings.INITIAL_WINDOW_SIZE:
                window = value
        if window != self._initial_window:
            # Once: a frame has room for thousands of changes, each of which would concern all streams.
            self._change_windows(window - self._initial_window)
            self._initial_window = window
        # Before what the new windows admit.
        self._write(frames.SETTINGS_ACK)
        self._charge(Abuse.SETTINGS_FLOOD)
        if self.waiting:
            for stream in list(self.streams.values()):
                if stream.outbox:
                    self._pump(stream)

    def _change_windows(self, difference: int) -> None:
        """Section 6.9.2: the windows of all streams move, also below 0."""
        for stream in self.streams.values():
            stream.send_window += difference
            if stream.send_window > settings.MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window too large")

    def _take_push_promise(self, _: int, __: int, ___: bytes) -> None:
        raise _protocol_error("PUSH_PROMISE from a client")

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _protocol_error("PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING is not 8 bytes")
        if flags & frames.ACK:
            if payload == _DRAIN_PING and self.draining:
                self.finish_draining()
            return
        self.pings += 1
        self._write(frames.ping(payload, ack=True))
        self._judge_ping()

    def _judge_ping(self) -> None:
        """gRPC's keepalive rule (gRFC A8): pings at an interval, or with answers in between."""
        early = not self._spoke and self._now - self._ping_at < self.limits.ping_interval
        self._ping_strikes = self._ping_strikes + 1 if early else 0
        self._spoke = False
        self._ping_at = self._now
        if self._ping_strikes > self.limits.ping_strikes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings", Abuse.PING_FLOOD)

    def _take_goaway(self, _: int, stream_id: int, payload: bytes) -> None:
        """It concerns streams that we would open; the peer still waits for the answers to its own."""
        if stream_id:
            raise _protocol_error("GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is shorter than 8 bytes")
        self._charge(Abuse.UNKNOWN_FRAMES)

    def _take_window_update(self, _: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes")
        increment = frames.unpack_word(payload)[0] & _MAX_STREAM
        if stream_id == 0:
            self._widen(increment)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id > self.last_stream_id or not stream_id & 1:
                raise _protocol_error(f"WINDOW_UPDATE on stream {stream_id}, which is idle")
            return
        if increment == 0:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream.send_window += increment
        if stream.send_window > settings.MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes a window too large")
        if stream.outbox:
            self._pump(stream)

    def _widen(self, increment: int) -> None:
        if increment == 0:
            raise _protocol_error("WINDOW_UPDATE by 0")
        self._send_window += increment
        if self._send_window > settings.MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes the connection's window too large")
        blocked = self._blocked
        while blocked and self._send_window > 0:
            stream = next(iter(blocked))
            del blocked[stream]
            # A frame each, so that a large answer does not hold up the others.
            self._pump(stream, once=True)

    # What the peer may send.

    def consume(self, stream: Stream, size: int) -> None:
        """The application is done with `size` received bytes of a stream."""
        self._credit(size)
        if stream.ended or stream.closed:
            return
        stream.uncredited += size
        if stream.uncredited >= self.limits.stream_window >> 1:
            self._write(frames.window_update(stream.id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def _credit(self, size: int) -> None:
        self._uncredited += size
        if self._uncredited >= self.limits.connection_window >> 2:
            self._write(frames.window_update(0, self._uncredited))
            self._receive_window += self._uncredited
            self._uncredited = 0

    # Bytes out.

    def take(self) -> bytes:
        """What is to be sent now."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def _write(self, data: bytes) -> None:
        out = self._out
        if not out:
            self.wake()
        out.append(data)

    def answer(self, stream: Stream, head: Block, prefix: bytes, body: bytes, trailers: Block) -> None:
        """The common answer in one go; see `Stream.answer`."""
        size = len(prefix) + len(body)
        if size > self._send_window or size > stream.send_window or size > self._frame_size or stream.outbox:
            stream.send_headers(head)
            stream.send_data(prefix + body)
            stream.send_trailers(trailers)
            return
        encoder, key, out = self._encoder, stream.key, self._out
        head_block = encoder.block(head)
        trailers_block = encoder.block(trailers)
        self._send_window -= size
        if not out:
            self.wake()
        out += (
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
        self._spoke = True
        self._finish(stream)

    def send_headers(self, stream: Stream, fields: Fields, end: bool) -> None:
        block = self._encoder.block(fields) if isinstance(fields, Block) else self._encoder.fields(fields)
        flags = _END_STREAM if end else 0
        size = self._frame_size
        kind = frames.HEADERS
        while len(block) > size:
            self._write(frames.start(kind, flags, size) + stream.key + block[:size])
            kind, flags, block = _CONTINUATION, 0, block[size:]
        self._write(frames.start(kind, flags | _END_HEADERS, len(block)) + stream.key + block)
        self._spoke = True
        if end:
            self._finish(stream)

    def send_data(self, stream: Stream, data: bytes, end: bool) -> None:
        if stream.outbox is None:
            stream.outbox = deque()
            if not self.waiting:
                self.progressed_at = self._now
        if data or (end and not stream.outbox):
            size = self._frame_size
            stream.outbox += [data[start : start + size] for start in range(0, len(data), size)] or (data,)
        stream.waiting += len(data)
        self.waiting += len(data)
        stream.finished = end
        self._pump(stream)
        if self.waiting > self.limits.hard_buffer:
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not taken", Abuse.SLOW_READER))

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        if stream.outbox:
            stream.trailers = fields
            stream.finished = True
        else:
            self.send_headers(stream, fields, True)

    def _pump(self, stream: Stream, once: bool = False) -> None:
        """Send of a stream's outbox what the windows admit."""
        outbox, waiting = stream.outbox, stream.waiting
        assert outbox is not None
        while outbox:
            data = outbox[0]
            size = min(len(data), self._frame_size, stream.send_window, self._send_window)
            if size <= 0 and data:
                break
            if size < len(data):
                outbox[0] = data[size:]
                data = data[:size]
            else:
                outbox.popleft()
            last = stream.finished and not outbox and stream.trailers is None
            self._write(frames.start(_DATA, _END_STREAM if last else 0, size) + stream.key + data)
            stream.send_window -= size
            self._send_window -= size
            stream.waiting -= size
            if once:
                break
        self.waiting -= waiting - stream.waiting
        if waiting != stream.waiting:
            self._spoke = True
            self.progressed_at = self._now
            self._note(stream)
        if not outbox:
            stream.outbox = None
            self._conclude(stream)
        elif stream.send_window > 0:
            self._blocked[stream] = None

    def _conclude(self, stream: Stream) -> None:
        """All data are out."""
        if stream.trailers is not None:
            fields, stream.trailers = stream.trailers, None
            self.send_headers(stream, fields, True)
        elif stream.finished:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Our END_STREAM is out. A peer that still sends is told not to (section 8.1)."""
        stream.finished = True
        if stream.ended:
            stream.closed = True
            del self.streams[stream.id]
            if stream.unread:
                self._credit(stream.unread)
                stream.unread = 0
        else:
            self.reset(stream, ErrorCode.NO_ERROR)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        self._write(frames.rst_stream(stream.id, code))
        self._remember_reset(stream.id)
        self._close(stream, code)

    def _remember_reset(self, stream_id: int) -> None:
        reset_ids = self._reset_ids
        reset_ids[stream_id] = None
        if len(reset_ids) > self.limits.remembered_resets:
            del reset_ids[next(iter(reset_ids))]

    def _close(self, stream: Stream, code: int) -> None:
        """The stream ends here; of what was to be sent nothing more will be."""
        if not (stream.finished and code == ErrorCode.NO_ERROR):
            stream.reset_code = code
        stream.closed = True
        self.streams.pop(stream.id, None)
        self._blocked.pop(stream, None)
        self.waiting -= stream.waiting
        stream.waiting = 0
        stream.outbox = stream.trailers = None
        if stream.unread:
            self._credit(stream.unread)
            stream.unread = 0

    # The connection's end.

    def ping(self) -> None:
        """Ask for a sign of life; any byte counts as one."""
        if self.pinged is None and not self.closed:
            self.pinged = self._now
            self._write(frames.ping(_KEEPALIVE_PING))

    def drain(self) -> None:
        """Announce that no new streams are wanted; those that are on their way are still served (section 6.8)."""
        if not self.draining and not self.closed:
            self.draining = True
            self._write(frames.goaway(_MAX_STREAM, ErrorCode.NO_ERROR) + frames.ping(_DRAIN_PING))

    def finish_draining(self) -> None:
        """What comes from now on is not served; `drain` came before, by a round trip if the peer answered."""
        if self.draining and self._last_accepted == _MAX_STREAM and not self.closed:
            self._last_accepted = self.last_stream_id
            self._write(frames.goaway(self.last_stream_id, ErrorCode.NO_ERROR))

    @property
    def drained(self) -> bool:
        """No stream is left, and none will be taken."""
        return self._last_accepted != _MAX_STREAM and not self.streams

    def check(self, now: float) -> None:
        """Look at what takes too long; to be called every second or so, and `news` after it."""
        limits = self.limits
        self._now = now
        if self.closed:
            return
        if not self._acknowledged and now - self.opened_at > limits.settings_timeout:
            self.fail(
                ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "SETTINGS were not acknowledged", Abuse.SETTINGS_TIMEOUT)
            )
        elif self.waiting and now - self.progressed_at > limits.stall_timeout:
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not taken", Abuse.SLOW_READER))

    def fail(self, fault: ConnectionFault) -> None:
        """Give the connection up: GOAWAY, and the end of all streams, which are news of the current `receive`."""
        if not self.closed:
            # Never more than was said before (section 6.8).
            last = min(self.last_stream_id, self._last_accepted)
            self._write(frames.goaway(last, fault.code, fault.text.encode()))
            self.fault = fault
            self._end_all(fault.code)

    def lost(self) -> list[Stream]:
        """The transport is gone; the streams that it takes along."""
        if not self.closed:
            self._end_all(ErrorCode.CANCEL)
        self._out.clear()
        return self.news()

    def _end_all(self, code: ErrorCode) -> None:
        self.closed = True
        self._rest = b""
        self._block = None
        for stream in list(self.streams.values()):
            self._close(stream, code)
            if not stream.noted:
                stream.noted = True
                self._news.append(stream)


def _protocol_error(text: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)


def _unpadded(payload: bytes) -> bytes:
    """RFC 9113 section 6.1: one byte of length in front, that many of padding behind."""
    if not payload or payload[0] >= len(payload):
        raise _protocol_error("padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


# By frame type.
_TAKERS: tuple[Callable[[Connection, int, int, bytes], None], ...] = (
    Connection._take_data,
    Connection._take_headers,
    Connection._take_priority,
    Connection._take_rst_stream,
    Connection._take_settings,
    Connection._take_push_promise,
    Connection._take_ping,
    Connection._take_goaway,
    Connection._take_window_update,
    Connection._take_continuation,
)
