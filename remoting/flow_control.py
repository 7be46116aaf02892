"""Back-pressure of one remoting connection.

1. A connection is not read while its peer has too many in-flight requests, by number or by bytes. Long polls raise the
   number, because a consumer of many queues could send nothing else otherwise.
2. A connection is not read while its peer does not read its responses. Past a hard limit, it is closed, and also if
   the peer reads too slowly for too long.
3. A source whose requests are written to a congested connection is not read until that connection has drained.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, cast

from remoting.compilation import mypyc_attr
from remoting.frame import MAX_FRAME
from remoting.memory_watch import UNWATCHED, MemoryWatch
from remoting.socket_state import is_reset
from remoting.tasks import isolated
from remoting.timeout_wheel import TimeoutWheel

# Seconds at the limit of in-flight requests after which they are treated as long polls.
_POLL_DETECTION_TIME = 0.1
# Bytes per second at which a frame that takes longer than the timeout has to arrive, and at which a peer has to read.
MIN_RATE: Final = 16 * 1024


class PausableSource(Protocol):
    """A connection whose requests are written to other connections."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Undo one `pause`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection.

    Attributes:
        requests: in-flight requests before reads pause. If the peer stays at the limit, its requests count as long
            polls, and the limit rises step by step up to `polls`.
        polls: the highest number of in-flight requests before reads pause.
        request_bytes: bytes of in-flight requests before reads pause.
        buffer: bytes waiting to be written before reads pause.
        hard_buffer: bytes waiting to be written before the connection is closed.
        frame: maximum size of a received frame, in bytes.
    """

    requests: int = 64
    polls: int = 4096
    request_bytes: int = 32 * 1024 * 1024
    buffer: int = 1024 * 1024
    hard_buffer: int = 32 * 1024 * 1024
    frame: int = MAX_FRAME


DEFAULT_LIMITS: Final = Limits()
# Of a connection that requests of many clients share: each client has passed its limits on a connection of its own.
SHARED_LIMITS: Final = Limits(requests=1_000_000, polls=1_000_000, request_bytes=2**40, hard_buffer=2**40)


class Progress(NamedTuple):
    """Bytes that a peer has sent or read of something, with its number, at a time in seconds of the loop's clock."""

    number: int
    at: float
    size: int

    def since(self, before: "Progress | None", timeout: float) -> "tuple[Progress, bool]":
        """Return the progress to compare with next, and whether there were too few bytes in `timeout` seconds."""
        if before is None or before.number != self.number:
            return self, False
        elapsed = self.at - before.at
        if elapsed < timeout:
            return before, False
        return (before, True) if self.size - before.size < MIN_RATE * elapsed else (self, False)


@mypyc_attr(allow_interpreted_subclasses=True)
class FlowControl(asyncio.Protocol):
    """Read and write limits of a connection; base class of `RemotingConnection`.

    `full_since` is the time at which the limit of in-flight requests was reached, in seconds of the loop's clock, or
    None below it; `congested` is true while the transport's write buffer is over `Limits.buffer`; `pauses` counts the
    pauses of reads; `memory` counts bytes over all connections.
    """

    __slots__ = (
        "_check_scheduled",
        "_in_flight",
        "_in_flight_bytes",
        "_pause_depth",
        "_paused_sources",
        "_request_limit",
        "_wheel",
        "closed",
        "congested",
        "full_since",
        "limits",
        "loop",
        "memory",
        "pauses",
        "transport",
    )

    def __init__(self, wheel: TimeoutWheel, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self.congested = False
        self.pauses = 0
        self.memory: MemoryWatch = UNWATCHED
        self._wheel = wheel
        self._in_flight = self._in_flight_bytes = 0
        self._request_limit = limits.requests
        self.full_since: float | None = None
        self._check_scheduled = False
        self._pause_depth = 0
        # A dict for its order and its constant-time look-up.
        self._paused_sources: dict[PausableSource, None] = {}

    @property
    def in_flight(self) -> int:
        """The number of the peer's requests without a response."""
        return self._in_flight

    @property
    def in_flight_bytes(self) -> int:
        """The memory of the peer's requests without a response, in bytes."""
        return self._in_flight_bytes

    @property
    def unread_bytes(self) -> int:
        """The number of bytes that were written and that the socket has not taken."""
        return 0 if self.transport is None or self.closed else self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.limits.buffer)

    def pause_writing(self) -> None:
        self.congested = True
        self.pause()

    def resume_writing(self) -> None:
        self.congested = False
        self.resume()
        self.resume_sources()
        self._on_capacity()

    # Reads.

    def pause(self) -> None:
        """Stop reading until `resume` has been called as often as `pause`."""
        self._pause_depth += 1
        if self._pause_depth == 1:
            self.pauses += 1
            if self.transport is not None and not self.transport.is_closing():
                self.transport.pause_reading()

    def resume(self) -> None:
        """Undo one `pause`."""
        self._pause_depth -= 1
        if self._pause_depth == 0 and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def was_reset(self) -> bool:
        """Whether the peer has reset the connection while reads are paused, which the event loop does not notice."""
        return self._pause_depth > 0 and self.transport is not None and is_reset(self.transport)

    def end_reads_of_turn(self) -> None:
        """Read on in the next turn of the event loop: libuv would read up to 32 times, 256 KB each, in this one."""
        self._pause_depth += 1
        if self._pause_depth == 1 and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self.loop.call_soon(self.resume)

    def pause_until_drained(self, source: PausableSource) -> None:
        """If this connection is congested, pause a source of its requests until it has drained."""
        if self.congested and source not in self._paused_sources:
            self._paused_sources[source] = None
            source.pause()

    def resume_sources(self) -> None:
        """Resume the sources that `pause_until_drained` paused."""
        sources, self._paused_sources = self._paused_sources, {}
        for source in sources:
            isolated(source.resume)

    # In-flight requests. `RemotingConnection` counts them when they start.

    def _end_request(self, size: int) -> None:
        """Count one request of `size` bytes as no longer in flight."""
        self._in_flight -= 1
        self._in_flight_bytes -= size
        if self._in_flight < self.limits.requests:
            self._request_limit = self.limits.requests
        if self.full_since is not None:
            self._resume_below_limit()

    def _pause_at_limit(self) -> None:
        """Pause reads; after `_POLL_DETECTION_TIME`, check for long polls."""
        if self.full_since is not None:
            return
        self.full_since = self.loop.time()
        self.pause()
        if not self._check_scheduled:
            self._schedule_check()

    def _resume_below_limit(self) -> None:
        if (
            self.full_since is not None
            and self._in_flight < self._request_limit
            and self._in_flight_bytes < self.limits.request_bytes
        ):
            self.full_since = None
            self.resume()
            self._on_capacity()

    def _on_capacity(self) -> None:
        """Handle that in-flight requests fell below the limit; for subclasses."""

    def _schedule_check(self) -> None:
        self._check_scheduled = True
        self._wheel.add(_LongPollCheck(self), _POLL_DETECTION_TIME)

    def raise_limit_for_polls(self) -> None:
        """Raise the limit of in-flight requests if the peer has stayed at it; called by the timeout wheel."""
        self._check_scheduled = False
        full_since = self.full_since
        if self.closed or full_since is None:
            return
        if self._in_flight >= self._request_limit and self.loop.time() - full_since >= _POLL_DETECTION_TIME:
            self._request_limit = min(self._request_limit + self.limits.requests, self.limits.polls)
            self._resume_below_limit()
        if self.full_since is not None:
            self._schedule_check()


class _LongPollCheck:
    """Entry of the timeout wheel that checks a connection for long polls."""

    __slots__ = ("_connection",)

    def __init__(self, connection: FlowControl) -> None:
        self._connection = connection

    def expire(self) -> None:
        self._connection.raise_limit_for_polls()
