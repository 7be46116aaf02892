"""What is configured about the gRPC server."""

from dataclasses import dataclass

import grpc

from grpc_gateway.http2.limits import DEFAULT_LIMITS, DEFAULT_UPKEEP, Limits, Upkeep

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Bounds and habits of a server.

    max_receive_message, max_send_message: bytes of one message, decompressed; more is RESOURCE_EXHAUSTED.
    max_request_bytes: of a connection's requests that have not arrived in full, and of large ones, decompressed, whose
    handlers have not ended; more is RESOURCE_EXHAUSTED.
    max_plain_body: of a request that is no gRPC, which are read past before it is refused.
    compression: of answers, where the client accepts it and the handler does not choose.
    threads: for handlers that are plain functions.
    sweep: seconds between looks at what takes too long on the connections.
    deadline_tick: seconds by which a call may outlive its deadline.
    """

    max_receive_message: int = 16 * _MIB
    max_send_message: int = 64 * _MIB
    max_request_bytes: int = 128 * _MIB
    max_plain_body: int = 64 * 1024
    compression: grpc.Compression = grpc.Compression.NoCompression
    threads: int = 16
    sweep: float = 1.0
    deadline_tick: float = 0.02
    limits: Limits = DEFAULT_LIMITS
    upkeep: Upkeep = DEFAULT_UPKEEP


DEFAULT_OPTIONS = ServerOptions()
