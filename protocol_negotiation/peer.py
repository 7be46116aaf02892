"""The peer of a connection: addresses, TLS parameters and PROXY protocol TLVs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Literal, Self

from protocol_negotiation.networks import IpAddress

UNIX_PREFIX = "unix:"
_NAME = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
# Hosts that mean every address.
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104  # compared, not bound
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_NO_TLVS: Mapping[int, bytes] = MappingProxyType({})


def canonical_host(host: str) -> str:
    """Return `host`, if it is an IP address, in its shortest form, and an IPv4-mapped IPv6 address as IPv4."""
    if ":" not in host or host.startswith(UNIX_PREFIX):
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """An address to listen on or to dial, or the address of a socket: a host (name or IP address) and a port.

    A Unix socket is ``HostPort("unix:/path", 0)``; its unnamed client end is ``HostPort("unix:", 0)``. The host is in
    canonical form (`canonical_host`), so that equal addresses compare equal.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 0xFFFF:
            raise ValueError(f"not a port: {self.port}")
        object.__setattr__(self, "host", canonical_host(self.host))

    def __str__(self) -> str:
        if self.is_unix:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every address of the host; it can be listened on and not dialled."""
        return self.host in _WILDCARDS

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``host:port``, ``:port`` (host ""), ``[IPv6]:port`` or ``unix:/path``. Raises ValueError."""
        text = text.strip()
        if text.startswith(UNIX_PREFIX):
            if len(text) == len(UNIX_PREFIX):
                raise ValueError(f"a Unix socket needs a path: {text!r}")
            return cls(text, 0)
        host, colon, port = text.rpartition(":")
        if not colon or not _PORT.fullmatch(port) or int(port) > 0xFFFF:
            raise ValueError(f"not host:port: {text!r}")
        return cls(_parse_host(host, text), int(port))

    @property
    def is_unix(self) -> bool:
        return self.host.startswith(UNIX_PREFIX)

    @property
    def is_local(self) -> bool:
        """Whether only this host can connect: a Unix socket, a loopback address or its name."""
        ip = self.ip
        return self.is_unix or self.host == "localhost" or (ip is not None and ip.is_loopback)

    @property
    def unix_path(self) -> str | None:
        """The path of a Unix socket; None for TCP and for the unnamed end of a Unix socket."""
        return self.host[len(UNIX_PREFIX) :] or None if self.is_unix else None

    @property
    def ip(self) -> IpAddress | None:
        """The host as an IP address, without the scope of a link-local address; None for names and Unix sockets."""
        try:
            return ip_address(self.host.partition("%")[0])
        except ValueError:
            return None


def _parse_host(host: str, text: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(IPv6Address(host[1:-1]))
        except ValueError as error:
            raise ValueError(f"not an IPv6 address in brackets: {text!r}") from error
    if not _NAME.fullmatch(host):
        raise ValueError(f"not host:port (IPv6 addresses go in brackets): {text!r}")
    return host


def socket_address(address: object) -> HostPort:
    """Convert the result of ``getpeername()`` or ``getsockname()`` of an IPv4, IPv6 or Unix socket, or None."""
    if isinstance(address, tuple) and len(address) >= 2:
        return HostPort(str(address[0]), int(address[1]))
    if isinstance(address, bytes):
        # Linux's abstract names begin with NUL; unix(7) writes them with @.
        address = address.decode("utf-8", "surrogateescape").replace("\0", "@", 1)
    return HostPort(f"{UNIX_PREFIX}{address or ''}", 0)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The verified certificate of a client.

    Attributes:
        subject, issuer: distinguished names (RFC 4514); "" if empty.
        alternative_names: kind and value of each subject alternative name; IP addresses in canonical form
            (`canonical_host`).
        fingerprint: SHA-256 of the DER encoding, lower-case hex.
        serial_number: lower-case hex.
        not_after: end of validity, Unix time in seconds.
    """

    subject: str
    issuer: str
    alternative_names: tuple[tuple[Literal["dns", "email", "ip", "uri"], str], ...]
    fingerprint: str
    serial_number: str
    not_after: float


@dataclass(frozen=True, slots=True)
class Tls:
    """Parameters of a TLS connection.

    `server_name` is the client's SNI, `subject` the distinguished name of the client certificate (RFC 4514), and
    `certificate` that certificate; it is verified, or None.
    """

    version: str
    cipher: str
    server_name: str | None = None
    subject: str | None = None
    certificate: PeerCertificate | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """The peer of one connection, as far as it is known.

    Attributes:
        address: address of the client: the source in a trusted PROXY header, else the TCP peer.
        local: address that the client dialled: the destination in a trusted PROXY header, else the socket's.
        via: address of the TCP peer, if a PROXY header replaced it.
        listener: name of the listener.
        broker: dedicated broker of the listener.
        tlvs: PROXY v2 TLVs by type.
        number: number of the connection in this process, from 1; 0 if no listener accepted it.
    """

    address: HostPort
    local: HostPort
    via: HostPort | None = None
    listener: str = ""
    broker: str | None = None
    tls: Tls | None = None
    tlvs: Mapping[int, bytes] = field(default_factory=lambda: _NO_TLVS, hash=False)
    number: int = field(default=0, compare=False)
