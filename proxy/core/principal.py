"""The authenticated sender of a request."""

import math
from enum import StrEnum


class Method(StrEnum):
    """The means by which a sender is authenticated."""

    NONE = "none"
    SIGNATURE = "signature"
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105  # a name
    PASSWORD = "password"  # noqa: S105  # a name
    ADDRESS = "address"  # exempt by its address, as in ACL 1.0
    ANONYMOUS = "anonymous"
    OWN = "own"  # Gantry itself


class Failure(StrEnum):
    """The reason why a sender is not authenticated. Logs and metrics show it, responses do not."""

    NO_CREDENTIAL = "no credential"
    MALFORMED = "malformed credential"
    UNKNOWN_USER = "unknown user"
    DISABLED_USER = "disabled user"
    WRONG_SECRET = "wrong secret"  # noqa: S105  # a name
    WRONG_TOKEN = "wrong security token"  # noqa: S105  # a name
    NOT_VERIFIED = "too many verifications"
    EXPIRED = "expired date"
    INVALID_TOKEN = "invalid token"  # noqa: S105  # a name


class Principal:
    """A user, or a sender that is not authenticated.

    Attributes:
        user: the user's name; of a sender that is not authenticated, the name that it claims.
        groups: groups that the credential itself names, such as those of a token.
        failure: None for an authenticated user.
        expires_at: when the credential expires, in seconds since 1970.
        proof: what the credential proves, so that its withdrawal shows: the `User.proof` of a signature, the name in a
            client certificate, the thumbprint of a token's key; "" for nothing.

    Principals are compared by identity: the authenticators reuse them, and caches have them as keys.
    """

    __slots__ = ("expires_at", "failure", "groups", "method", "proof", "user")

    def __init__(
        self,
        user: str,
        method: Method,
        groups: frozenset[str] = frozenset(),
        failure: Failure | None = None,
        expires_at: float = math.inf,
        proof: str = "",
    ) -> None:
        self.user = user
        self.method = method
        self.groups = groups
        self.failure = failure
        self.expires_at = expires_at
        self.proof = proof

    def __repr__(self) -> str:
        state = "" if self.failure is None else f" ({self.failure})"
        return f"<{self.method} {self.user!r}{state}>"


# Gantry itself; its requests need no permission.
OWN = Principal("gantry", Method.OWN)
# A sender without any credential, and every sender while authentication is off.
UNAUTHENTICATED = Principal("", Method.NONE, failure=Failure.NO_CREDENTIAL)
