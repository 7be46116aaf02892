"""A self-signed certificate for listeners without a configured one.

It encrypts, but proves no identity: it suits clients that use TLS and verify no certificate, which is the default of
the Java and Go gRPC clients.
"""

import datetime
import os
import ssl
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from protocol_negotiation.tls import TlsFiles, TlsOptions, server_context
from protocol_negotiation.tls_files import ContextSource

_NAME = "Gantry self-signed"
_PRIVATE = 0o600
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
    """Contexts with a certificate that is made by the constructor, and never changes."""

    __slots__ = ("_certificate",)

    def __init__(self, files: SelfSigned) -> None:
        self._certificate = _make_certificate()
        super().__init__(files)

    def create(self, files: SelfSigned) -> ssl.SSLContext:
        """Return a new context with the certificate. Raises TlsError."""
        # The ssl module loads certificates from files only.
        with ExitStack() as stack:
            certificate_file, key_file = _memory_files(stack, *self._certificate) or _disk_files(
                stack, *self._certificate
            )
            return server_context(TlsFiles(certificate_file, key_file, options=files.options))

    def _new_epoch(self) -> int:
        return self.files.options.ticket_epoch


def _memory_files(stack: ExitStack, *contents: bytes) -> list[Path]:
    """Return files in memory, until the stack closes; none if the system has no such files.

    The root file system of a container may be read-only, without a directory for temporary files.
    """
    try:
        return [_memory_file(stack, content) for content in contents]
    except (AttributeError, OSError):
        # Linux only, and /proc may be missing or hidden.
        return []


def _memory_file(stack: ExitStack, content: bytes) -> Path:
    descriptor = os.memfd_create("gantry-tls")
    stack.callback(os.close, descriptor)
    # Before the content: the initial mode is 0777.
    os.fchmod(descriptor, _PRIVATE)
    path = Path(f"/proc/self/fd/{descriptor}")
    path.write_bytes(content)
    return path


def _disk_files(stack: ExitStack, *contents: bytes) -> list[Path]:
    """Return files in a private temporary directory, until the stack closes. Raises OSError."""
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gantry-tls-"))
    paths = [Path(directory, str(number)) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.touch(mode=_PRIVATE)
        path.write_bytes(content)
    return paths


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
