"""Callers of the admin APIs and their roles, by token, client certificate or address."""

import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address
from pathlib import Path

from proxy.admin.sessions import Sessions
from proxy.operations.audit import Audit
from proxy.operations.token_file import TokenFileError, read_tokens
from proxy.settings.admin import AdminSettings

_log = logging.getLogger("gantry.admin")

# Seconds between checks for a changed token file.
_CHECK_INTERVAL = 1.0
_ANY = "*"
# Names of callers without a credential in the audit: on this host, and elsewhere.
_LOCAL, _REMOTE = "local", "remote"
# With these headers a caller is not on this host, although the connection is: it came through a proxy.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Role(IntEnum):
    """Permissions of a caller; each includes the ones before."""

    NONE = 0
    READ = 1
    WRITE = 2


class BadCredentials(Exception):
    """A header with an unknown token, or with a wrong user or password; the text is the same for these two."""

    def __init__(self, authorization: str) -> None:
        scheme = authorization.partition(" ")[0].lower()
        super().__init__("the user or the password is wrong" if scheme == "basic" else "the token is unknown")


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller.

    name: for the audit; peer: whether it is another replica, which has checked its own caller; anonymous: whether it
    has neither a credential nor a certificate with a role.
    """

    name: str
    role: Role
    address: str
    peer: bool = False
    anonymous: bool = False


def may_read_contents(settings: AdminSettings, caller: Caller | None) -> bool:
    """Return whether a caller may read bodies, keys and properties of messages (setting admin.contents)."""
    required = settings.contents
    return required != "off" and caller is not None and caller.role >= Role[required.upper()]


@dataclass(frozen=True, slots=True)
class _Key:
    role: Role
    name: str
    digest: bytes
    peer: bool = False


class Access:
    """Identifies callers. The constructor raises TokenFileError.

    users: returns the name and the permission of a user by the header `authorization` and the address, or None.
    """

    def __init__(
        self,
        settings: AdminSettings,
        clock: Callable[[], float] = time.monotonic,
        users: Callable[[str, str], tuple[str, str] | None] | None = None,
    ) -> None:
        self._users = users
        self._settings = settings
        self._clock = clock
        self._checked_at = clock()
        # Stamp of the version in force.
        self._stamp = _stamp(settings.tokens)
        # Why the present version is not in force, which is logged once.
        self._error: str | None = None
        self._configured = [
            _Key(role, name, _digest(token))
            for role, name, token in (
                (Role.READ, "read_token", settings.read_token),
                (Role.WRITE, "write_token", settings.write_token),
            )
            if token is not None
        ]
        if settings.peer_token is not None:
            self._configured.append(_Key(Role.WRITE, "peer", _digest(settings.peer_token), peer=True))
        self._from_file = _read(settings.tokens)

    def caller(self, address: str, headers: Mapping[str, str], subject: str | None) -> Caller:
        """Return the caller of a request, by its headers and the subject of its client certificate.

        Raises BadCredentials, even if callers without a token have a role, and TooManyLogins.
        """
        if "authorization" in headers:
            key = self._key(headers["authorization"])
            if key is not None:
                return Caller(key.name, key.role, address, key.peer)
            user = None if self._users is None else self._users(headers["authorization"], address)
            if user is None:
                raise BadCredentials(headers["authorization"])
            return Caller(user[0], Role[user[1].upper()], address)
        anonymous = _anonymous(self._settings, address, headers)
        if subject is not None:
            role = self.certified(subject)
            if role >= anonymous.role and role is not Role.NONE:
                return Caller(subject, role, address)
        return anonymous

    def certified(self, subject: str) -> Role:
        """Return the role of a client certificate with this subject."""
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
        # Always compare all keys: the duration must not depend on which one matches.
        for key in (*self._configured, *self._from_file):
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def _refresh(self) -> None:
        now = self._clock()
        if self._settings.tokens is None or now - self._checked_at < _CHECK_INTERVAL:
            return
        self._checked_at = now
        stamp = _stamp(self._settings.tokens)
        if stamp == self._stamp:
            self._error = None
            return
        try:
            self._from_file = _read(self._settings.tokens)
        except TokenFileError as error:
            # Tried again at the next check: the reason may end without a change of the file.
            if str(error) != self._error:
                _log.error("the changed tokens are not usable, the previous ones stay in use: %s", error)
            self._error = str(error)
            return
        self._stamp, self._error = stamp, None
        _log.info("the tokens of %s are in force", self._settings.tokens)


def is_local(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # A dual-stack listener sees IPv4 callers as IPv6 addresses (RFC 4291 section 2.5.5.2).
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _anonymous(settings: AdminSettings, address: str, headers: Mapping[str, str]) -> Caller:
    local = is_local(address) and not any(name in headers for name in _FORWARDED)
    name, permission = (_LOCAL, settings.local) if local else (_REMOTE, settings.remote)
    return Caller(name, Role[permission.upper()], address, anonymous=True)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _stamp(file: Path | None) -> tuple[int, ...] | None:
    try:
        stat = None if file is None else file.stat()
    except OSError:
        return None
    # The change time shows a changed mode.
    return None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _read(file: Path | None) -> list[_Key]:
    if file is None:
        return []
    return [_Key(Role[permission.upper()], name, _digest(token)) for permission, name, token in read_tokens(file)]


@dataclass(frozen=True, slots=True)
class Gatekeeping:
    """The settings and records that checks need. requests: responses by status; refusals: by reason."""

    settings: AdminSettings
    access: Access
    audit: Audit
    sessions: Sessions = field(default_factory=Sessions)
    requests: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
