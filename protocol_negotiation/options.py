"""Options of a listener."""

from dataclasses import dataclass, field

from protocol_negotiation.advertised_address import Advertise
from protocol_negotiation.networks import Network
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Options of one listener.

    Attributes:
        address: address to listen on. Host "" or "::" is IPv6 and IPv4, "0.0.0.0" IPv4 only, "unix:/path" a Unix
            socket; port 0 is any free port.
        broker: broker of requests that do not name one.
        negotiation_timeout: seconds from the accept to the detection of the protocol, TLS handshake included.
        max_connections: maximum number of open connections, handed over or not.
        max_connections_per_address: maximum number of open connections from one source address; 0 is unlimited. Unix
            sockets and trusted proxies without a PROXY header are exempt.
        max_negotiations: maximum number of connections in negotiation; above it, the oldest one is closed.
        max_handshakes: maximum number of concurrent TLS handshakes; further ones wait.
        leave_descriptors: refuse connections that would use the process's last descriptors (`descriptor_share.py`).
        dead_peer_timeout: seconds after which the kernel closes a TCP connection whose host does not answer any more,
            or, on Linux, whose receive window stays zero; 0: as the system says.
        socket_mode: permissions of a Unix socket; to connect, a process must be able to write.
    """

    name: str
    address: HostPort
    advertise: Advertise = field(default_factory=Advertise)
    broker: str | None = None
    tls_mode: TlsMode = TlsMode.PERMISSIVE
    trusted_proxies: tuple[Network, ...] = ()
    negotiation_timeout: float = 10.0
    backlog: int = 1024
    max_connections: int = 100_000
    max_connections_per_address: int = 0
    max_negotiations: int = 4096
    max_handshakes: int = 256
    leave_descriptors: bool = False
    reuse_port: bool = False
    dead_peer_timeout: int = 0
    socket_mode: int = 0o600

    def __post_init__(self) -> None:
        if self.negotiation_timeout <= 0:
            raise ValueError(f"negotiation_timeout must be positive: {self.negotiation_timeout}")
        if self.dead_peer_timeout < 0:
            raise ValueError(f"dead_peer_timeout must not be negative: {self.dead_peer_timeout}")
        for name in ("max_connections", "max_negotiations", "max_handshakes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive: {getattr(self, name)}")
        if self.max_connections_per_address < 0:
            raise ValueError(f"max_connections_per_address must not be negative: {self.max_connections_per_address}")
