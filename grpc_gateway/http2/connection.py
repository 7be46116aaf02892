"""The server side of an HTTP/2 connection (RFC 9113), without I/O.

`receive` takes received bytes and returns the streams that have changed; the streams hold the received data. A request
that is reset within the same read is therefore never started. Of many bytes, `receive` handles the first frames only,
and `receive_more` the next ones, so that a read full of small frames does not hold the event loop. Responses are sent
by the streams' methods at any time; `sender` collects the bytes to send, and calls `wake` for the first of them.

There is no clock: `receive` and `check` are given the current time.
"""

from collections.abc import Callable
from typing import Final

from grpc_gateway.http2 import frames, settings_frame
from grpc_gateway.http2.abuse import SMALL_DATA, Abuse, AbuseGuard
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode, StreamFault
from grpc_gateway.http2.header_block import PartialBlock, fragment, unpadded
from grpc_gateway.http2.hpack import Decoder, HeaderListTooLarge
from grpc_gateway.http2.limits import DEFAULT_LIMITS, Limits
from grpc_gateway.http2.request_head import Field, RequestHead, check_trailers, make_field
from grpc_gateway.http2.stream import Stream
from grpc_gateway.http2.stream_ids import MAX_STREAM_ID
from grpc_gateway.http2.stream_table import StreamTable

_CONTINUATION: Final = frames.CONTINUATION
_END_STREAM, _END_HEADERS, _PADDED = frames.END_STREAM, frames.END_HEADERS, frames.PADDED
_DRAIN_PING: Final = b"goingawa"
_KEEPALIVE_PING: Final = b"keepaliv"
# Bytes of frames that one call handles by default, beside the rest of the last frame: 30 small requests, a few ms.
_SLICE_BYTES: Final = 4096


class Connection:
    """A connection and its streams. After a fault, and after `lost`, its methods do nothing.

    streams: the open streams, by identifier.
    requests: number of streams that the peer has opened.
    fault: the reason for which the connection was ended, if any.
    draining: GOAWAY has been sent for new streams.
    pending: received frames wait for `receive_more`.
    pinged_at: when the unanswered keepalive ping was sent, or None.
    """

    __slots__ = (
        "_abuse",
        "_decoder",
        "_greeted",
        "_now",
        "_partial_block",
        "_partial_frame_at",
        "_position",
        "_settings_acknowledged",
        "_table",
        "_unparsed",
        "closed",
        "draining",
        "fault",
        "limits",
        "opened_at",
        "pending",
        "pinged_at",
        "requests",
        "sender",
        "streams",
    )

    def __init__(self, now: float, limits: Limits = DEFAULT_LIMITS, wake: Callable[[], None] = lambda: None) -> None:
        self.limits = limits
        self._table = table = StreamTable(now, limits, wake, self._fail_slow_reader)
        self.sender = table.sender
        self.streams = table.open
        self.requests = 0
        self.fault: ConnectionFault | None = None
        self.closed = False
        self.draining = False
        self.opened_at = self._now = now
        self.pinged_at: float | None = None
        self.pending = False
        # Received bytes, and the position in them after the last frame that was handled.
        self._unparsed = b""
        self._position = 0
        # When the frame whose rest has not arrived became the next one.
        self._partial_frame_at = now
        self._greeted = False
        self._settings_acknowledged = False
        self._decoder: Decoder[Field] = Decoder(make_field, limits.header_list)
        self._partial_block: PartialBlock | None = None
        self._abuse = AbuseGuard(limits, now)
        # Section 3.4: the server need not wait for the client's preface.
        self.sender.output += settings_frame.server_preface(limits)

    # Received bytes.

    def receive(self, data: bytes, now: float, slice_bytes: int = _SLICE_BYTES) -> list[Stream]:
        """Take bytes received at time `now`; return the streams that have changed, in the order of their changes."""
        if self.closed:
            return []
        self._now = self.sender.now = now
        self.pinged_at = None
        if not self._unparsed:
            self._partial_frame_at = now
        else:
            data = self._unparsed[self._position :] + data
            self._unparsed, self._position = data, 0
            if self.pending:
                return []
        return self._receive_slice(data, 0, slice_bytes)

    def receive_more(self, now: float, slice_bytes: int = _SLICE_BYTES) -> list[Stream]:
        """Handle the next received frames, if `pending`; return the streams that have changed."""
        if not self.pending:
            return []
        self._now = self.sender.now = now
        return self._receive_slice(self._unparsed, self._position, slice_bytes)

    def _receive_slice(self, data: bytes, start: int, slice_bytes: int) -> list[Stream]:
        table = self._table
        table.receiving = True
        try:
            position = start if self._greeted else self._receive_preface(data)
            if self._greeted:
                position = self._receive_frames(data, position, slice_bytes)
            if self.pending:
                self._unparsed, self._position = data, position
            else:
                self._unparsed, self._position = data[position:], 0
                if position > start:
                    self._partial_frame_at = self._now
        except ConnectionFault as fault:
            self.fail(fault)
        table.receiving = False
        return table.take_changed()

    def take_changed(self) -> list[Stream]:
        """Return the streams that have changed since the last call. To be called after `check` and `fail`."""
        return self._table.take_changed()

    def _receive_preface(self, data: bytes) -> int:
        preface = frames.PREFACE
        if not data.startswith(preface):
            if not preface.startswith(data):
                raise _protocol_error("not an HTTP/2 preface")
            return 0
        if len(data) < len(preface) + frames.HEADER_SIZE:
            return 0
        if data[len(preface) + 3] != frames.SETTINGS or data[len(preface) + 4] & frames.ACK:
            raise _protocol_error("the first frame is not SETTINGS")
        self._greeted = True
        return len(preface)

    def _receive_frames(self, data: bytes, position: int, slice_bytes: int) -> int:
        """Handle complete frames, of `slice_bytes` in all; return the position after the last, and set `pending`."""
        unpack, last = frames.unpack_header, len(data) - frames.HEADER_SIZE
        end = min(last, position + slice_bytes)
        while position <= end:
            word, flags, stream_id = unpack(data, position)
            size = word >> 8
            if size > settings_frame.DEFAULT_FRAME_SIZE:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes is too large")
            start = position + 9
            if start + size > len(data):
                last = -1
                break
            position = start + size
            kind = word & 0xFF
            stream_id &= MAX_STREAM_ID
            if self._partial_block is not None and (
                kind != _CONTINUATION or stream_id != self._partial_block.stream_id
            ):
                raise _protocol_error("a header block was interrupted")
            try:
                if kind <= _CONTINUATION:
                    _HANDLERS[kind](self, flags, stream_id, data[start:position])
                else:
                    self._abuse.charge(Abuse.UNKNOWN_FRAMES, self._now)
            except StreamFault as fault:
                self._refuse(stream_id, fault)
        self.pending = position <= last
        return position

    def _refuse(self, stream_id: int, fault: StreamFault) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self.sender.write(frames.rst_stream(stream_id, fault.code))
            self._table.ids.remember_reset(stream_id)
        else:
            self._table.reset(stream, fault.code)
            self._table.mark(stream)
        refused = fault.code is ErrorCode.REFUSED_STREAM
        self._abuse.charge(Abuse.REFUSED_STREAMS if refused else Abuse.VIOLATIONS, self._now)

    # DATA.

    def _receive_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        table = self._table
        table.receive_window -= size
        if table.receive_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        stream = self.streams.get(stream_id)
        if stream is None or stream.ended:
            self._charge_frame()
            table.credit(size)
            table.ids.check_late_data(stream_id)
            return
        if flags & _PADDED:
            payload = unpadded(payload)
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
            self._end_request(stream)
        elif not payload:
            self._abuse.charge(Abuse.EMPTY_DATA, self._now)
        elif size < SMALL_DATA:
            self._charge_frame()
        if not stream.marked:
            stream.marked = True
            table.changed.append(stream)

    def _end_request(self, stream: Stream) -> None:
        if stream.body_left:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "the body is shorter than content-length", "malformed")
        stream.ended = True

    # HEADERS and CONTINUATION.

    def _receive_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise _protocol_error(f"HEADERS on stream {stream_id}")
        if flags & (_PADDED | frames.PRIORITY_FIELDS):
            payload = fragment(flags, stream_id, payload)
        if flags & _END_HEADERS:
            self._receive_block(stream_id, payload, flags & _END_STREAM)
        else:
            self._partial_block = PartialBlock(stream_id, payload, flags & _END_STREAM, self.limits, self._now)

    def _receive_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        partial = self._partial_block
        if partial is None:
            raise _protocol_error("CONTINUATION without HEADERS")
        partial.add(payload)
        if flags & _END_HEADERS:
            self._partial_block = None
            self._receive_block(stream_id, partial.join(), partial.end_stream)

    def _receive_block(self, stream_id: int, block: bytes, end_stream: int) -> None:
        """Handle a whole header block. It is decoded in any case, as it may change the header table."""
        table = self._table
        ids = table.ids
        if stream_id <= ids.last:
            self._receive_trailers(stream_id, self._decode(block)[0], end_stream)
            return
        if ids.open(stream_id):
            self.drain()
        head = self._decoder.memo.get(block)
        if head is None:
            fields, unchanged = self._decode(block)
            head = RequestHead(fields)
            if unchanged:
                self._decoder.remember(block, head)
        if stream_id > ids.last_accepted:
            self._charge_frame()
            return
        if len(self.streams) >= self.limits.concurrent_streams:
            raise StreamFault(ErrorCode.REFUSED_STREAM, "too many concurrent streams")
        sender = self.sender
        stream = Stream(table, sender, stream_id, head, sender.initial_window, self.limits.stream_window, self._now)
        self.streams[stream_id] = stream
        self.requests += 1
        table.changed.append(stream)
        if end_stream:
            self._end_request(stream)

    def _decode(self, block: bytes) -> tuple[list[Field], bool]:
        try:
            return self._decoder.decode(block)
        except HeaderListTooLarge:
            # gRPC maps this code to RESOURCE_EXHAUSTED.
            raise StreamFault(ErrorCode.ENHANCE_YOUR_CALM, "the header list is too large", Abuse.HEADER_LIST) from None

    def _receive_trailers(self, stream_id: int, fields: list[Field], end_stream: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._charge_frame()
            self._table.ids.check_late_headers(stream_id)
            return
        if stream.ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not end_stream:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "trailers must end the stream", "malformed")
        check_trailers(fields)
        self._end_request(stream)
        self._table.mark(stream)

    # Other frames.

    def _receive_priority(self, _: int, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise _protocol_error("PRIORITY on stream 0")
        if len(payload) != 5:
            raise StreamFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")
        if frames.unpack_word(payload)[0] & MAX_STREAM_ID == stream_id:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
        self._abuse.charge(Abuse.PRIORITY_FLOOD, self._now)

    def _receive_rst_stream(self, _: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not 4 bytes")
        self._charge_frame()
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id == 0 or stream_id > self._table.ids.last:
                raise _protocol_error(f"RST_STREAM on stream {stream_id}")
            return
        self._table.close(stream)
        self._table.mark(stream)
        if self._now - stream.opened_at < self.limits.rapid_reset_age:
            self._abuse.charge(Abuse.RAPID_RESET, self._now)

    def _receive_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _protocol_error("SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._settings_acknowledged = True
            self._charge_frame()
            return
        sender = self.sender
        sender.apply_settings(settings_frame.parse(payload), self.streams.values())
        # Acknowledged before the data that wider windows admit.
        sender.write(frames.SETTINGS_ACK)
        self._abuse.charge(Abuse.SETTINGS_FLOOD, self._now)
        if sender.waiting:
            for stream in list(self.streams.values()):
                if stream.outbox:
                    sender.send_waiting(stream)

    def _receive_push_promise(self, _: int, __: int, ___: bytes) -> None:
        raise _protocol_error("PUSH_PROMISE from a client")

    def _receive_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _protocol_error("PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING is not 8 bytes")
        self._charge_frame()
        if flags & frames.ACK:
            if payload == _DRAIN_PING and self.draining:
                self.finish_draining()
            return
        sender = self.sender
        sender.write(frames.ping(payload, ack=True))
        responded, sender.responded = sender.responded, False
        self._abuse.charge_ping(responded, self._now)

    def _receive_goaway(self, _: int, stream_id: int, payload: bytes) -> None:
        """Ignore GOAWAY: it concerns streams that the server would open."""
        if stream_id:
            raise _protocol_error("GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is shorter than 8 bytes")
        self._abuse.charge(Abuse.UNKNOWN_FRAMES, self._now)

    def _receive_window_update(self, _: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes")
        self._charge_frame()
        increment = frames.unpack_word(payload)[0] & MAX_STREAM_ID
        if stream_id == 0:
            if increment == 0:
                raise _protocol_error("WINDOW_UPDATE by 0")
            self.sender.widen(increment)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id > self._table.ids.last or not stream_id & 1:
                raise _protocol_error(f"WINDOW_UPDATE on stream {stream_id}, which is idle")
            return
        if increment == 0:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream.send_window += increment
        if stream.send_window > settings_frame.MAX_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes a window too large")
        if stream.outbox:
            self.sender.send_waiting(stream)

    def _charge_frame(self) -> None:
        """Count a frame that carries nothing by itself. Raises ConnectionFault if there are too many."""
        self._abuse.charge_frame(self._now, self.requests, self.sender.flushed_bytes)

    # The end of the connection.

    def ping(self) -> None:
        """Send a keepalive ping; any received byte answers it."""
        if self.pinged_at is None and not self.closed:
            self.pinged_at = self._now
            self.sender.write(frames.ping(_KEEPALIVE_PING))

    def drain(self) -> None:
        """Send GOAWAY for new streams; those that the peer opens before it arrives are still served (section 6.8)."""
        if not self.draining and not self.closed:
            self.draining = True
            self.sender.write(frames.goaway(MAX_STREAM_ID, ErrorCode.NO_ERROR) + frames.ping(_DRAIN_PING))

    def finish_draining(self) -> None:
        """Send the final GOAWAY and ignore new streams; a round trip after `drain`, if the peer answers its ping."""
        ids = self._table.ids
        if self.draining and ids.last_accepted == MAX_STREAM_ID and not self.closed:
            ids.last_accepted = ids.last
            self.sender.write(frames.goaway(ids.last, ErrorCode.NO_ERROR))

    @property
    def drained(self) -> bool:
        """Whether no streams are open and none will be accepted."""
        return self._table.ids.last_accepted != MAX_STREAM_ID and not self.streams

    def check(self, now: float) -> None:
        """Apply the timeouts for SETTINGS, unfinished frames and unread responses. To be called about every second."""
        limits, sender = self.limits, self.sender
        self._now = sender.now = now
        if self.closed:
            return
        if not self._settings_acknowledged and now - self.opened_at > limits.settings_timeout:
            self.fail(
                ConnectionFault(ErrorCode.SETTINGS_TIMEOUT, "SETTINGS were not acknowledged", Abuse.SETTINGS_TIMEOUT)
            )
        elif sender.waiting and now - sender.progressed_at > limits.stall_timeout:
            self._fail_slow_reader()
        elif now - self._unfinished_since(now) > limits.frame_timeout:
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a frame does not arrive in full", Abuse.SLOW_FRAME))

    def _unfinished_since(self, now: float) -> float:
        """Return when the frame or header block began whose rest has not arrived; `now` if there is none."""
        if self._partial_block is not None:
            return self._partial_block.started_at
        return self._partial_frame_at if self._unparsed and not self.pending else now

    def restart_timeouts(self, now: float) -> None:
        """Restart the timeout of an unfinished frame, as the transport is not read."""
        self._partial_frame_at = now
        if self._partial_block is not None:
            self._partial_block.started_at = now

    def _fail_slow_reader(self) -> None:
        self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "the responses are not read", Abuse.SLOW_READER))

    def fail(self, fault: ConnectionFault) -> None:
        """End the connection with GOAWAY, and close all streams."""
        if not self.closed:
            # Never higher than in an earlier GOAWAY (section 6.8).
            last = min(self._table.ids.last, self._table.ids.last_accepted)
            self.sender.write(frames.goaway(last, fault.code, fault.text.encode()))
            self.fault = fault
            self._close_all()

    def lost(self) -> list[Stream]:
        """Close all streams, as the transport is closed, and return them."""
        if not self.closed:
            self._close_all()
        self.sender.output.clear()
        return self._table.take_changed()

    def _close_all(self) -> None:
        self.closed = True
        self._unparsed = b""
        self._position = 0
        self.pending = False
        self._partial_block = None
        self._table.close_all()


def _protocol_error(text: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)


# By frame type.
_HANDLERS: Final[tuple[Callable[[Connection, int, int, bytes], None], ...]] = (
    Connection._receive_data,
    Connection._receive_headers,
    Connection._receive_priority,
    Connection._receive_rst_stream,
    Connection._receive_settings,
    Connection._receive_push_promise,
    Connection._receive_ping,
    Connection._receive_goaway,
    Connection._receive_window_update,
    Connection._receive_continuation,
)
