"""A gRPC server on our own HTTP/2, with grpc.aio's registration and contexts."""

from grpc_gateway.server.call import Call
from grpc_gateway.server.connection import GrpcConnection
from grpc_gateway.server.options import ServerOptions
from grpc_gateway.server.server import Server
from grpc_gateway.server.stats import Stats
from grpc_gateway.server.status import RpcError
from grpc_gateway.server.unary_fast_path import immediate

__all__ = ["Call", "GrpcConnection", "RpcError", "Server", "ServerOptions", "Stats", "immediate"]
