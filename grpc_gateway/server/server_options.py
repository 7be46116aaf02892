"""Options of the gRPC server."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpc_gateway.http2.limits import DEFAULT_LIMITS, DEFAULT_TIMEOUTS, Limits, Timeouts

_MIB = 1024 * 1024
# Bytes per second of the slowest client that can send large messages.
MIN_REQUEST_RATE = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits and intervals of a server.

    max_receive_message, max_send_message: decompressed bytes of one message; larger ones are RESOURCE_EXHAUSTED.
    max_requests: the same for requests of some methods, by path. Parsed, small elements take 25 times their bytes.
    max_request_bytes: bytes that a connection's requests take, counting those that have not arrived in full, and large
    ones, decompressed, until their handlers end; requests over the limit are RESOURCE_EXHAUSTED.
    max_unfinished_bytes: bytes of a connection's requests from which only one unfinished request at a time gets more
    than its first window; the others wait.
    request_timeout: seconds for a request message to arrive in full; in addition, a second for each MIN_REQUEST_RATE
    bytes of the connection's unfinished requests.
    max_rejected_body: bytes that are read of a request that is not gRPC before it is rejected.
    check_interval: seconds between checks of the connections for timeouts.
    deadline_tick: seconds by which a call may outlive its deadline.
    """

    max_receive_message: int = 16 * _MIB
    max_send_message: int = 64 * _MIB
    max_requests: Mapping[str, int] = field(default_factory=dict)
    max_request_bytes: int = 128 * _MIB
    max_unfinished_bytes: int = 32 * _MIB
    request_timeout: float = 30.0
    max_rejected_body: int = 64 * 1024
    check_interval: float = 1.0
    deadline_tick: float = 0.02
    limits: Limits = DEFAULT_LIMITS
    timeouts: Timeouts = DEFAULT_TIMEOUTS


DEFAULT_OPTIONS = ServerOptions()
