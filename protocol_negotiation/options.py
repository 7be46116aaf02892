"""What is configured about one listener."""

from dataclasses import dataclass, field

from protocol_negotiation.advertised_address import Advertise
from protocol_negotiation.networks import Network
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """One listener.

    `address`: where to listen; host "" or "::" takes IPv6 and IPv4, "0.0.0.0" IPv4 only, "unix:/path" a Unix socket;
    port 0 takes a free port. `broker`: the broker that requests without a broker name are meant for.
    `negotiation_timeout`: seconds from the accept until the protocol must be known, TLS handshake included.
    `max_connections`: open connections of this listener, handed over or not.
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
    reuse_port: bool = False

    def __post_init__(self) -> None:
        if self.negotiation_timeout <= 0:
            raise ValueError(f"negotiation_timeout must be positive: {self.negotiation_timeout}")
        if self.max_connections < 1:
            raise ValueError(f"max_connections must be positive: {self.max_connections}")
