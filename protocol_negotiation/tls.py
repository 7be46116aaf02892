"""TLS of a listener: modes, files, and the context of new connections."""

import hashlib
import hmac
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from protocol_negotiation import openssl_context
from protocol_negotiation.certificates import host_names
from protocol_negotiation.revocations import Revocations
from protocol_negotiation.tls_files import (
    ContextSource,
    Refresh,
    TlsError,
    check_readable,
    load_authorities,
    load_certificate,
    load_revocations,
    ticket_epoch,
)
from protocol_negotiation.tls_peer import remember_server_name
from protocol_negotiation.tls_reads import CountingSslObject

__all__ = [
    "DEFAULT_CIPHERS",
    "ClientAuth",
    "KeyPair",
    "MinimumVersion",
    "Refresh",
    "SessionTickets",
    "TlsError",
    "TlsFiles",
    "TlsMode",
    "TlsOptions",
    "TlsSource",
    "server_context",
]

# TLS 1.2: forward secrecy and authenticated encryption only, as HTTP/2 requires (RFC 9113 section 9.2.2).
DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsMode(StrEnum):
    """RocketMQ's ``tls.server.mode``: TLS refused, TLS and plaintext accepted, or plaintext refused."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether clients are asked for a certificate, and whether it is required."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class MinimumVersion(StrEnum):
    """The earliest accepted version of TLS."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class SessionTickets(StrEnum):
    """Keys of session tickets: the same in all workers, of each worker, or no resumption.

    A context that asks clients for certificates never resumes sessions.
    """

    SHARED = "shared"
    SEPARATE = "separate"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its chain, its key, and the names for which it is used; without names, those it contains."""

    certificate: Path
    key: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Versions and algorithms. Empty `curves` are OpenSSL's default.

    ticket_secret: secret that all workers have, for shared session tickets; None without other workers.
    """

    minimum_version: MinimumVersion = MinimumVersion.TLS_1_2
    ciphers: str = DEFAULT_CIPHERS
    curves: tuple[str, ...] = ()
    tickets: SessionTickets = SessionTickets.SHARED
    ticket_secret: bytes | None = field(default=None, repr=False)

    @property
    def ticket_epoch(self) -> int:
        """The current period of the ticket keys; a constant without tickets.

        Keys are those of a context, random unless they are shared: each period has a new context.
        """
        return 0 if self.tickets is SessionTickets.OFF else ticket_epoch()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, the authorities and revocation lists of client certificates.

    additional: certificates for other server names (SNI); their keys have the same password. crl_chain: whether the
    revocation lists of all authorities of a chain are required, not only that of the client certificate's issuer.
    """

    certificate: Path
    key: Path
    key_password: str | None = field(default=None, repr=False)
    client_ca: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    additional: tuple[KeyPair, ...] = ()
    crl: Path | None = None
    crl_chain: bool = False
    options: TlsOptions = TlsOptions()

    @property
    def key_pairs(self) -> tuple[KeyPair, ...]:
        """All certificates, the default first."""
        return KeyPair(self.certificate, self.key), *self.additional

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        pairs = (path for pair in self.key_pairs for path in (pair.certificate, pair.key))
        return *pairs, *(path for path in (self.client_ca, self.crl) if path is not None)


_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
VERSIONS = {
    MinimumVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    MinimumVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context that selects the certificate by SNI, with ALPN h2 if the client offers it.

    Clients without ALPN, such as remoting clients, or with other protocols are accepted, as are unknown server names,
    which get the first certificate. Blocks, because it reads files. Raises TlsError.
    """
    if files.client_auth is not ClientAuth.NONE and files.client_ca is None:
        raise TlsError(f"client_auth is {files.client_auth}, which needs client_ca")
    for path in files.paths:
        check_readable(path)
    contexts = [_context(files, pair) for pair in files.key_pairs]
    default = contexts[0]
    default.sslobject_class = CountingSslObject
    _set_tickets(default, files)
    if files.additional:
        default.sni_callback = _select_by_name(files.key_pairs[1:], contexts[1:])
    else:
        default.sni_callback = remember_server_name
    return default


def _context(files: TlsFiles, pair: KeyPair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[files.options.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2"])
    load_certificate(context, pair.certificate, pair.key, files.key_password)
    if files.client_ca is not None:
        load_authorities(context, files.client_ca)
        if files.crl is not None:
            load_revocations(context, files.crl, chain=files.crl_chain)
    context.verify_mode = _VERIFY_MODES[files.client_auth]
    _set_algorithms(context, files.options)
    return context


def _set_algorithms(context: ssl.SSLContext, options: TlsOptions) -> None:
    try:
        context.set_ciphers(options.ciphers)
    except ssl.SSLError:
        raise TlsError(f"ciphers: OpenSSL knows no cipher in {options.ciphers!r}") from None
    if options.curves:
        try:
            applied = openssl_context.set_curves(context, options.curves)
        except ValueError as error:
            raise TlsError(f"curves: {error}") from None
        if not applied:
            raise TlsError("curves: this Python interpreter can set one curve only")


def _set_tickets(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Set the ticket keys of a context; a certificate selected by SNI does not change them.

    Each change of the files changes the keys. Where clients are asked for certificates no session is resumed: OpenSSL
    would take the certificate from the ticket, and renew that, although certificate, issuer or revocation list may have
    expired since.
    """
    options = files.options
    if options.tickets is SessionTickets.OFF or files.client_auth is not ClientAuth.NONE:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        openssl_context.disable_session_cache(context)
    elif options.tickets is SessionTickets.SHARED and options.ticket_secret is not None:
        openssl_context.set_ticket_keys(context, _ticket_keys(options.ticket_secret, files))


def _ticket_keys(secret: bytes, files: TlsFiles) -> bytes:
    """Return keys that are equal in all workers with the secret and equal files, and change with `ticket_epoch`."""
    content = hashlib.sha256(repr((files, ticket_epoch())).encode())
    try:
        for path in files.paths:
            content.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise TlsError(f"{error.filename}: {error.strerror}") from error
    blocks = (hmac.digest(secret, content.digest() + bytes([number]), "sha256") for number in range(3))
    return b"".join(blocks)[: openssl_context.TICKET_KEYS_SIZE]


def _select_by_name(pairs: Sequence[KeyPair], contexts: Sequence[ssl.SSLContext]) -> Any:
    """Return a callback that selects the context of the server name, and remembers the name."""
    by_name: dict[str, ssl.SSLContext] = {}
    for pair, context in zip(pairs, contexts, strict=True):
        for name in pair.names or host_names(pair.certificate):
            by_name.setdefault(name.lower().rstrip("."), context)

    def select(connection: Any, server_name: str | None, context: ssl.SSLContext) -> None:
        remember_server_name(connection, server_name, context)
        selected = None if server_name is None else find_name(by_name, server_name)
        if selected is not None:
            connection.context = selected

    return select


def find_name(by_name: Mapping[str, ssl.SSLContext], server_name: str) -> ssl.SSLContext | None:
    """Return the context of a name, or of the wildcard for its first label (RFC 6125 section 6.4.3); None if neither
    exists."""
    name = server_name.lower().rstrip(".")
    return by_name.get(name) or by_name.get(f"*.{name.partition('.')[2]}")


class TlsSource(ContextSource[TlsFiles]):
    """The current context of a listener's TLS files."""

    __slots__ = ()

    def create(self, files: TlsFiles) -> ssl.SSLContext:
        """Return a new context. Raises TlsError."""
        context = server_context(files)
        self.revocations = None if files.crl is None else Revocations(files.crl)
        return context

    def _new_epoch(self) -> int:
        return self.files.options.ticket_epoch
