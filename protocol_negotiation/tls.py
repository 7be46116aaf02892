"""TLS of a listener: modes, files, and the context of new connections."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from protocol_negotiation.tls_peer import remember_server_name


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


class TlsError(Exception):
    """The TLS files are invalid; the message names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and the authorities of client certificates."""

    certificate: Path
    key: Path
    key_password: str | None = field(default=None, repr=False)
    client_ca: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        return tuple(path for path in (self.certificate, self.key, self.client_ca) if path is not None)


_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context: TLS 1.2 or later, ALPN h2 if the client offers it.

    Clients without ALPN, such as remoting clients, or with other protocols are accepted. Blocks, because it reads
    files. Raises TlsError.
    """
    for path in files.paths:
        _check_readable(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2"])
    context.sni_callback = remember_server_name
    _load_certificate(context, files)
    _load_client_authorities(context, files)
    return context


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        # Without a callback, OpenSSL would prompt for the password of an encrypted key on the terminal, and block.
        context.load_cert_chain(files.certificate, files.key, lambda: files.key_password or "")
    except (OSError, ValueError) as error:
        raise TlsError(f"{files.certificate} with {files.key}: {_reason(error)}") from error


def _load_client_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.client_auth is not ClientAuth.NONE and files.client_ca is None:
        raise TlsError(f"client_auth is {files.client_auth}, which needs client_ca")
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError) as error:
            raise TlsError(f"{files.client_ca}: {_reason(error)}") from error
    context.verify_mode = _VERIFY_MODES[files.client_auth]


def _reason(error: Exception) -> str:
    # Some failures of OpenSSL, such as a wrong key password, have no reason.
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()


class Refresh(StrEnum):
    """Result of `TlsSource.refresh`; the values are metric labels."""

    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    FAILED = "failed"


_Stamp = tuple[tuple[int, int, int, int], ...]


class TlsSource:
    """The current context of a set of TLS files.

    The constructor reads the files and raises TlsError. `context` is for new connections; established connections
    keep theirs. `error` is the error of the last refresh, if it failed.
    """

    __slots__ = ("_stamp", "context", "error", "files")

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self.error: TlsError | None = None
        self._stamp = _stamp(files.paths)
        self.context = server_context(files)

    def refresh(self) -> Refresh:
        """Create a new context if any file has changed; to be called periodically.

        On failure, the last valid context stays, `error` is set, and the next call retries. Blocks, because it reads
        files: on an event loop, call it in a thread.
        """
        try:
            # Before the files are read, so that the next call detects a change in between.
            stamp = _stamp(self.files.paths)
            if stamp == self._stamp and self.error is None:
                return Refresh.UNCHANGED
            self.context = server_context(self.files)
        except TlsError as error:
            self.error = error
            return Refresh.FAILED
        self._stamp, self.error = stamp, None
        return Refresh.RELOADED


def _stamp(paths: Iterable[Path]) -> _Stamp:
    return tuple(_stamp_of(path) for path in paths)


def _stamp_of(path: Path) -> tuple[int, int, int, int]:
    try:
        # Follows links, because Kubernetes updates a mounted secret by replacing the link to its directory.
        stat = path.stat()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
