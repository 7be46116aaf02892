"""Fair shares of the event loop: connections that receive much are handled in slices, in turns.

A connection that receives little is handled at once. More waits, and in each turn of the event loop the waiting
connections are handled for a short time, one slice each. Source addresses take turns, and the connections of one
address among themselves, so that neither many bytes nor many connections increase a client's share. While others that
receive little are active, the time per turn is at most the time that those took, and at least one frame is handled.
While all active connections receive much and have one source address, nothing waits within the time of a turn.
A connection whose frames took unusually long is not handled for a while, so that others get at least half of the time.
"""

import asyncio
import logging
import math
from collections import deque
from time import monotonic, thread_time
from typing import Final, Protocol

from protocol_negotiation.address_limit import source_of
from protocol_negotiation.peer import HostPort

_log = logging.getLogger("gantry.connections")

# Frames of one read that are handled at once: if connections were active lately that receive little or have another
# source address, and otherwise.
SMALL_READ: Final = 8
LARGE_READ: Final = 64
# Seconds for which a connection counts as active.
_ACTIVE_SECONDS: Final = 0.02
# Seconds of a turn of the event loop in which waiting frames are handled: beside other connections that receive little
# (the handling of one frame may take longer), and at most. A client with one request in flight waits for one such turn,
# and shorter turns cost throughput: each has its writes.
_MIN_TURN_SECONDS: Final = 0.00025
_MAX_TURN_SECONDS: Final = 0.002
# Seconds of one connection's slice.
_SLICE_SECONDS: Final = 0.0004
# Seconds of CPU time after which the handling of a few frames counts as expensive, and the bytes that allow another
# second: large messages are no abuse.
EXPENSIVE_SECONDS: Final = 0.005
_EXPENSIVE_BYTES_PER_SECOND: Final = 50_000_000
# Pause after expensive frames, in multiples of the time that they took, and in seconds at most.
_PAUSE_FACTOR: Final = 2.0
_MAX_PAUSE_SECONDS: Final = 2.0


class WaitingConnection(Protocol):
    """A connection with received frames that wait."""

    share: "Share"

    def handle_more(self, until: float) -> bool:
        """Handle at least one of the frames, and more before the time `until` (monotonic); return whether some wait."""

    def fail(self) -> None:
        """Close the connection, because `handle_more` has raised."""


def handle_slice(connection: WaitingConnection, until: float) -> bool:
    """Handle one slice of a connection's frames; return whether more wait. An error ends this connection only."""
    try:
        return connection.handle_more(until)
    except Exception:
        # The other connections must still be handled.
        _log.exception("handling received frames failed")
        connection.fail()
        return False


class Source:
    """The connections of one source address."""

    __slots__ = ("at", "connections", "frames", "key", "paused_until", "waiting")

    def __init__(self, key: str | int | None) -> None:
        self.key = key
        self.connections = 0
        self.waiting: deque[WaitingConnection] = deque()
        # Frames handled at once in the millisecond `at`.
        self.at = self.frames = 0
        self.paused_until = 0.0


class Share:
    """A connection's share.

    divided_at: when the connection last had a slice or a large read, in seconds (monotonic). paused_until: time until
    which nothing is handled at once; infinite until the cost of the next frames is known. size: bytes of the last
    slice.
    """

    __slots__ = ("divided_at", "paused_until", "size", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.divided_at = self.paused_until = 0.0
        self.size = 0


class FairTurns:
    """Turns of the connections of one event loop.

    scheduled: whether connections with waiting frames will be handled in the next turn of the event loop.
    counts: numbers of reads that were divided into slices, and of pauses after expensive frames.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sources: dict[str | int, Source] = {}
        self._turns: deque[Source] = deque()
        self.scheduled = False
        # The timer of the next turn's time if all sources are paused.
        self._timer: asyncio.TimerHandle | None = None
        # The connection and the source that were active last, and when another one was active before them.
        self._last_share: Share | None = None
        self._last_source: Source | None = None
        self._share_changed_at = self._source_changed_at = 0.0
        # When a connection that had neither slices nor large reads lately was last read, and the seconds spent on reads
        # of such connections since the last turn while others waited.
        self._immediate = 0.0
        self._immediate_at = 0.0
        # Time until which large reads are handled at once in this turn of the event loop; 0 before the first one.
        self._large_until = 0.0
        self.counts = {"divided": 0, "paused": 0}

    def join(self, address: HostPort) -> Share:
        """Return the share of a new connection."""
        key = source_of(address)
        if key is None:
            return Share(Source(None))
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(key)
        source.connections += 1
        return Share(source)

    def leave(self, share: Share) -> None:
        """Forget the share of a closed connection."""
        source = share.source
        source.connections -= 1
        if not source.connections and source.key is not None:
            self._sources.pop(source.key, None)
        if self._last_share is share:
            self._last_share = self._last_source = None

    def __len__(self) -> int:
        """Return the number of connections with waiting frames."""
        return sum(len(source.waiting) for source in self._turns)

    def admit(self, share: Share, frames: int, now: float) -> bool:
        """Return whether a read with this number of frames is handled at once; `now` is the time of `monotonic`."""
        if share is not self._last_share:
            self._last_share, self._share_changed_at = share, now
            if share.source is not self._last_source:
                self._last_source, self._source_changed_at = share.source, now
        if now < share.paused_until:
            return False
        if frames > SMALL_READ:
            share.divided_at = now
        elif now - share.divided_at > _ACTIVE_SECONDS:
            self._immediate_at = now
        if now - self._share_changed_at > _ACTIVE_SECONDS:
            # No other connection is active.
            return frames <= LARGE_READ
        if frames > SMALL_READ:
            return frames <= LARGE_READ and self._admit_large(share, now)
        if now - self._source_changed_at > _ACTIVE_SECONDS:
            return True
        source = share.source
        if now < source.paused_until:
            return False
        millisecond = int(now * 1000)
        if source.at != millisecond:
            source.at, source.frames = millisecond, 0
        source.frames += frames
        return source.frames <= SMALL_READ

    def _admit_large(self, share: Share, now: float) -> bool:
        """Return whether a read of more than `SMALL_READ` frames is handled at once beside other connections."""
        if self._turns or now < share.source.paused_until:
            return False
        if now - self._source_changed_at <= _ACTIVE_SECONDS or now - self._immediate_at <= _ACTIVE_SECONDS:
            return False
        if not self._large_until:
            self._large_until = now + _MAX_TURN_SECONDS
            self._loop.call_soon(self._end_large)
        return now < self._large_until

    def _end_large(self) -> None:
        self._large_until = 0.0

    def charge(self, share: Share, begin: float, spent: float) -> None:
        """Count the seconds of a read that was handled at once from the time `begin`.

        To be called if other connections wait (`scheduled`), or if it took longer than EXPENSIVE_SECONDS.
        """
        if begin - share.divided_at > _ACTIVE_SECONDS:
            self._immediate += spent
        if spent > EXPENSIVE_SECONDS:
            # Perhaps the process was interrupted: the CPU time of the next slice decides.
            share.paused_until = math.inf

    def add(self, connection: WaitingConnection) -> None:
        """Let a connection that does not wait yet handle its frames, beginning in the next turn of the event loop."""
        self.counts["divided"] += 1
        source = connection.share.source
        source.waiting.append(connection)
        if len(source.waiting) == 1:
            self._turns.append(source)
        if not self.scheduled:
            self.scheduled = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        turns = self._turns
        # The loop's own time is fixed during a turn.
        now = monotonic()
        used = thread_time()
        contended = now - self._immediate_at < _ACTIVE_SECONDS
        seconds = min(max(self._immediate, _MIN_TURN_SECONDS), _MAX_TURN_SECONDS) if contended else _MAX_TURN_SECONDS
        end = now + seconds
        self._immediate = 0.0
        paused = 0
        while now < end and paused < len(turns):
            source = turns.popleft()
            if now < source.paused_until:
                turns.append(source)
                paused += 1
                continue
            paused = 0
            connection = source.waiting.popleft()
            begin = now
            if self._handle(connection, min(now + _SLICE_SECONDS, end), now):
                source.waiting.append(connection)
            if source.waiting:
                turns.append(source)
            now = monotonic()
            if now - begin > EXPENSIVE_SECONDS:
                # The CPU time decides, which is a system call: the process may have been interrupted.
                self._pause_if_expensive(connection.share, min(thread_time() - used, now - begin))
                used = thread_time()
        self.scheduled = bool(turns) and paused < len(turns)
        if self.scheduled:
            self._loop.call_soon(self._run)
        elif turns:
            delay = min(source.paused_until for source in turns) - now
            self._timer = self._loop.call_later(max(delay, 0.001), self._resume)

    def _resume(self) -> None:
        self._timer = None
        self.scheduled = True
        self._run()

    def _handle(self, connection: WaitingConnection, until: float, now: float) -> bool:
        """Handle one slice; return whether more frames wait."""
        share = connection.share
        share.paused_until = 0.0
        share.divided_at = now
        return handle_slice(connection, until)

    def _pause_if_expensive(self, share: Share, spent: float) -> None:
        if spent > EXPENSIVE_SECONDS + share.size / _EXPENSIVE_BYTES_PER_SECOND:
            self.counts["paused"] += 1
            pause = min(spent * _PAUSE_FACTOR, _MAX_PAUSE_SECONDS)
            share.paused_until = share.source.paused_until = monotonic() + pause
