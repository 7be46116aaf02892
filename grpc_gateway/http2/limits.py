"""Limits and timeouts of one HTTP/2 connection."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the resources that a connection takes.

    concurrent_streams: streams open at a time; announced in SETTINGS.
    header_list: bytes of a decoded header list as RFC 9113 section 6.5.2 counts them; announced in SETTINGS.
    stream_window: bytes of a stream that the application has not consumed; announced in SETTINGS.
    connection_window: bytes of all streams together that the application has not consumed.
    continuations: CONTINUATION frames of one header block.
    rapid_reset_age: seconds for which a stream's reset by the peer counts as rapid.
    remembered_resets: streams reset by the server whose late frames are ignored.
    ping_interval: minimum seconds between pings of a peer that gets no responses in between.
    ping_strikes: tolerated consecutive pings before that interval.
    stream_buffer: bytes of a response that wait for the peer before its writer has to wait.
    connection_buffer: bytes of all responses that wait for the peer before new requests are deferred.
    hard_buffer: bytes of all responses that wait for the peer before the connection is closed.
    settings_timeout: seconds for the peer to acknowledge the server's SETTINGS.
    stall_timeout: seconds for the peer to read any of the bytes that wait for it.
    frame_timeout: seconds for a frame to arrive in full, and for a header block with its CONTINUATION frames.
    """

    concurrent_streams: int = 4096
    header_list: int = 16 * 1024
    stream_window: int = 1024 * 1024
    connection_window: int = 16 * 1024 * 1024
    continuations: int = 16
    rapid_reset_age: float = 0.1
    remembered_resets: int = 1024
    ping_interval: float = 10.0
    ping_strikes: int = 2
    stream_buffer: int = 64 * 1024
    connection_buffer: int = 4 * 1024 * 1024
    hard_buffer: int = 32 * 1024 * 1024
    settings_timeout: float = 20.0
    stall_timeout: float = 60.0
    frame_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of a connection's silence, idleness and age, in seconds; None for no limit.

    ping_after: silence of the peer before the server pings it.
    ping_timeout: time for the peer to send anything after that ping.
    idle: time without a stream before the connection is drained.
    age: age at which the connection is drained.
    drain: time for streams to finish once the connection is drained for its age.
    """

    ping_after: float | None = 120.0
    ping_timeout: float = 20.0
    idle: float | None = None
    age: float | None = None
    drain: float = 60.0


DEFAULT_LIMITS = Limits()
DEFAULT_TIMEOUTS = Timeouts()
