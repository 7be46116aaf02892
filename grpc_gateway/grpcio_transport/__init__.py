"""grpcio's own server behind the same port, to measure and test `grpc_gateway.server` against it."""

from grpc_gateway.grpcio_transport.relay import Relay
from grpc_gateway.grpcio_transport.server import GrpcioServer

__all__ = ["GrpcioServer", "Relay"]
