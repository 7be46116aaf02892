"""A self-signed certificate for listeners without a configured one.

It encrypts, but proves no identity: it suits clients that use TLS and verify no certificate, which is the default of
the Java and Go gRPC clients.
"""

import datetime
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from protocol_negotiation.tls import TlsFiles, TlsOptions, server_context
from protocol_negotiation.tls_files import ContextSource

_NAME = "Gantry self-signed"
# Longer than any process runs; clients that check the end of validity refuse the certificate anyway.
_VALIDITY = datetime.timedelta(days=3650)
# Validity begins earlier, for clients with a slow clock.
_MAX_CLOCK_SKEW = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """Stands for the files of a certificate that is made at start."""

    options: TlsOptions

    @property
    def paths(self) -> tuple[Path, ...]:
        """No files."""
        return ()


class SelfSignedSource(ContextSource[SelfSigned]):
    """A context with a certificate that is made by the constructor, and never changes."""

    __slots__ = ()

    def create(self, files: SelfSigned) -> ssl.SSLContext:
        """Return a context with a new certificate. Raises TlsError."""
        chain, key = _make_certificate()
        # The ssl module loads certificates from files only; the directory is private.
        with tempfile.TemporaryDirectory(prefix="gantry-tls-") as directory:
            paths = Path(directory, "server.pem"), Path(directory, "server.key")
            for path, content in zip(paths, (chain, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            return server_context(TlsFiles(*paths, options=files.options))


def _make_certificate() -> tuple[bytes, bytes]:
    """Return a new certificate and its key in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    from protocol_negotiation import new_certificate

    key, name, now = new_certificate.new_key(), new_certificate.name_of(_NAME), datetime.datetime.now(datetime.UTC)
    builder = new_certificate.begin(name, name, key, now - _MAX_CLOCK_SKEW, now + _VALIDITY)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM), new_certificate.pem(key)
