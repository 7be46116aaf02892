"""The I/O of an HTTP/2 connection: a transport, one write per turn of the event loop, back-pressure, closing.

Back-pressure has five rules:
1. The channel stops reading from a peer whose socket is full.
2. Requests of a peer whose windows are full are deferred; over a hard limit of waiting bytes the connection is closed.
3. Writers to a full socket wait in a queue (`writable`).
4. A stream that reads or writes much yields to the others (`yield_turn`), so that a full socket can be reported.
5. A read with many frames is handled in slices over several turns of the event loop (`FairTurns`), and the channel
   stops reading meanwhile.
"""

import asyncio
import logging
from collections import deque
from enum import StrEnum
from time import monotonic
from typing import Final, cast

from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import DEFAULT_LIMITS, DEFAULT_TIMEOUTS, Limits, Timeouts
from grpc_gateway.http2.stream import Stream
from protocol_negotiation.fair_turns import EXPENSIVE_SECONDS, FairTurns
from protocol_negotiation.peer import Peer

_log = logging.getLogger("gantry.http2")

# Bytes that the streams of a connection may read and write before they yield. Each message counts MESSAGE_COST bytes
# more than its size.
TURN_BYTES: Final = 64 * 1024
MESSAGE_COST: Final = 512
# Bytes of frames of a read that are handled at once if the connection is admitted, and of the slices of its turns, and
# of a small request with its headers.
_READ_BYTES: Final = 4096
_SLICE_BYTES: Final = 512
_REQUEST_BYTES: Final = 256
# Bytes in the transport's buffer at which the socket counts as full.
_HIGH_WATER: Final = 256 * 1024
# Time for the peer to read the last frames; closing the socket with unread bytes of the peer could discard them.
_LINGER_SECONDS: Final = 1.0
# Time for the peer to answer the ping of a drain.
_DRAIN_PING_SECONDS: Final = 5.0


class CloseCause(StrEnum):
    """Reason for the end of a connection; the values are metric labels."""

    PEER = "peer"
    RESET = "reset"
    PROTOCOL = "protocol"
    ABUSE = "abuse"
    UNRESPONSIVE = "unresponsive"
    OVERLOAD = "overload"
    DRAIN = "drain"
    OPERATOR = "operator"
    LOCAL = "local"


class Http2Channel(asyncio.Protocol):
    """Protocol of one connection. Subclasses handle the changes of its streams.

    cause: why the connection ends, or None while it is open.
    congested: the socket is full.
    turns: the turns of connections whose received frames wait. share: this connection's share of them.
    writers: tasks that wait for the socket, in their order; None before the first.
    spent: bytes read and written since the last yield, compared with `TURN_BYTES`.
    """

    def __init__(
        self,
        peer: Peer,
        limits: Limits = DEFAULT_LIMITS,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        turns: FairTurns | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.peer = peer
        self.http2 = Connection(self.loop.time(), limits, self._schedule_flush)
        self.cause: CloseCause | None = None
        self.congested = False
        self.closed = False
        self.writers: deque[asyncio.Future[None]] | None = None
        self.spent = 0
        self._turns = FairTurns(self.loop) if turns is None else turns
        self.share = self._turns.join(peer.address)
        self._backlogged = False
        self._paused = False
        self._sender = self.http2.sender
        self._timeouts = timeouts
        self._transport: asyncio.Transport | None = None
        # A flush is scheduled, or follows the processing of received bytes.
        self._flush_pending = False
        self._ending = False
        self.opened_at = self._read_at = self._busy_at = self.loop.time()
        self.received_bytes = 0
        self._draining_since: float | None = None
        # Requests that wait until older responses are read.
        self._deferred: dict[Stream, None] = {}
        # Bytes given to the transport; bytes that the socket has taken of them, and when it last took any.
        self._written = self._taken = 0
        self._taken_at = 0.0
        self._linger_timer: asyncio.TimerHandle | None = None

    # For subclasses.

    def on_stream_change(self, stream: Stream) -> None:
        """Handle a stream that has received something, has sent waiting bytes, or is closed."""
        raise NotImplementedError

    def on_stream_error(self, stream: Stream) -> None:
        """Handle that `on_stream_change` has raised and the stream was reset."""

    def on_open(self) -> None:
        """Handle the start of the connection."""

    def on_close(self) -> None:
        """Handle the end of the connection, after the end of its streams."""

    # Events of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.on_open()
        self._schedule_flush()

    def data_received(self, data: bytes) -> None:
        self._read_at = now = self.loop.time()
        self.received_bytes += len(data)
        if self._ending:
            return
        scheduled, self._flush_pending = self._flush_pending, True
        begin = monotonic()
        immediate = self._turns.admit(self.share, min(len(data), _READ_BYTES) // _REQUEST_BYTES, begin)
        for stream in self.http2.receive(data, now, _READ_BYTES if immediate else _SLICE_BYTES):
            self._handle_change(stream)
        if self._deferred:
            self._handle_deferred()
        if (spent := monotonic() - begin) > EXPENSIVE_SECONDS or self._turns.scheduled:
            self._turns.charge(self.share, begin, spent)
        if self.http2.pending and not self._backlogged:
            self._start_backlog()
        if scheduled:
            # The responses go out with the flush that is already scheduled.
            return
        self._flush()

    def _start_backlog(self) -> None:
        self._backlogged = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._turns.add(self)

    def handle_more(self, until: float) -> bool:
        """Handle the next received frames, and more before the time `until`; return whether some wait."""
        http2 = self.http2
        if not self._ending:
            scheduled, self._flush_pending = self._flush_pending, True
            self.share.size = 0
            while True:
                for stream in http2.receive_more(self.loop.time(), _SLICE_BYTES):
                    self._handle_change(stream)
                self.share.size += _READ_BYTES
                if not http2.pending or monotonic() >= until:
                    break
            if self._deferred:
                self._handle_deferred()
            if not scheduled:
                self._flush()
            if http2.pending and not self.closed and not self._ending:
                return True
        self._backlogged = False
        self._resume_reading()
        return False

    def fail(self) -> None:
        """Close the connection after an error in the handling of its frames."""
        self.abort(CloseCause.LOCAL)

    def _resume_reading(self) -> None:
        """Read again, unless the socket is full, received frames wait, or the owner has paused reads."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and self.reading:
            transport.resume_reading()

    def pause(self) -> None:
        """Stop reading until `resume` is called."""
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Undo `pause`."""
        self._paused = False
        # The peer could not answer a ping meanwhile.
        self._read_at = self.loop.time()
        self._resume_reading()

    def eof_received(self) -> None:
        """End all streams: a peer that has closed its side cannot widen windows or cancel requests.

        The transport closes when its buffer is empty, as this returns None.
        """
        if self._ending:
            return
        self.cause = self.cause or CloseCause.PEER
        self._write_output()
        self._ending = True
        self._start_linger(self.loop.time() + self._timeouts.drain)
        for stream in self.http2.lost():
            self._handle_change(stream)

    def pause_writing(self) -> None:
        self.congested = True
        self._taken_at = self.loop.time()
        if self._transport is not None and not self._ending:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.congested = False
        self._resume_reading()
        self._resume_writer()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = self._ending = True
        self._turns.leave(self.share)
        if self.cause is None:
            self.cause = CloseCause.PEER if error is None else CloseCause.RESET
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        for stream in self.http2.lost():
            self._handle_change(stream)
        self._deferred.clear()
        self.congested = False
        self._resume_writer()
        self.on_close()

    # Streams.

    def _handle_change(self, stream: Stream) -> None:
        if stream.call is None:
            if stream.closed:
                # Reset before it was handled.
                self._deferred.pop(stream, None)
                return
            if self._sender.waiting > self.http2.limits.connection_buffer:
                self._deferred[stream] = None
                stream.compact()
                return
        try:
            self.on_stream_change(stream)
        except Exception:
            _log.exception("handling a stream failed")
            stream.reset(ErrorCode.INTERNAL_ERROR)
            self.on_stream_error(stream)

    def _handle_deferred(self) -> None:
        """Handle the deferred requests if the responses that wait are within their limit."""
        if self._sender.waiting <= self.http2.limits.connection_buffer:
            deferred, self._deferred = self._deferred, {}
            for stream in deferred:
                self._handle_change(stream)

    async def writable(self) -> None:
        """Wait while the socket is full, and for the writers that have waited longer."""
        if (self.congested or self.writers) and not self.closed:
            writer = self.loop.create_future()
            if self.writers is None:
                self.writers = deque()
            self.writers.append(writer)
            await writer

    def _resume_writer(self) -> None:
        """Resume the first writer, and after it the next, unless the socket is full again by then."""
        writers = self.writers
        while writers and not self.congested:
            writer = writers.popleft()
            if not writer.done():
                writer.set_result(None)
                if writers:
                    self.loop.call_soon(self._resume_writer)
                return

    async def yield_turn(self) -> None:
        """Write the output, so that the socket can report that it is full, and yield to the event loop."""
        self.spent = 0
        self._write_output()
        await asyncio.sleep(0)

    # Writing.

    def _schedule_flush(self) -> None:
        """Flush at the end of this turn of the event loop."""
        if not self._flush_pending and self._transport is not None:
            self._flush_pending = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_pending = False
        self._write_output()
        if self.http2.fault is not None:
            self._close_after_fault(self.http2.fault)
        elif self.http2.draining and self.http2.drained:
            self.end(CloseCause.DRAIN)

    def _write_output(self) -> None:
        transport, sender = self._transport, self._sender
        if sender.output and transport is not None and not self._ending and not transport.is_closing():
            data = sender.take()
            self._written += len(data)
            transport.write(data)
            if self.congested and transport.get_write_buffer_size() > self.http2.limits.hard_buffer:
                self.abort(CloseCause.ABUSE)

    # Statistics.

    @property
    def reading(self) -> bool:
        """Whether the transport is read: the socket is not full, no received frames wait, and reads are not paused."""
        return not self.congested and not self._backlogged and not self._paused

    @property
    def draining(self) -> bool:
        """Whether GOAWAY has been sent."""
        return self.http2.draining

    @property
    def open_streams(self) -> int:
        return len(self.http2.streams)

    @property
    def requests(self) -> int:
        return self.http2.requests

    @property
    def sent_bytes(self) -> int:
        return self._written

    @property
    def unread_bytes(self) -> int:
        """The number of bytes of responses that wait for the peer's windows or its socket."""
        transport = self._transport
        return self._sender.waiting + (0 if transport is None or self.closed else transport.get_write_buffer_size())

    @property
    def unfinished_bytes(self) -> int:
        """The number of received bytes of requests that are deferred."""
        return sum(stream.unread for stream in self._deferred)

    @property
    def read_at(self) -> float:
        """Time of the last read, in seconds of the event loop's clock."""
        return self._read_at

    # Timeouts.

    def check(self, now: float) -> None:
        """Apply the timeouts. To be called about every second."""
        http2, timeouts = self.http2, self._timeouts
        if self._ending:
            return
        if not self.reading:
            http2.restart_timeouts(now)
        if self.congested:
            self._check_congestion(now)
            return
        if http2.streams:
            self._busy_at = now
        http2.check(now)
        for stream in http2.take_changed():
            self._handle_change(stream)
        if self._deferred:
            # The cancellation of a call discards its response, which makes room without a read.
            self._handle_deferred()
        if http2.fault is None:
            self._check_silence(now, timeouts)
            self._check_age(now, timeouts)

    def _check_congestion(self, now: float) -> None:
        """Abort if the socket stays full. As reading is paused, the silence of the peer means nothing."""
        assert self._transport is not None
        taken = self._written - self._transport.get_write_buffer_size()
        if taken != self._taken:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > self.http2.limits.stall_timeout:
            self.abort(CloseCause.UNRESPONSIVE)

    def _check_silence(self, now: float, timeouts: Timeouts) -> None:
        if self._paused:
            return
        if self.http2.pinged_at is not None:
            if now - self.http2.pinged_at > timeouts.ping_timeout:
                self.abort(CloseCause.UNRESPONSIVE)
        elif timeouts.ping_after is not None and now - self._read_at > timeouts.ping_after:
            self.http2.ping()

    def _check_age(self, now: float, timeouts: Timeouts) -> None:
        if self.http2.draining and self._draining_since is None:
            # The connection drains by itself when stream identifiers run out.
            self._draining_since = now
        if self._draining_since is not None:
            drained_for = now - self._draining_since
            if drained_for > _DRAIN_PING_SECONDS:
                self.http2.finish_draining()
            if timeouts.age is not None and drained_for > timeouts.drain and now - self.http2.opened_at > timeouts.age:
                self.end(CloseCause.DRAIN)
        elif (timeouts.idle is not None and now - self._busy_at > timeouts.idle) or (
            timeouts.age is not None and now - self.http2.opened_at > timeouts.age
        ):
            self.drain()

    # Closing.

    def drain(self) -> None:
        """Send GOAWAY; the connection closes when its streams have finished."""
        if self._draining_since is None:
            self._draining_since = self.loop.time()
            self.http2.drain()

    def end(self, cause: CloseCause) -> None:
        """Close the remaining streams with GOAWAY, and the connection after the peer had time to read that."""
        if self._ending:
            return
        if self.cause is None:
            self.cause = cause
        if not self.http2.drained:
            self.http2.fail(ConnectionFault(ErrorCode.NO_ERROR, "the server closes the connection", cause))
        self._write_output()
        self._close_transport()
        for stream in self.http2.take_changed():
            self._handle_change(stream)

    def abort(self, cause: CloseCause) -> None:
        """Close the connection at once, and discard unsent bytes."""
        if self.cause is None:
            self.cause = cause
        if self._transport is not None:
            self._transport.abort()

    def _close_after_fault(self, fault: ConnectionFault) -> None:
        """Close the connection after its GOAWAY, and report the end of its streams."""
        if self._ending:
            return
        if self.cause is None:
            self.cause = CloseCause.PROTOCOL if fault.reason in ("protocol", "hpack") else CloseCause.ABUSE
        self._close_transport()
        for stream in self.http2.take_changed():
            self._handle_change(stream)

    def _close_transport(self) -> None:
        """Close the sending side, and wait for the peer to close its own."""
        if self._ending or self._transport is None:
            return
        self._ending = True
        transport = self._transport
        if self.congested and self.cause is not CloseCause.DRAIN:
            transport.abort()
            return
        try:
            if transport.can_write_eof():
                transport.write_eof()
        except OSError:
            # The peer has closed the connection first.
            transport.abort()
            return
        self._start_linger(self.loop.time() + self._timeouts.drain)

    def _start_linger(self, until: float) -> None:
        self._linger_timer = self.loop.call_later(_LINGER_SECONDS, self._linger, until)

    def _linger(self, until: float) -> None:
        """Abort a connection that the peer has not closed, once it has read everything or `until` has passed."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() and self.loop.time() < until:
            self._start_linger(until)
        else:
            transport.abort()
