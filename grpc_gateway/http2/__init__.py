"""HTTP/2 for servers (RFC 9113, RFC 7541): `Connection` has no I/O, `Http2Channel` adds the transport."""

from grpc_gateway.http2.abuse import Abuse
from grpc_gateway.http2.channel import CloseCause, Http2Channel
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode, StreamFault
from grpc_gateway.http2.hpack import Block
from grpc_gateway.http2.limits import Limits, Timeouts
from grpc_gateway.http2.request_head import RequestHead
from grpc_gateway.http2.stream import Stream

__all__ = [
    "Abuse",
    "Block",
    "CloseCause",
    "Connection",
    "ConnectionFault",
    "ErrorCode",
    "Http2Channel",
    "Limits",
    "RequestHead",
    "Stream",
    "StreamFault",
    "Timeouts",
]
