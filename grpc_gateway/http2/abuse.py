"""Detection of clients that make a server work without need."""

from enum import StrEnum

from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import Limits


class Abuse(StrEnum):
    """Kinds of abuse; the values are metric labels."""

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


# Allowed burst, and rate per second after it. Ordinary clients stay far below.
RATES: dict[Abuse, tuple[int, float]] = {
    # Streams reset by the peer within `Limits.rapid_reset_age` seconds (CVE-2023-44487).
    Abuse.RAPID_RESET: (256, 64.0),
    # Streams that the server resets because of the peer's errors ("MadeYouReset", CVE-2025-8671).
    Abuse.VIOLATIONS: (128, 16.0),
    Abuse.REFUSED_STREAMS: (1024, 128.0),
    # Each SETTINGS frame requires an acknowledgement (CVE-2019-9515).
    Abuse.SETTINGS_FLOOD: (64, 8.0),
    # DATA frames without data or the end of a stream (CVE-2019-9518).
    Abuse.EMPTY_DATA: (128, 16.0),
    # PRIORITY frames are ignored, but have to be parsed.
    Abuse.PRIORITY_FLOOD: (1024, 128.0),
    Abuse.UNKNOWN_FRAMES: (256, 32.0),
}


class TokenBucket:
    """`burst` tokens at first, refilled by `rate` per second up to `burst`."""

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, burst: int, rate: float, now: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = float(burst)
        self._since = now

    def spend(self, now: float) -> bool:
        """Take one token; return False if there is none."""
        self._tokens = min(self._tokens + (now - self._since) * self._rate, self._burst) - 1
        self._since = now
        return self._tokens >= 0


class AbuseGuard:
    """Counts acts of one connection's peer that are harmless if they are rare."""

    __slots__ = ("_buckets", "_limits", "_ping_at", "_ping_strikes")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets: dict[Abuse, TokenBucket] = {}
        self._ping_at = float("-inf")
        self._ping_strikes = 0

    def charge(self, abuse: Abuse, now: float) -> None:
        """Count one act. Raises ConnectionFault if there are too many."""
        bucket = self._buckets.get(abuse)
        if bucket is None:
            bucket = self._buckets[abuse] = TokenBucket(*RATES[abuse], now)
        if not bucket.spend(now):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, abuse.value, abuse)

    def charge_ping(self, responded: bool, now: float) -> None:
        """Apply gRPC's keepalive rule (gRFC A8): pings at an interval, or with responses in between.

        `responded`: a response has been sent since the last ping; the peer may measure the bandwidth with each.
        Raises ConnectionFault after `Limits.ping_strikes` early pings.
        """
        early = not responded and now - self._ping_at < self._limits.ping_interval
        self._ping_strikes = self._ping_strikes + 1 if early else 0
        self._ping_at = now
        if self._ping_strikes > self._limits.ping_strikes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings", Abuse.PING_FLOOD)
