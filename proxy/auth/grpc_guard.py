"""Authentication of gRPC clients: the header `authorization`, with RocketMQ's signature or a bearer token.

A signature covers only the text of the header `x-mq-date-time`. It is accepted near that time. The header
`x-mq-session-token` has the security token of temporary credentials. Clients write their
local time with a literal Z, so that a time matches in every time zone that the settings permit.
"""

import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from grpc_gateway.permissions import Unauthorized
from protocol_negotiation.peer import Peer
from proxy.auth.authority import Authority, NotAuthenticated
from proxy.core.principal import Failure, Method, Principal
from remoting.permissions import Permission

AUTHORIZATION = "authorization"
DATE_TIME = "x-mq-date-time"
SESSION_TOKEN = "x-mq-session-token"  # noqa: S105  # a name
ALGORITHM = "MQv2-HMAC-SHA1"
_BEARER = "bearer"
_PROTOCOL = "grpc"
_LOCAL_FORMAT = "%Y%m%dT%H%M%SZ"
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{40}")
_MAX_HEADER = 8 * 1024
# Verified headers that are remembered; all are forgotten when there are more.
_MAX_HEADERS = 10_000
# Time zones differ from UTC by a multiple of a quarter of an hour, from -12 to +14 hours.
_ZONE_STEP = 15 * 60
ALL_ZONES = tuple(range(-12 * 3600, 14 * 3600 + 1, _ZONE_STEP))


class Signature(NamedTuple):
    """The header's parts. user: access key, without the scope (region and service) that some clients append."""

    user: str
    digest: bytes


class TokenVerifier(Protocol):
    """Verifies bearer tokens."""

    def verify(self, token: str) -> "VerifiedToken | None":
        """Return the token's content; None if it is not valid."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A valid token: its user and groups, its end in seconds since 1970, and the thumbprint of its key (RFC 7638)."""

    user: str
    groups: frozenset[str]
    expires_at: float
    key: str


class GrpcGuard:
    """Authenticates and authorizes rpcs; implements `grpc_gateway.permissions.Guard`.

    window: seconds by which the signed time may differ from this host's. zones: offsets from UTC, in seconds, of the
    time zones in which clients write it. tokens: verifies bearer tokens; None: they are rejected.
    """

    def __init__(
        self,
        authority: Authority,
        *,
        window: float,
        zones: Iterable[int] = ALL_ZONES,
        tokens: TokenVerifier | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authority = authority
        self._window = window
        self._zones = tuple(zones)
        self._tokens = tokens
        self._clock = clock
        # By header, signed time and security token: the principal, and the end of its validity in seconds since 1970.
        self._verified: dict[tuple[str, str, str], tuple[Principal, float]] = {}
        authority.change_listeners.append(self._verified.clear)

    def authenticate(self, metadata: Mapping[str, str | bytes], peer: Peer, rpc: str) -> Principal:
        """Return the sender of an rpc. Raises Unauthorized."""
        principal = self._principal(metadata, peer)
        if principal.failure is not None:
            error = self._authority.reject(principal, _PROTOCOL, peer.address.host, rpc)
            raise Unauthorized(str(error), error.delay)
        return principal

    def require(self, principal: Principal, permissions: Iterable[Permission], peer: Peer, rpc: str) -> None:
        """Check that a sender has these permissions. Raises Forbidden, Unauthorized."""
        try:
            self._authority.require(principal, permissions, _PROTOCOL, peer.address.host, rpc)
        except NotAuthenticated as error:
            raise Unauthorized(str(error), error.delay) from None

    def _principal(self, metadata: Mapping[str, str | bytes], peer: Peer) -> Principal:
        header, date = metadata.get(AUTHORIZATION), metadata.get(DATE_TIME, "")
        token = metadata.get(SESSION_TOKEN, "")
        if not isinstance(header, str) or not isinstance(date, str) or not isinstance(token, str):
            return self._authority.of_connection(peer)
        verified = self._verified.get((header, date, token))
        now = self._clock()
        if verified is not None and now < verified[1]:
            return verified[0]
        principal, expires_at = self._verify(header, date, token, peer, now)
        if principal.failure is None and expires_at > now:
            if len(self._verified) >= _MAX_HEADERS:
                self._verified.clear()
            self._verified[header, date, token] = principal, expires_at
        return principal

    def _verify(self, header: str, date: str, token: str, peer: Peer, now: float) -> tuple[Principal, float]:
        """Return the sender that a header proves, and the end of its validity."""
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == _BEARER:
            return self._verify_token(rest.strip())
        signature = parse(header)
        if signature is None:
            return Principal("", Method.SIGNATURE, failure=Failure.MALFORMED), 0.0
        if not signature.user:
            # Python's client sends an empty credential if it has none.
            return self._authority.of_connection(peer), 0.0
        user = self._authority.user(signature.user)
        key = None if user is None else user.key
        expected = (self._authority.no_key if key is None else key).digest(date.encode())
        failure = None
        if not hmac.compare_digest(expected, signature.digest) or user is None or key is None:
            failure = Failure.UNKNOWN_USER if key is None else Failure.WRONG_SECRET
        elif not user.accepts_token(token):
            failure = Failure.WRONG_TOKEN
        elif not user.enabled:
            failure = Failure.DISABLED_USER
        valid_until = self._valid_until(date, now)
        if failure is None and valid_until is None:
            failure = Failure.EXPIRED
        if failure is not None or valid_until is None or user is None:
            return Principal(signature.user, Method.SIGNATURE, failure=failure), 0.0
        return self._authority.principal(signature.user, Method.SIGNATURE, proof=user.proof), valid_until

    def _valid_until(self, date: str, now: float) -> float | None:
        """Return until when a signed time is accepted; None if it is not now."""
        times = signed_times(date, self._zones)
        return next((at + self._window for at in times if abs(now - at) <= self._window), None)

    def of_token(self, token: str) -> Principal:
        """Return the sender that a bearer token proves."""
        return self._verify_token(token)[0]

    def _verify_token(self, token: str) -> tuple[Principal, float]:
        verified = None if self._tokens is None else self._tokens.verify(token)
        if verified is None:
            return Principal("", Method.TOKEN, failure=Failure.INVALID_TOKEN), 0.0
        user = self._authority.user(verified.user)
        if user is not None and not user.enabled:
            return Principal(verified.user, Method.TOKEN, failure=Failure.DISABLED_USER), 0.0
        principal = self._authority.principal(
            verified.user, Method.TOKEN, verified.groups, verified.expires_at, verified.key
        )
        return principal, verified.expires_at


def parse(header: str) -> Signature | None:
    """Parse `MQv2-HMAC-SHA1 Credential=KEY[/REGION/SERVICE], SignedHeaders=x-mq-date-time, Signature=HEX`.

    Returns None for any other text.
    """
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM or len(header) > _MAX_HEADER:
        return None
    parts = {}
    for part in rest.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key in parts:
            return None
        parts[key] = value.strip()
    if parts.get("SignedHeaders", DATE_TIME).lower() != DATE_TIME or "Credential" not in parts:
        return None
    digest = parts.get("Signature", "")
    user = parts["Credential"].partition("/")[0]
    if not user:
        return Signature("", b"")
    return Signature(user, bytes.fromhex(digest)) if _SIGNATURE.fullmatch(digest) else None


def signed_times(text: str, zones: Iterable[int]) -> Iterable[float]:
    """Return the times, in seconds since 1970, that a signed text may mean: one for each time zone."""
    try:
        local = datetime.strptime(text, _LOCAL_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    else:
        return [local - offset for offset in zones]
    try:
        # The Rust client writes RFC 3339 with an offset.
        exact = datetime.fromisoformat(text)
    except ValueError:
        return ()
    return () if exact.tzinfo is None else (exact.timestamp(),)
