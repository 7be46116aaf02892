"""One visit: what was asked for, and what has been learnt so far."""

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor.connection import Line
from proxy.tools.doctor.rpc import Trust


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    wanted: whether clients will use TLS or not; None: either. write: a message may be sent to `topic`. authority:
    PEM of CAs to trust instead of the system's. timeout: seconds for each answer. idle: seconds to be silent for.
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


@dataclass
class Visit:
    """What is known by now. Checks read what earlier ones wrote."""

    options: Options
    # Every address of the endpoint's name, in the resolver's order, and the first that accepts connections.
    addresses: list[HostPort] = field(default_factory=list)
    address: HostPort | None = None
    # What is taken there; `context` speaks TLS without verifying, as most RocketMQ clients do.
    plain: bool = False
    encrypted: bool = False
    # Nobody is served without a certificate that we lack.
    locked: bool = False
    context: ssl.SSLContext | None = None
    trust: Trust | None = None
    # What is spoken there.
    remoting: bool = False
    grpc: bool = False
    kind: str = ""
    # Names of brokers, by the route of `topic`.
    topic: str | None = None
    brokers: tuple[str, ...] = ()
    # Seconds from our clock to the broker's: when a message was stored there less when it was born here.
    stored: float | None = None

    @property
    def line(self) -> Line:
        """The way in that works, TLS where that is wanted or all there is. Only after `address` is known."""
        line = self.plain_line
        return replace(line, tls=self.context) if self.uses_tls else line

    @property
    def plain_line(self) -> Line:
        """The way in without TLS."""
        assert self.address is not None
        return Line(self.address, self.options.endpoint.host, self.options.timeout)

    @property
    def uses_tls(self) -> bool:
        """Whether to speak TLS from here on."""
        return self.encrypted and (self.options.wanted == "tls" or not self.plain)

    @property
    def open(self) -> bool:
        """Whether there is anybody to speak to."""
        return self.plain or self.encrypted
