"""Options of the gRPC server."""

from dataclasses import dataclass

from grpc_gateway.http2.limits import DEFAULT_LIMITS, DEFAULT_TIMEOUTS, Limits, Timeouts

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Limits and intervals of a server.

    max_receive_message, max_send_message: decompressed bytes of one message; larger ones are RESOURCE_EXHAUSTED.
    max_request_bytes: bytes that a connection's requests take, counting those that have not arrived in full, and large
    ones, decompressed, until their handlers end; requests over the limit are RESOURCE_EXHAUSTED.
    max_rejected_body: bytes that are read of a request that is not gRPC before it is rejected.
    check_interval: seconds between checks of the connections for timeouts.
    deadline_tick: seconds by which a call may outlive its deadline.
    """

    max_receive_message: int = 16 * _MIB
    max_send_message: int = 64 * _MIB
    max_request_bytes: int = 128 * _MIB
    max_rejected_body: int = 64 * 1024
    check_interval: float = 1.0
    deadline_tick: float = 0.02
    limits: Limits = DEFAULT_LIMITS
    timeouts: Timeouts = DEFAULT_TIMEOUTS


DEFAULT_OPTIONS = ServerOptions()
