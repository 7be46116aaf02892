"""Who calls the admin API, and what that caller may do: tokens, client certificates, or where the call comes from."""

import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address
from pathlib import Path

from proxy.operations.audit import Audit
from proxy.settings.admin import AdminSettings

_log = logging.getLogger("gantry.admin")

# Seconds between looks at the file of tokens.
_LOOK = 1.0
_ANY = "*"
# Callers without a credential, here and elsewhere, as the audit calls them.
_LOCAL, _REMOTE = "local", "remote"
ANONYMOUS = (_LOCAL, _REMOTE)
# Whoever is behind one of these is not on this host, though the connection is.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Role(IntEnum):
    """What a caller may do; each includes the former."""

    NONE = 0
    READ = 1
    WRITE = 2


class TokenFileError(OSError):
    """The file of tokens is not usable; the message names file and line, never a token."""


class BadCredentials(Exception):
    """A token that nobody has."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: `name` is for the audit, `address` where from."""

    name: str
    role: Role
    address: str


@dataclass(frozen=True, slots=True)
class _Key:
    role: Role
    name: str
    digest: bytes


class Access:
    """Decides who a caller is. Raises TokenFileError when made."""

    def __init__(self, settings: AdminSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._looked = clock()
        self._stamp = _stamp(settings.tokens)
        self._configured = [
            _Key(role, name, _digest(token))
            for role, name, token in (
                (Role.READ, "read_token", settings.read_token),
                (Role.WRITE, "write_token", settings.write_token),
            )
            if token is not None
        ]
        self._filed = _read(settings.tokens)

    def caller(self, address: str, headers: Mapping[str, str], subject: str | None) -> Caller:
        """The caller at this address, by the request's headers and its client certificate's subject.

        Raises BadCredentials: a wrong token is never taken for none.
        """
        if "authorization" in headers:
            key = self._key(headers["authorization"])
            if key is None:
                raise BadCredentials
            return Caller(key.name, key.role, address)
        best = _least(self._settings, address, headers)
        if subject is not None:
            role = self.certified(subject)
            if role >= best.role and role is not Role.NONE:
                return Caller(subject, role, address)
        return best

    def certified(self, subject: str) -> Role:
        """The role that a client certificate with this subject gives."""
        for role, subjects in ((Role.WRITE, self._settings.writers), (Role.READ, self._settings.readers)):
            if subject in subjects or _ANY in subjects:
                return role
        return Role.NONE

    def _key(self, authorization: str) -> _Key | None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        self._refresh()
        digest = _digest(token.strip())
        found: _Key | None = None
        # All of them, whichever fits: the time it takes tells nothing.
        for key in (*self._configured, *self._filed):
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def _refresh(self) -> None:
        now = self._clock()
        if self._settings.tokens is None or now - self._looked < _LOOK:
            return
        self._looked = now
        stamp = _stamp(self._settings.tokens)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._filed = _read(self._settings.tokens)
            _log.info("the tokens of %s are in force", self._settings.tokens)
        except TokenFileError as error:
            _log.error("the changed tokens are not usable, the former stay in use: %s", error)


def is_local(address: str) -> bool:
    """Whether an address is this host's loopback."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # A listener of both families sees IPv4 callers as addresses of IPv6 (RFC 4291 section 2.5.5.2).
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _least(settings: AdminSettings, address: str, headers: Mapping[str, str]) -> Caller:
    near = is_local(address) and not any(name in headers for name in _FORWARDED)
    name, permission = (_LOCAL, settings.local) if near else (_REMOTE, settings.remote)
    return Caller(name, Role[permission.upper()], address)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    try:
        stat = None if file is None else file.stat()
    except OSError:
        return None
    return None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _read(file: Path | None) -> list[_Key]:
    if file is None:
        return []
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    return list(_keys(file, lines))


def _keys(file: Path, lines: Iterable[str]) -> Iterable[_Key]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[0] not in ("read", "write") or len(words[2]) < 16:
            raise TokenFileError(
                f"{file}, line {number}: needs read or write, a name, and a token of at least 16 characters"
            )
        yield _Key(Role[words[0].upper()], words[1], _digest(words[2]))


@dataclass(frozen=True, slots=True)
class Gatekeeping:
    """The settings and records that checks need. requests: responses by status; refusals: by reason."""

    settings: AdminSettings
    access: Access
    audit: Audit
    requests: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
