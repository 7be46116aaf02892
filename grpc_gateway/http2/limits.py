"""What one HTTP/2 connection may cost us."""

from dataclasses import dataclass
from enum import StrEnum


class Abuse(StrEnum):
    """Ways to make a server work for nothing; the values are metric labels."""

    RAPID_RESET = "rapid_reset"
    VIOLATIONS = "violations"
    CONTINUATION_FLOOD = "continuation_flood"
    HEADER_BOMB = "header_bomb"
    HEADER_LIST = "header_list"
    SETTINGS_FLOOD = "settings_flood"
    PING_FLOOD = "ping_flood"
    EMPTY_DATA = "empty_data"
    PRIORITY_FLOOD = "priority_flood"
    UNKNOWN_FRAMES = "unknown_frames"
    REFUSED_STREAMS = "refused_streams"
    SETTINGS_TIMEOUT = "settings_timeout"
    SLOW_READER = "slow_reader"


# How often something may happen: at first, and per second from then on. Ordinary clients stay far below.
RATES: dict[Abuse, tuple[int, float]] = {
    # Streams reset by the peer within `Limits.young` seconds (CVE-2023-44487).
    Abuse.RAPID_RESET: (256, 64.0),
    # Streams that we had to reset for what the peer did ("MadeYouReset", CVE-2025-8671).
    Abuse.VIOLATIONS: (128, 16.0),
    Abuse.REFUSED_STREAMS: (1024, 128.0),
    # Each asks for an acknowledgement (CVE-2019-9515).
    Abuse.SETTINGS_FLOOD: (64, 8.0),
    # DATA that neither carries nor ends anything (CVE-2019-9518).
    Abuse.EMPTY_DATA: (128, 16.0),
    # PRIORITY is ignored, reading it is not free.
    Abuse.PRIORITY_FLOOD: (1024, 128.0),
    Abuse.UNKNOWN_FRAMES: (256, 32.0),
}


class Allowance:
    """A bucket of tokens that fills up by `rate` per second, up to `burst`."""

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, burst: int, rate: float, now: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = float(burst)
        self._since = now

    def spend(self, now: float) -> bool:
        """Take one; False when there is none."""
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate) - 1
        self._since = now
        return self._tokens >= 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection.

    concurrent_streams, header_list, stream_window: announced in SETTINGS; streams at once, bytes of a decoded header
    list as RFC 9113 section 6.5.2 counts them, bytes of a stream that the application has not consumed.
    connection_window: the same for all streams together.
    continuations: CONTINUATION frames of one header block.
    young: seconds within which a stream's reset by the peer counts as rapid.
    remembered_resets: streams that we reset, whose late frames are ignored.
    ping_interval: seconds between pings of a peer that gets no answers meanwhile; ping_strikes: earlier ones forgiven.
    stream_buffer: bytes of answers that wait in a stream before its writer has to.
    connection_buffer: bytes that wait in all streams before no new requests are taken up; hard_buffer: before the
    connection is given up.
    settings_timeout, stall_timeout: seconds that the peer has to acknowledge our SETTINGS, and to take something of
    what waits for it.
    """

    concurrent_streams: int = 4096
    header_list: int = 16 * 1024
    stream_window: int = 1024 * 1024
    connection_window: int = 16 * 1024 * 1024
    continuations: int = 16
    young: float = 1.0
    remembered_resets: int = 1024
    ping_interval: float = 10.0
    ping_strikes: int = 2
    stream_buffer: int = 64 * 1024
    connection_buffer: int = 4 * 1024 * 1024
    hard_buffer: int = 128 * 1024 * 1024
    settings_timeout: float = 20.0
    stall_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long connections may be silent, idle, or open; seconds, None for no bound.

    ping_after: silence of the peer until it is asked for a sign of life; ping_timeout: until it must have given one.
    idle: without a stream, until the peer is told to go. age: of a connection until then, whatever it does;
    drain: that streams then have to finish.
    """

    ping_after: float | None = 120.0
    ping_timeout: float = 20.0
    idle: float | None = None
    age: float | None = None
    drain: float = 60.0


DEFAULT_LIMITS = Limits()
DEFAULT_TIMEOUTS = Timeouts()
