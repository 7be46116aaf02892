"""The I/O around an HTTP/2 connection: one transport, one write per turn of the loop, back-pressure, the end.

Back-pressure is four rules:
1. A peer whose socket does not take our bytes is not read from.
2. A peer whose windows do not take our answers gets no new requests served; past a hard bound it is cut off.
3. Writers of streams wait in line (`writable`) while its socket is full.
4. Who reads or writes much gives the others a turn (`turn`), and the socket a chance to say that it is full.
"""

import asyncio
import logging
from collections import deque
from enum import StrEnum
from typing import cast

from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import DEFAULT_LIMITS, DEFAULT_TIMEOUTS, Limits, Timeouts
from grpc_gateway.http2.stream import Stream
from protocol_negotiation.peer import Peer

_log = logging.getLogger("gantry.http2")

# What one connection's streams may read and write until the others have their turn: bytes, and some more for each
# message, whatever its size.
TURN = 64 * 1024
MESSAGE_COST = 512
# Bytes in the transport at which it is taken for congested.
_HIGH_WATER = 256 * 1024
# Seconds a peer has to read our last words; closing at once, with bytes of its own unread, could destroy them.
_LINGER = 1.0
# Seconds until a drain goes on without the peer's answer.
_DRAIN_PATIENCE = 5.0


class CloseCause(StrEnum):
    """Why a connection ended; the values are metric labels."""

    PEER = "peer"
    RESET = "reset"
    PROTOCOL = "protocol"
    ABUSE = "abuse"
    UNRESPONSIVE = "unresponsive"
    DRAIN = "drain"
    OPERATOR = "operator"
    LOCAL = "local"


class Http2Channel(asyncio.Protocol):
    """Serves one connection. Subclasses say what is done with streams that have news.

    congested: the socket is full. writers: those who wait for it, in their order. spent: of `TURN`.
    """

    def __init__(self, peer: Peer, limits: Limits = DEFAULT_LIMITS, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.loop = asyncio.get_running_loop()
        self.peer = peer
        self.http2 = Connection(self.loop.time(), limits, self._wake)
        self.cause: CloseCause | None = None
        self.congested = False
        self.closed = False
        # Made for the first; most connections never see one.
        self.writers: deque[asyncio.Future[None]] | None = None
        self.spent = 0
        self._timeouts = timeouts
        self._transport: asyncio.Transport | None = None
        # A flush is on its way: scheduled, or at the end of what runs now.
        self._flushing = False
        self._ending = False
        self.opened_at = self._read_at = self._busy_at = self.loop.time()
        self.received_bytes = 0
        # How often reading stopped.
        self.pauses = 0
        self._draining_since: float | None = None
        self._deferred: dict[Stream, None] = {}
        # Bytes given to the transport; of these taken by the socket, and since when no more.
        self._written = self._taken = 0
        self._taken_at = 0.0
        self._linger: asyncio.TimerHandle | None = None

    # For subclasses.

    def serve(self, stream: Stream) -> None:
        """A stream has news."""
        raise NotImplementedError

    def failed(self, stream: Stream) -> None:
        """`serve` raised, so the stream was reset."""

    def opened(self) -> None:
        """The connection is there."""

    def ended(self) -> None:
        """The connection is gone, and all its streams were told."""

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loops' transports are duck-typed: uvloop's does not inherit asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.opened()
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._read_at = now = self.loop.time()
        self.received_bytes += len(data)
        if self._ending:
            return
        flushing, self._flushing = self._flushing, True
        for stream in self.http2.receive(data, now):
            self._news(stream)
        if self._deferred:
            self._serve_deferred()
        if flushing:
            # What answers wait to be written by the scheduled flush can take these along.
            return
        self._flush()

    def eof_received(self) -> None:
        """The peer has closed its side: it cannot widen windows, nor say what it does not want any more.

        So nothing is answered any more; the transport closes when it is empty, as None is returned.
        """
        if self._ending:
            return
        self.cause = self.cause or CloseCause.PEER
        self._write_out()
        self._ending = True
        self._await_departure(self.loop.time() + self._timeouts.drain)
        for stream in self.http2.lost():
            self._news(stream)

    def pause_writing(self) -> None:
        self.congested = True
        self._taken_at = self.loop.time()
        self.pauses += 1
        if self._transport is not None and not self._ending:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.congested = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._admit()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = self._ending = True
        if self.cause is None:
            self.cause = CloseCause.PEER if error is None else CloseCause.RESET
        if self._linger is not None:
            self._linger.cancel()
        for stream in self.http2.lost():
            self._news(stream)
        self._deferred.clear()
        self.congested = False
        self._admit()
        self.ended()

    # Streams.

    def _news(self, stream: Stream) -> None:
        if stream.call is None:
            if stream.closed:
                # Reset before it was begun.
                self._deferred.pop(stream, None)
                return
            if self.http2.waiting > self.http2.limits.connection_buffer:
                self._deferred[stream] = None
                stream.compact()
                return
        try:
            self.serve(stream)
        except Exception:
            _log.exception("serving a stream failed")
            stream.reset(ErrorCode.INTERNAL_ERROR)
            self.failed(stream)

    def _serve_deferred(self) -> None:
        """Take up the requests that waited for older answers to be taken."""
        if self.http2.waiting <= self.http2.limits.connection_buffer:
            deferred, self._deferred = self._deferred, {}
            for stream in deferred:
                self._news(stream)

    async def writable(self) -> None:
        """Waits while the socket is full, and for those who have waited longer."""
        if (self.congested or self.writers) and not self.closed:
            writer = self.loop.create_future()
            if self.writers is None:
                self.writers = deque()
            self.writers.append(writer)
            await writer

    def _admit(self) -> None:
        """Let the first in line write. The next is asked in behind it: by then the socket may be full again."""
        writers = self.writers
        while writers and not self.congested:
            writer = writers.popleft()
            if not writer.done():
                writer.set_result(None)
                if writers:
                    self.loop.call_soon(self._admit)
                return

    async def turn(self) -> None:
        """Let others have theirs, and the socket what is to be written, so that it can say when it is full."""
        self.spent = 0
        self._write_out()
        await asyncio.sleep(0)

    # Writing.

    def _wake(self) -> None:
        """There are bytes to send: by the end of this turn of the loop."""
        if not self._flushing and self._transport is not None:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write_out()
        if self.http2.fault is not None:
            self._give_up(self.http2.fault)
        elif self.http2.draining and self.http2.drained:
            self.end(CloseCause.DRAIN)

    def _write_out(self) -> None:
        transport, http2 = self._transport, self.http2
        if http2.has_output and transport is not None and not self._ending and not transport.is_closing():
            data = http2.take()
            self._written += len(data)
            transport.write(data)
            if self.congested and transport.get_write_buffer_size() > http2.limits.hard_buffer:
                self.abort(CloseCause.ABUSE)

    # Timeouts and the end.

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
    def read_at(self) -> float:
        """When the peer was last heard, in seconds of the loop's clock."""
        return self._read_at

    def check(self, now: float) -> None:
        """To be called every second or so."""
        http2, timeouts = self.http2, self._timeouts
        if self._ending:
            return
        if self.congested:
            self._check_congestion(now)
            return
        if http2.streams:
            self._busy_at = now
        http2.check(now)
        for stream in http2.news():
            self._news(stream)
        if self._deferred:
            # An answer that a handler took back has made room.
            self._serve_deferred()
        if http2.fault is None:
            self._check_silence(now, timeouts)
            self._check_age(now, timeouts)

    def _check_congestion(self, now: float) -> None:
        """What the socket does not take is a stall as well; the peer is not read from, so it may say nothing."""
        assert self._transport is not None
        taken = self._written - self._transport.get_write_buffer_size()
        if taken != self._taken:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > self.http2.limits.stall_timeout:
            self.abort(CloseCause.UNRESPONSIVE)

    def _check_silence(self, now: float, timeouts: Timeouts) -> None:
        if self.http2.pinged is not None:
            if now - self.http2.pinged > timeouts.ping_timeout:
                self.abort(CloseCause.UNRESPONSIVE)
        elif timeouts.ping_after is not None and now - self._read_at > timeouts.ping_after:
            self.http2.ping()

    def _check_age(self, now: float, timeouts: Timeouts) -> None:
        if self.http2.draining and self._draining_since is None:
            # It ran out of stream numbers.
            self._draining_since = now
        if self._draining_since is not None:
            silence = now - self._draining_since
            if silence > _DRAIN_PATIENCE:
                self.http2.finish_draining()
            if timeouts.age is not None and silence > timeouts.drain and now - self.http2.opened_at > timeouts.age:
                self.end(CloseCause.DRAIN)
        elif (timeouts.idle is not None and now - self._busy_at > timeouts.idle) or (
            timeouts.age is not None and now - self.http2.opened_at > timeouts.age
        ):
            self.drain()

    def drain(self) -> None:
        """Tell the peer to go elsewhere; the connection closes when its streams have finished."""
        if self._draining_since is None:
            self._draining_since = self.loop.time()
            self.http2.drain()

    def end(self, cause: CloseCause) -> None:
        """Close in order: GOAWAY for the streams that are left, and time to read it."""
        if self._ending:
            return
        if self.cause is None:
            self.cause = cause
        if not self.http2.drained:
            self.http2.fail(ConnectionFault(ErrorCode.NO_ERROR, "the server closes", cause))
        self._write_out()
        self._depart()
        for stream in self.http2.news():
            self._news(stream)

    def abort(self, cause: CloseCause) -> None:
        """Close now; what was not written is lost."""
        if self.cause is None:
            self.cause = cause
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self, fault: ConnectionFault) -> None:
        """The last words are out; the streams have to be told, and the peer has a moment to read them."""
        if self._ending:
            return
        if self.cause is None:
            self.cause = CloseCause.PROTOCOL if fault.reason in ("protocol", "hpack") else CloseCause.ABUSE
        self._depart()
        for stream in self.http2.news():
            self._news(stream)

    def _depart(self) -> None:
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
            # The peer was faster.
            transport.abort()
            return
        self._await_departure(self.loop.time() + self._timeouts.drain)

    def _await_departure(self, until: float) -> None:
        self._linger = self.loop.call_later(_LINGER, self._leave, until)

    def _leave(self, until: float) -> None:
        """The peer has not closed; if it still reads, it may go on."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() and self.loop.time() < until:
            self._await_departure(until)
        else:
            transport.abort()
