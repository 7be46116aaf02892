"""Detection of clients that make a server work without need."""

from enum import StrEnum
from typing import Final

from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import Limits
from remoting.token_bucket import TokenBucket


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
    FRAME_FLOOD = "frame_flood"
    SLOW_FRAME = "slow_frame"
    REFUSED_STREAMS = "refused_streams"
    SETTINGS_TIMEOUT = "settings_timeout"
    SLOW_READER = "slow_reader"


# Allowed burst, and rate per second after it. Ordinary clients stay far below.
RATES: Final[dict[Abuse, tuple[int, float]]] = {
    # Streams reset by the peer within `Limits.rapid_reset_age` seconds (CVE-2023-44487). The burst (some 0.1 s of the
    # server's time) is that of calls with short deadlines that pass before a busy server reads the requests.
    Abuse.RAPID_RESET: (1024, 128.0),
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


# Frames that carry nothing by themselves: WINDOW_UPDATE, RST_STREAM, PING, acknowledgements, frames on closed streams,
# and DATA frames of a few bytes. A fixed rate would hit clients with many calls or large responses, so the budget grows
# with the work that such frames accompany. Clients send at most one WINDOW_UPDATE for a stream and one for the
# connection per DATA frame that they receive (16 KiB of a large response), a PING per bandwidth measurement (grpc-go,
# grpc-java), and one RST_STREAM per cancelled request. Envoy allows 10 WINDOW_UPDATEs per DATA frame that it has sent.
# Allowed burst in frames (some 20 ms of the server's time), and frames per second after it.
FRAME_BURST: Final = 10_000
FRAME_RATE: Final = 1_000.0
# Frames per request that the peer has opened.
FRAMES_PER_REQUEST: Final = 4
# Sent bytes that allow one more frame. More than the 17 bytes that acknowledge a PING, which must not pay for the next.
SENT_BYTES_PER_FRAME: Final = 32
# Size in bytes below which a DATA frame that does not end its stream is charged.
SMALL_DATA: Final = 16


class AbuseGuard:
    """Counts acts of one connection's peer that are harmless if they are rare."""

    __slots__ = (
        "_buckets",
        "_frames",
        "_frames_at",
        "_limits",
        "_paid_bytes",
        "_paid_requests",
        "_ping_at",
        "_ping_strikes",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        # Frames that the peer may send until the budget is computed again, and the state at the last computation.
        self._frames = FRAME_BURST
        self._frames_at = now
        self._paid_requests = self._paid_bytes = 0
        self._buckets: dict[Abuse, TokenBucket] = {}
        self._ping_at = float("-inf")
        self._ping_strikes = 0

    def charge(self, abuse: Abuse, now: float) -> None:
        """Count one act. Raises ConnectionFault if there are too many."""
        bucket = self._buckets.get(abuse)
        if bucket is None:
            burst, rate = RATES[abuse]
            bucket = self._buckets[abuse] = TokenBucket(rate, burst, now)
        # Acts beyond the limit are counted, too.
        bucket.take(1.0, now)
        if bucket.tokens(now) < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, abuse.value, abuse)

    def charge_frame(self, now: float, requests: int, sent_bytes: int) -> None:
        """Count one frame that carries nothing by itself. Raises ConnectionFault if there are too many.

        requests, sent_bytes: requests of the peer and bytes sent to it since the connection began; they pay for frames.
        """
        self._frames -= 1
        if self._frames >= 0:
            return
        # Computed only once the tokens are used up, so that an ordinary frame costs a comparison.
        earned = (
            (now - self._frames_at) * FRAME_RATE
            + (requests - self._paid_requests) * FRAMES_PER_REQUEST
            + (sent_bytes - self._paid_bytes) / SENT_BYTES_PER_FRAME
        )
        self._frames += min(int(earned), FRAME_BURST)
        self._frames_at, self._paid_requests, self._paid_bytes = now, requests, sent_bytes
        if self._frames < 0:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, "too many frames for the requests and responses", Abuse.FRAME_FLOOD
            )

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
