"""The decision about one connection: bytes in, what to do with it out. No sockets, no clocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol_negotiation.detect import PREFIX_SIZE, Match, Protocol, detect
from protocol_negotiation.networks import Network, contains, normalised_network
from protocol_negotiation.peer import HostPort
from protocol_negotiation.proxy_protocol import ProxyHeader, ProxyProtocolError, parse
from protocol_negotiation.tls import TlsMode


class Outcome(StrEnum):
    """How a negotiation ended; the values are the metric's labels. Every accepted connection has exactly one."""

    REMOTING = "remoting"
    GRPC = "grpc"
    HTTP1 = "http1"
    TLS_REFUSED = "tls_refused"
    PLAINTEXT_REFUSED = "plaintext_refused"
    PROXY_UNTRUSTED = "proxy_untrusted"
    PROXY_INVALID = "proxy_invalid"
    # No row of `PROTOCOLS` fits, or nothing handles the protocol that does.
    UNKNOWN = "unknown"
    # Nothing before the deadline; or something that left the protocol open.
    SILENT = "silent"
    INCOMPLETE = "incomplete"
    # The client left first.
    CLOSED = "closed"
    TLS_FAILED = "tls_failed"
    # The listener's limit of connections is reached.
    OVERLOAD = "overload"


# The protocols that can be handed over, and what they count as.
HANDED_OVER: Mapping[Protocol, Outcome] = {
    Protocol.REMOTING: Outcome.REMOTING,
    Protocol.GRPC: Outcome.GRPC,
    Protocol.HTTP1: Outcome.HTTP1,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What a listener allows. `trusted_proxies`: who may send PROXY headers. `protocols`: those with a handler."""

    tls_mode: TlsMode = TlsMode.PERMISSIVE
    trusted_proxies: tuple[Network, ...] = ()
    protocols: frozenset[Protocol] = frozenset(HANDED_OVER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trusted_proxies", tuple(map(normalised_network, self.trusted_proxies)))


@dataclass(frozen=True, slots=True)
class HandOver:
    """The connection is `protocol`'s; `data` is what it has to be given first."""

    protocol: Protocol
    outcome: Outcome
    data: bytes


@dataclass(frozen=True, slots=True)
class StartTls:
    """A TLS handshake begins; `data` belongs to it. Call `Negotiation.encrypted` once it is done."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The connection must be closed. cause: of a failed handshake, in a word or two of a limited vocabulary."""

    outcome: Outcome
    reason: str
    cause: str = ""


Decision = HandOver | StartTls | Refused


class Negotiation:
    """Decides about one connection from `sender`, the immediate peer.

    What it buffers is bounded: a PROXY header's limit, or `PREFIX_SIZE` bytes, and the last chunk fed.
    `proxy` is the PROXY header once one was accepted.
    """

    __slots__ = ("_buffer", "_encrypted", "_heard", "_policy", "_sender", "proxy")

    def __init__(self, policy: Policy, sender: HostPort) -> None:
        self._policy = policy
        self._sender = sender
        self._buffer = b""
        self._encrypted = False
        self._heard = False
        self.proxy: ProxyHeader | None = None

    @property
    def first_bytes(self) -> bytes:
        """Up to 16 bytes from the beginning of the layer that is being looked at, for logs."""
        return self._buffer[:PREFIX_SIZE]

    def feed(self, data: bytes) -> Decision | None:
        """Takes what was received; None until that suffices for a decision. Not to be called after one."""
        self._buffer = self._buffer + data if self._buffer else data
        self._heard = True
        return self._look()

    def encrypted(self) -> None:
        """The handshake after `StartTls` is done: what is fed from now on is decrypted."""
        self._encrypted = True
        self._buffer = b""
        self._heard = False

    def expired(self) -> Refused:
        """The deadline has come."""
        if self._heard:
            return Refused(Outcome.INCOMPLETE, "too little to tell a protocol before the deadline")
        return Refused(Outcome.SILENT, "nothing was received before the deadline")

    def _look(self) -> Decision | None:
        found = detect(self._buffer[:PREFIX_SIZE])
        if found is Match.MORE:
            return None
        if found is Match.NO:
            return Refused(Outcome.UNKNOWN, "no known protocol begins like this")
        return _STEPS[found](self, found)

    def _read_proxy_header(self, _: Protocol) -> Decision | None:
        if self._encrypted or self.proxy is not None:
            return Refused(Outcome.PROXY_INVALID, "a second PROXY header, or one inside TLS")
        if not self._sender_trusted():
            return Refused(Outcome.PROXY_UNTRUSTED, "a PROXY header from outside the trusted networks")
        try:
            header = parse(self._buffer)
        except ProxyProtocolError as error:
            return Refused(Outcome.PROXY_INVALID, str(error))
        if header is None:
            return None
        self.proxy = header
        self._buffer = self._buffer[header.size :]
        return self._look()

    def _sender_trusted(self) -> bool:
        # Who may connect to a Unix socket is decided by its file's permissions already.
        return self._sender.is_unix or contains(self._policy.trusted_proxies, self._sender.ip)

    def _start_tls(self, _: Protocol) -> Decision:
        if self._encrypted:
            return Refused(Outcome.UNKNOWN, "TLS inside TLS")
        if self._policy.tls_mode is TlsMode.DISABLED:
            return Refused(Outcome.TLS_REFUSED, "TLS is disabled")
        return StartTls(self._buffer)

    def _hand_over(self, protocol: Protocol) -> Decision:
        if not self._encrypted and self._policy.tls_mode is TlsMode.ENFORCING:
            return Refused(Outcome.PLAINTEXT_REFUSED, f"{protocol} without TLS, which is enforced")
        if protocol not in self._policy.protocols:
            return Refused(Outcome.UNKNOWN, f"{protocol} is not served here")
        return HandOver(protocol, HANDED_OVER[protocol], self._buffer)


# What a protocol's recognition leads to. Read by `Negotiation`.
_STEPS: Mapping[Protocol, Callable[[Negotiation, Protocol], Decision | None]] = {
    Protocol.PROXY_V1: Negotiation._read_proxy_header,
    Protocol.PROXY_V2: Negotiation._read_proxy_header,
    Protocol.TLS: Negotiation._start_tls,
    **dict.fromkeys(HANDED_OVER, Negotiation._hand_over),
}
