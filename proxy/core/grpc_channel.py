"""The channel of a gRPC client."""

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.server_push import TELEMETRY_PUSH
from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.principal import UNAUTHENTICATED, Principal


class GrpcChannel(Client):
    """A gRPC client with the core's session."""

    protocol: ChannelProtocol = "grpc"
    # Each rpc is observed as a whole by the gRPC frontend.
    observed = False
    signs = False

    principal: Principal

    def __init__(self, client_id: str, peer: Peer) -> None:
        super().__init__(client_id, peer, TELEMETRY_PUSH)
        self.principal = UNAUTHENTICATED
        self.session = Session(str(peer.address))

    @property
    def identity(self) -> Identity:
        return Identity(self.client_id or None, self.language or None, self.version or None)
