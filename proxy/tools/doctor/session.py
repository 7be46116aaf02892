"""One diagnosis: options, and results so far."""

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor.connection import Target
from proxy.tools.doctor.rpc import Trust
from remoting.signature import Credentials


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a diagnosis.

    wanted: whether clients will use TLS; None: either. write: send a message to `topic`. authority: PEM of CAs to trust
    instead of the system's. timeout: seconds for each response. idle: seconds of the idle check. credentials: sign each
    request; None: no request is signed.
    """

    endpoint: HostPort
    topic: str | None = None
    group: str | None = None
    write: bool = False
    wanted: Literal["tls", "plain"] | None = None
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float = 5.0
    idle: float | None = None
    credentials: Credentials | None = None


@dataclass
class Diagnosis:
    """Results so far. Checks read those of earlier checks."""

    options: Options
    # Every address of the endpoint's name, in the resolver's order, and the first that accepts connections.
    addresses: list[HostPort] = field(default_factory=list)
    address: HostPort | None = None
    # Accepted transports; `context` speaks TLS without verification, as most RocketMQ clients do.
    plain: bool = False
    encrypted: bool = False
    # The server requires a client certificate that is missing.
    locked: bool = False
    context: ssl.SSLContext | None = None
    trust: Trust | None = None
    # Without valid credentials, remoting requests are denied.
    refused: bool = False
    # Protocols at the endpoint.
    remoting: bool = False
    grpc: bool = False
    # Code of the first response over gRPC; 0 without one.
    grpc_code: int = 0
    kind: str = ""
    # Broker names of the route of `topic`.
    topic: str | None = None
    brokers: tuple[str, ...] = ()
    # Seconds from our clock to the broker's: storage time of a message less its birth time here.
    stored: float | None = None

    @property
    def line(self) -> Target:
        """Return the working target, with TLS if required or the only way. Requires `address`."""
        line = self.plain_target
        return replace(line, tls=self.context) if self.uses_tls else line

    @property
    def plain_target(self) -> Target:
        """Return the target without TLS."""
        assert self.address is not None
        options = self.options
        return Target(self.address, options.endpoint.host, options.timeout, credentials=options.credentials)

    @property
    def uses_tls(self) -> bool:
        """Return whether further checks use TLS."""
        return self.encrypted and (self.options.wanted == "tls" or not self.plain)

    @property
    def open(self) -> bool:
        """Return whether there is a server to talk to."""
        return self.plain or self.encrypted
