"""Negotiation of one connection: bytes in, decisions out; sans-io, without a clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol_negotiation.detect import PREFIX_SIZE, Match, Protocol, detect
from protocol_negotiation.networks import Network, contains, normalised_network
from protocol_negotiation.peer import HostPort
from protocol_negotiation.proxy_protocol import ProxyHeader, ProxyProtocolError, parse
from protocol_negotiation.tls import TlsMode


class Outcome(StrEnum):
    """Outcome of a negotiation; the values are metric labels. Each accepted connection has exactly one."""

    REMOTING = "remoting"
    GRPC = "grpc"
    HTTP1 = "http1"
    TLS_REFUSED = "tls_refused"
    PLAINTEXT_REFUSED = "plaintext_refused"
    PROXY_UNTRUSTED = "proxy_untrusted"
    PROXY_INVALID = "proxy_invalid"
    # No row of `PROTOCOLS` matches, or the protocol has no handler.
    UNKNOWN = "unknown"
    # Before the deadline, nothing was received, or too little to detect a protocol.
    SILENT = "silent"
    INCOMPLETE = "incomplete"
    # The client closed the connection.
    CLOSED = "closed"
    TLS_FAILED = "tls_failed"
    # The listener's limit of connections, negotiations or TLS handshakes is reached.
    OVERLOAD = "overload"
    # The limit of connections from one source address is reached.
    ADDRESS_LIMIT = "address_limit"


# The protocols that can be handed over, with their outcomes.
HANDED_OVER: Mapping[Protocol, Outcome] = {
    Protocol.REMOTING: Outcome.REMOTING,
    Protocol.GRPC: Outcome.GRPC,
    Protocol.HTTP1: Outcome.HTTP1,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy of a listener: TLS mode, networks that may send PROXY headers, and protocols with a handler."""

    tls_mode: TlsMode = TlsMode.PERMISSIVE
    trusted_proxies: tuple[Network, ...] = ()
    protocols: frozenset[Protocol] = frozenset(HANDED_OVER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trusted_proxies", tuple(map(normalised_network, self.trusted_proxies)))


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand the connection over to the handler of `protocol`, which first gets `data`."""

    protocol: Protocol
    outcome: Outcome
    data: bytes


@dataclass(frozen=True, slots=True)
class StartTls:
    """Start a TLS handshake that begins with `data`. Call `Negotiation.encrypted` once it is complete."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Close the connection. `cause` is a metric label for the cause of a failed handshake."""

    outcome: Outcome
    reason: str
    cause: str = ""


Decision = HandOver | StartTls | Refused


class Negotiation:
    """Negotiation of one connection from `sender`, the immediate peer.

    The buffer is bounded: by the limit of a PROXY header or `PREFIX_SIZE` bytes, plus the last chunk. `proxy` is the
    PROXY header once it is accepted.
    """

    __slots__ = ("_buffer", "_encrypted", "_policy", "_received", "_sender", "proxy")

    def __init__(self, policy: Policy, sender: HostPort) -> None:
        self._policy = policy
        self._sender = sender
        self._buffer = b""
        self._encrypted = False
        self._received = False
        self.proxy: ProxyHeader | None = None

    @property
    def first_bytes(self) -> bytes:
        """Up to 16 bytes from the beginning of the current layer, for logs."""
        return self._buffer[:PREFIX_SIZE]

    @property
    def sender_trusted(self) -> bool:
        """Whether PROXY headers of the sender are accepted."""
        # The permissions of a Unix socket's file restrict its clients already; SECURITY.md names the consequence.
        networks = self._policy.trusted_proxies
        return self._sender.is_unix or (bool(networks) and contains(networks, self._sender.ip))

    @property
    def source(self) -> HostPort | None:
        """The address of the client; None for a trusted sender without the address of its client."""
        if self.proxy is not None and self.proxy.source is not None:
            return self.proxy.source
        return None if self.sender_trusted else self._sender

    def feed(self, data: bytes) -> Decision | None:
        """Process received bytes; return a decision, or None if it needs more. Must not be called after a decision."""
        self._buffer = self._buffer + data if self._buffer else data
        self._received = True
        return self._decide()

    def encrypted(self) -> None:
        """Note that the handshake is complete; bytes fed from now on are decrypted."""
        self._encrypted = True
        self._buffer = b""
        self._received = False

    def expired(self) -> Refused:
        """Return the refusal of a connection whose deadline has passed."""
        if self._received:
            return Refused(Outcome.INCOMPLETE, "too few bytes to detect a protocol before the deadline")
        return Refused(Outcome.SILENT, "nothing was received before the deadline")

    def _decide(self) -> Decision | None:
        detection = detect(self._buffer[:PREFIX_SIZE])
        if detection is Match.MORE:
            return None
        if detection is Match.NO:
            return Refused(Outcome.UNKNOWN, "no known protocol begins with these bytes")
        return _STEPS[detection](self, detection)

    def _read_proxy_header(self, _: Protocol) -> Decision | None:
        if self._encrypted or self.proxy is not None:
            return Refused(Outcome.PROXY_INVALID, "a second PROXY header, or one inside TLS")
        if not self.sender_trusted:
            return Refused(Outcome.PROXY_UNTRUSTED, "a PROXY header from outside the trusted networks")
        try:
            header = parse(self._buffer)
        except ProxyProtocolError as error:
            return Refused(Outcome.PROXY_INVALID, str(error))
        if header is None:
            return None
        self.proxy = header
        self._buffer = self._buffer[header.size :]
        return self._decide()

    def _start_tls(self, _: Protocol) -> Decision:
        if self._encrypted:
            return Refused(Outcome.UNKNOWN, "TLS inside TLS")
        if self._policy.tls_mode is TlsMode.DISABLED:
            return Refused(
                Outcome.TLS_REFUSED, "TLS is disabled by tls or listen.tls; change it, or let the client use plain text"
            )
        return StartTls(self._buffer)

    def _hand_over(self, protocol: Protocol) -> Decision:
        if not self._encrypted and self._policy.tls_mode is TlsMode.ENFORCING:
            return Refused(Outcome.PLAINTEXT_REFUSED, f"{protocol} without TLS, which is required")
        if protocol not in self._policy.protocols:
            return Refused(Outcome.UNKNOWN, f"{protocol} is not served here")
        return HandOver(protocol, HANDED_OVER[protocol], self._buffer)


# The next step by detected protocol.
_STEPS: Mapping[Protocol, Callable[[Negotiation, Protocol], Decision | None]] = {
    Protocol.PROXY_V1: Negotiation._read_proxy_header,
    Protocol.PROXY_V2: Negotiation._read_proxy_header,
    Protocol.TLS: Negotiation._start_tls,
    **dict.fromkeys(HANDED_OVER, Negotiation._hand_over),
}
