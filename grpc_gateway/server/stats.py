"""What a server has done, counted."""

from collections import Counter
from dataclasses import dataclass, field

from grpc_gateway.http2.channel import CloseCause


@dataclass(slots=True)
class Stats:
    """Totals since the server was made.

    closed: connections by cause. refused: connections given up, by what the peer did (`limits.Abuse`, or "protocol",
    "hpack", "malformed"). plain: requests that were no gRPC, by HTTP status. cancelled, expired: calls that the client
    gave up, and whose deadline passed. resets, pings: received, of closed connections.
    """

    opened: int = 0
    closed: Counter[CloseCause] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    plain: Counter[int] = field(default_factory=Counter)
    cancelled: int = 0
    expired: int = 0
    resets: int = 0
    pings: int = 0
