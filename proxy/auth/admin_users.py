"""Users as callers of the admin APIs: operators may read, super users may write."""

import binascii
import hmac
from base64 import b64decode

from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import GrpcGuard
from proxy.auth.policy import Role
from proxy.core.principal import Failure, Method, Principal
from remoting.signature import SecretKey

_PERMISSIONS = {Role.NORMAL: "none", Role.OPERATOR: "read", Role.SUPER: "write"}
_PROTOCOL = "admin"


class AdminUsers:
    """Identifies callers by the header `authorization`: Basic with access key and secret key, or a bearer token."""

    def __init__(self, authority: Authority, guard: GrpcGuard) -> None:
        self._authority = authority
        self._guard = guard

    def __call__(self, authorization: str, address: str) -> tuple[str, str] | None:
        """Return a caller's name and its permission (none, read or write); None if the credential is not valid."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            principal = self._guard.of_token(value.strip())
        elif scheme.lower() == "basic":
            principal = self._of_password(value.strip())
        else:
            return None
        if principal.failure is not None:
            self._authority.reject(principal, _PROTOCOL, address, "admin API")
            return None
        self._authority.allowed[principal.method] += 1
        return principal.user, _PERMISSIONS[self._authority.grants(principal).role]

    def _of_password(self, value: str) -> Principal:
        try:
            name, colon, secret = b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = secret = ""
        if not colon:
            return Principal("", Method.PASSWORD, failure=Failure.MALFORMED)
        user = self._authority.user(name)
        key = None if user is None else user.key
        # Equal secrets have equal digests; only the digests are kept.
        expected = (self._authority.no_key if key is None else key).digest(b"")
        matches = hmac.compare_digest(SecretKey(secret).digest(b""), expected)
        if user is None or key is None:
            return Principal(name, Method.PASSWORD, failure=Failure.UNKNOWN_USER)
        if not matches:
            return Principal(name, Method.PASSWORD, failure=Failure.WRONG_SECRET)
        if not user.enabled:
            return Principal(name, Method.PASSWORD, failure=Failure.DISABLED_USER)
        return self._authority.principal(name, Method.PASSWORD)
