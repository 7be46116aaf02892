"""PEM files of TLS contexts: permissions, and contexts that follow changes of their files."""

import os
import ssl
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from protocol_negotiation.start_error import StartError

if TYPE_CHECKING:
    from protocol_negotiation.revocations import Revocations

# Permissions that a private file must not have: any for group and others.
_OPEN_TO_OTHERS = 0o077
# Seconds for which session ticket keys are used.
TICKET_PERIOD = 12 * 3600.0


class TlsError(StartError):
    """The TLS files are invalid; the message names the file."""


class PermissionTooOpen(TlsError):
    """Users other than the owner can use a private file."""


def check_private(path: Path) -> None:
    """Raise PermissionTooOpen if group or others have access to a private file that this user owns.

    The rule is OpenSSH's: a file of another owner, such as a Kubernetes secret or a key of root for a service's group,
    is the responsibility of that owner.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    if status.st_uid == os.getuid() and status.st_mode & _OPEN_TO_OTHERS:
        mode = status.st_mode & 0o777
        raise PermissionTooOpen(f"{path}: mode {mode:04o} gives other users access to a private key: chmod 600 {path}")


def check_readable(path: Path) -> None:
    """Raise TlsError if a file cannot be read."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error


def reason(error: Exception) -> str:
    """Return the reason of an error of the ssl module."""
    # Some failures of OpenSSL, such as a wrong key password, have no reason.
    text = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(text).replace("_", " ").lower()


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path, password: str | None) -> None:
    """Load a certificate chain and its key into a context. Raises TlsError."""
    check_readable(certificate)
    check_private(key)
    check_readable(key)
    try:
        # Without a callback, OpenSSL would prompt for the password of an encrypted key on the terminal, and block.
        context.load_cert_chain(certificate, key, lambda: password or "")
    except (OSError, ValueError) as error:
        raise TlsError(f"{certificate} with {key}: {reason(error)}") from error


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Load CA certificates or certificate revocation lists into a context. Raises TlsError."""
    check_readable(path)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise TlsError(f"{path}: {reason(error)}") from error


def load_revocations(context: ssl.SSLContext, path: Path, *, chain: bool) -> None:
    """Load revocation lists and check certificates against them. chain: also those of authorities. Raises TlsError."""
    load_authorities(context, path)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN if chain else ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


class Refresh(StrEnum):
    """Result of `ContextSource.refresh`; the values are metric labels."""

    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    ROTATED = "rotated"
    FAILED = "failed"


class Files(Protocol):
    """A set of TLS files."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""


_Files = TypeVar("_Files", bound=Files)


class ContextSource(Generic[_Files]):
    """The current context of a set of TLS files, with session ticket keys of the current period.

    The constructor reads the files and raises TlsError. `context` is for new connections; established connections
    keep theirs. `error` is the error of the last refresh, if it failed. Assign `files` to change them at the next
    refresh. revocations: the revoked certificates of clients; None without revocation lists.
    """

    __slots__ = ("_epoch", "_stamp", "context", "error", "files", "revocations")

    def __init__(self, files: _Files) -> None:
        self.files = files
        self.error: TlsError | None = None
        self.revocations: Revocations | None = None
        self._stamp, self._epoch = self._new_stamp(), self._new_epoch()
        self.context = self.create(files)

    def create(self, files: _Files) -> ssl.SSLContext:
        """Return a new context. Raises TlsError."""
        raise NotImplementedError

    def refresh(self) -> Refresh:
        """Create a new context if any file has changed, or for new ticket keys; to be called periodically.

        On failure, the last valid context stays, `error` is set, and the next call retries. Blocks, because it reads
        files: on an event loop, call it in a thread.
        """
        try:
            # Before the files are read, so that the next call detects a change in between.
            stamp, epoch = self._new_stamp(), self._new_epoch()
            changed = stamp != self._stamp or self.error is not None
            if not changed and epoch == self._epoch:
                return Refresh.UNCHANGED
            self.context = self.create(self.files)
        except TlsError as error:
            self.error = error
            return Refresh.FAILED
        self._stamp, self._epoch, self.error = stamp, epoch, None
        return Refresh.RELOADED if changed else Refresh.ROTATED

    def _new_stamp(self) -> Any:
        return self.files, stamp_of(self.files.paths)

    def _new_epoch(self) -> int:
        """Return the period of the ticket keys; a constant without tickets."""
        return 0


def stamp_of(paths: Iterable[Path]) -> tuple[tuple[int, int, int, int], ...]:
    """Return values that change with the files. Raises TlsError."""
    return tuple(_stamp(path) for path in paths)


def ticket_epoch() -> int:
    """Return the number of the current period of session ticket keys."""
    return int(time.time() // TICKET_PERIOD)


def _stamp(path: Path) -> tuple[int, int, int, int]:
    try:
        # Follows links, because Kubernetes updates a mounted secret by replacing the link to its directory.
        stat = path.stat()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
