"""TLS towards servers: verification, files, and the context of new connections."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from protocol_negotiation.tls import VERSIONS, MinimumVersion
from protocol_negotiation.tls_files import ContextSource, TlsError, load_authorities, load_certificate, load_revocations


class Verification(StrEnum):
    """Verification of a server: its certificate and name, its certificate only, or nothing."""

    FULL = "full"
    CERTIFICATE = "certificate"
    INSECURE = "insecure"


@dataclass(frozen=True, slots=True)
class ClientTlsFiles:
    """PEM files: the authorities of servers (default: the system's), this client's certificate and key.

    server_name: name that is sent (SNI) and verified instead of the server's address.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    crl: Path | None = None
    verification: Verification = Verification.FULL
    server_name: str | None = None
    minimum_version: MinimumVersion = MinimumVersion.TLS_1_2

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        return tuple(path for path in (self.ca, self.certificate, self.key, self.crl) if path is not None)


def client_context(files: ClientTlsFiles) -> ssl.SSLContext:
    """Return a client context. Blocks, because it reads files. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS[files.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if files.verification is Verification.INSECURE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = files.verification is Verification.FULL
        if files.ca is None:
            context.load_default_certs()
        else:
            load_authorities(context, files.ca)
        if files.crl is not None:
            load_revocations(context, files.crl, chain=False)
    if (files.certificate is None) != (files.key is None):
        raise TlsError("certificate and key belong together: set both or neither")
    if files.certificate is not None and files.key is not None:
        load_certificate(context, files.certificate, files.key, files.key_password)
    return context


class ClientTlsSource(ContextSource[ClientTlsFiles]):
    """The current context of a client's TLS files."""

    __slots__ = ()

    @property
    def server_name(self) -> str | None:
        """The name of servers; None: their address."""
        return self.files.server_name

    def create(self, files: ClientTlsFiles) -> ssl.SSLContext:
        """Return a new context. Raises TlsError."""
        return client_context(files)
