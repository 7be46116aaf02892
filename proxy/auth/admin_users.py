"""Users as callers of the admin APIs: operators may read, super users may write."""

import hmac
import secrets
import time
from base64 import b64decode
from bisect import bisect
from collections import Counter
from collections.abc import Callable

from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import GrpcGuard
from proxy.auth.passwords import PasswordHash, hash_password
from proxy.auth.policy import Role, User
from proxy.core.principal import Failure, Method, Principal
from remoting.signature import SecretKey

_PERMISSIONS = {Role.NORMAL: "none", Role.OPERATOR: "read", Role.SUPER: "write"}
_PROTOCOL = "admin"
# Verifications per second, of passwords and of secret keys: that of a hash takes about 50 ms, and any host that reaches
# the port can guess. Sources without failures, with few, and with more have budgets of their own: guesses from one host
# prevent neither the logins of other hosts nor those after a typing error.
_VERIFICATIONS_PER_SECOND = 2
_FAILURES = (0.5, 3.0)
# Verified passwords and secret keys that are remembered, as digests under a key of this process.
_MAX_VERIFIED = 1000


class TooManyLogins(Exception):
    """A password or secret key is not verified now; a second later it may be."""


class AdminUsers:
    """Identifies callers by the header `authorization`: Basic with access key and secret key, or a bearer token.

    A user with a hashed password has that instead of the secret key. One with a security token needs it. clock: in
    seconds.
    """

    def __init__(self, authority: Authority, guard: GrpcGuard, clock: Callable[[], float] = time.monotonic) -> None:
        self._authority = authority
        self._guard = guard
        self._clock = clock
        self._digests = SecretKey(secrets.token_hex())
        # By user and digest of the secret: the text of `_current`.
        self._verified: dict[tuple[str, bytes], str] = {}
        self._second = 0
        # In this second, by the number of failures of the source.
        self._verifications = Counter[int]()
        # Verified against for users without a hashed password; None until a user has one.
        self._no_password: PasswordHash | None = None

    def __call__(self, authorization: str, address: str) -> tuple[str, str] | None:
        """Return a caller's name and its permission (none, read or write); None if the credential is not valid.

        Raises TooManyLogins.
        """
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            principal = self._guard.of_token(value.strip())
        elif scheme.lower() == "basic":
            principal = self._of_password(value.strip(), address)
        else:
            return None
        if principal.failure is not None:
            self._authority.reject(principal, _PROTOCOL, address, "admin API")
            if principal.failure is Failure.NOT_VERIFIED:
                raise TooManyLogins
            return None
        self._authority.allowed[principal.method] += 1
        return principal.user, _PERMISSIONS[self._authority.grants(principal).role]

    def _of_password(self, value: str, address: str) -> Principal:
        try:
            name, colon, secret = b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            # No base64, no UTF-8, or a header that is not ASCII.
            name = colon = secret = ""
        if not colon:
            return Principal("", Method.PASSWORD, failure=Failure.MALFORMED)
        user = self._authority.user(name)
        failure = self._failure(user, name, secret, address)
        if failure is not None:
            return Principal(name, Method.PASSWORD, failure=failure)
        return self._authority.principal(name, Method.PASSWORD)

    def _failure(self, user: User | None, name: str, secret: str, address: str) -> Failure | None:
        login, current = (name, self._digests.digest(secret.encode())), self._current(user)
        if self._verified.get(login) != current:
            if not self._may_verify(address):
                return Failure.NOT_VERIFIED
            if not self._verify(user, secret):
                unknown = user is None or (user.key is None and user.password is None)
                return Failure.UNKNOWN_USER if unknown else Failure.WRONG_SECRET
            self._remember(login, current)
        if user is not None and user.password is None and not user.accepts_token(""):
            # The secret key is a part of temporary credentials, and a login has no place for the security token.
            return Failure.WRONG_TOKEN
        return None if user is not None and user.enabled else Failure.DISABLED_USER

    def _current(self, user: User | None) -> str:
        """Return a text that changes with a user's password or key; for unknown users one that never is remembered."""
        return self._key(user).digest(b"").hex() if user is None or user.password is None else user.password.text

    def _key(self, user: User | None) -> SecretKey:
        return self._authority.no_key if user is None or user.key is None else user.key

    def _verify(self, user: User | None, secret: str) -> bool:
        """Return whether a secret is a user's. All users take the time for both kinds, which would show the kind."""
        # Equal secrets have equal digests; only the digests are kept.
        matches = hmac.compare_digest(SecretKey(secret).digest(b""), self._key(user).digest(b""))
        password = None if user is None else user.password
        hashed = self._hash_for_others() if password is None else password
        verified = hashed is not None and hashed.verify(secret)
        return matches if password is None else verified

    def _hash_for_others(self) -> PasswordHash | None:
        """Return a hash of a random password, for users without one; None if no user has one."""
        if self._no_password is None and self._authority.has_passwords:
            self._no_password = PasswordHash(hash_password(secrets.token_hex()))
        return self._no_password

    def _remember(self, login: tuple[str, bytes], current: str) -> None:
        self._verified.pop(login, None)
        if len(self._verified) >= _MAX_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[login] = current

    def _may_verify(self, address: str) -> bool:
        """Count a verification for a source, and return whether it is within the budget of this second."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._verifications.clear()
        budget = bisect(_FAILURES, self._authority.failures.count(address))
        self._verifications[budget] += 1
        return self._verifications[budget] <= _VERIFICATIONS_PER_SECOND
