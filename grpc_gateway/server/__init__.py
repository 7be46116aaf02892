"""A gRPC server on `grpc_gateway.http2`, with grpc.aio's registration and contexts."""

from grpc_gateway.server.connection import GrpcConnection
from grpc_gateway.server.rpc_status import RpcError
from grpc_gateway.server.server import Server
from grpc_gateway.server.server_call import ServerCall
from grpc_gateway.server.server_options import ServerOptions
from grpc_gateway.server.unary_fast_path import immediate, read_by

__all__ = ["GrpcConnection", "RpcError", "Server", "ServerCall", "ServerOptions", "immediate", "read_by"]
