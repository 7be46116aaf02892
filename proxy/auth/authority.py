"""The authority: authenticates senders, and decides about each request before it is handled.

The core calls it as one of its checks, the gRPC gateway with the permissions of each rpc.
"""

import json
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain

from protocol_negotiation.peer import Peer, PeerCertificate
from proxy.auth.audit import AuditLog
from proxy.auth.certificates import certificate_names
from proxy.auth.decision import decide
from proxy.auth.failures import FailureDelays
from proxy.auth.policy import ANONYMOUS_USER, Grants, Role, User
from proxy.auth.resources import depend_on_names, permissions
from proxy.auth.sources.source import Source, exempts_all, find_user, grants
from proxy.core.context import Context
from proxy.core.principal import OWN, Failure, Method, Principal
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, InvalidRequest, NotPermitted
from remoting.json_keys import check_escapes, field_name
from remoting.permissions import Action, Permission
from remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SecretKey, verify

_log = logging.getLogger("gantry.auth")

# Principals and decisions that are remembered; either set is emptied when it is full.
_MAX_PRINCIPALS = 10_000
_MAX_DECISIONS = 100_000
_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
# Requests that need Update although they change nothing, because their responses have secrets.
_SECRET_READS = frozenset({RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER, RequestCode.GET_BROKER_CONFIG})
_ACL_CHANGES = frozenset({RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL})
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
_UNAUTHENTICATED = "authentication failed: this listener needs valid credentials"


class NotAuthenticated(NotPermitted):
    """The sender is not authenticated. The text does not say why."""

    def __init__(self, delay: float) -> None:
        super().__init__(_UNAUTHENTICATED)
        self.delay = delay


class Forbidden(NotPermitted):
    """An authenticated sender lacks a permission."""


class Authority:
    """Users, policies and decisions of a replica.

    sources: the first that knows a user decides about it. anonymous: whether senders without a credential are the user
    `anonymous`; else they are rejected. anonymous_routes: whether those of remoting may ask for routes all the same.
    sync_topics: internal topics of proxies, as in `decide`.
    counts: denied requests by method and reason. allowed: permitted requests by method. epoch: number of changes of
    users and policies. change_listeners: called after each of them.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        anonymous: bool = False,
        anonymous_routes: bool = False,
        sync_topics: frozenset[str] = frozenset(),
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sources = tuple(sources)
        self.sync_topics = sync_topics
        self.audit = AuditLog() if audit is None else audit
        self.counts: Counter[tuple[str, str]] = Counter()
        self.allowed: dict[Method, int] = dict.fromkeys(Method, 0)
        self.epoch = 0
        self.change_listeners: list[Callable[[], None]] = []
        # Further checks for changes, such as of the keys of tokens.
        self.refreshers: list[Callable[[], Awaitable[bool]]] = []
        self.failures = FailureDelays(clock)
        # Verified against for users without a secret, so that the time does not show that.
        self.no_key = SecretKey(secrets.token_hex())
        self._anonymous = anonymous
        self._anonymous_routes = anonymous_routes
        # Whether a token's key, given by its thumbprint, is one of the current keys.
        self.has_token_key: Callable[[str], bool] = lambda thumbprint: False
        self._principals: dict[tuple[str, Method, frozenset[str], float, str], Principal] = {}
        # The secrets and principals of enabled users that have signed a request.
        self._signers: dict[str | None, tuple[SecretKey, Principal]] = {}
        self._grants: dict[Principal, Grants] = {}
        self._granted: set[tuple[object, ...]] = set()
        self._certificates: dict[str, User] = {}
        # Whether a user has a hashed password.
        self.has_passwords = False
        self._any_exempt = False
        self._by_address = False
        self._index()

    # Users.

    async def refresh(self) -> None:
        """Look for changes of users and policies. An error in one source does not withhold the changes of others."""
        changed = False
        for source in self.sources:
            try:
                changed = await source.refresh() or changed
            except Exception as error:
                problem = f"cannot be checked for changes: {type(error).__name__}"
                if source.error != problem:
                    _log.exception("%s: %s", source.name, problem)
                source.error = problem
        if changed:
            self.changed()

    def changed(self) -> None:
        """Use the changed users and policies from now on."""
        self.epoch += 1
        self._principals.clear()
        self._signers.clear()
        self._grants.clear()
        self._granted.clear()
        self._index()
        for listener in self.change_listeners:
            listener()

    def _index(self) -> None:
        directories = [source.directory for source in self.sources]
        users = [user for directory in reversed(directories) for user in directory.users.values()]
        groups = [group for directory in directories for group in directory.groups.values()]
        self.has_passwords = any(user.password is not None for user in users)
        self._certificates = {name: user for user in users for name in user.certificates}
        self._any_exempt = any(directory.exempt for directory in directories) or any(user.exempt for user in users)
        policies = chain(*(user.policies for user in users), *(group.policies for group in groups))
        self._by_address = self._any_exempt or any(policy.networks for policy in policies)

    def user(self, name: str) -> User | None:
        """Return a user."""
        return find_user(self.sources, name)

    def grants(self, principal: Principal) -> Grants:
        """Return the role and policies of a principal."""
        known = self._grants.get(principal)
        if known is None:
            known = _ALL if principal.method is Method.OWN else grants(self.sources, principal)
            if len(self._grants) >= _MAX_PRINCIPALS:
                self._grants.clear()
            self._grants[principal] = known
        return known

    # Authentication.

    def principal(
        self,
        user: str,
        method: Method,
        groups: frozenset[str] = frozenset(),
        expires_at: float = math.inf,
        proof: str = "",
    ) -> Principal:
        """Return the principal of an authenticated user; groups, expires_at, proof: as in `Principal`."""
        key = (user, method, groups, expires_at, proof)
        principal = self._principals.get(key)
        if principal is None:
            if len(self._principals) >= _MAX_PRINCIPALS:
                self._principals.clear()
            principal = self._principals[key] = Principal(user, method, groups, None, expires_at, proof)
        return principal

    def of_command(self, command: RemotingCommand, peer: Peer) -> Principal:
        """Return the sender of a remoting request: by its signature, else by the connection."""
        name = command.fields.get(ACCESS_KEY)
        signer = self._signers.get(name)
        if signer is not None and verify(command, signer[0]):
            return signer[1]
        # C++ clients without credentials send both fields empty.
        if not name and not command.fields.get(SIGNATURE):
            return self.of_connection(peer)
        if not name:
            return Principal("", Method.SIGNATURE, failure=Failure.MALFORMED)
        user = self.user(name)
        if self._any_exempt and user is not None and user.exempts(peer.address.host):
            return self.principal(name, Method.ADDRESS)
        failure = self._failure(command, user, None if signer is None else signer[0])
        if self._any_exempt and exempts_all(self.sources, peer.address.host):
            # The address says nothing about the name: without the secret, any client there could be a super user.
            if user is None or failure is not None:
                return self.principal("", Method.ADDRESS)
            return self.principal(name, Method.ADDRESS, proof=user.proof)
        if user is None or failure is not None:
            return Principal(name, Method.SIGNATURE, failure=failure)
        principal = self.principal(name, Method.SIGNATURE, proof=user.proof)
        if not self._any_exempt and user.security_token is None and user.key is not None:
            if len(self._signers) >= _MAX_PRINCIPALS:
                self._signers.clear()
            self._signers[name] = user.key, principal
        return principal

    def _failure(self, command: RemotingCommand, user: User | None, tried: SecretKey | None) -> Failure | None:
        """Return why a signature is not that of an enabled user; None if it is. tried: a key that it is not of."""
        if user is None or user.key is None:
            # Takes as long as for a known user.
            if tried is None:
                verify(command, self.no_key)
            return Failure.UNKNOWN_USER
        # A second verification with the same key would show by its time that the user has signed lately.
        if tried is user.key or not verify(command, user.key):
            return Failure.WRONG_SECRET
        if not user.accepts_token(command.fields.get(SECURITY_TOKEN, "")):
            return Failure.WRONG_TOKEN
        return None if user.enabled else Failure.DISABLED_USER

    def of_connection(self, peer: Peer) -> Principal:
        """Return the sender of a request without a credential: by its client certificate, its address, or nothing."""
        certificate = None if peer.tls is None else peer.tls.certificate
        name = self._known_name(certificate)
        user = self._certificates.get(name)
        if self._any_exempt and exempts_all(self.sources, peer.address.host):
            if user is None or not user.enabled:
                return self.principal("", Method.ADDRESS)
            return self.principal(user.name, Method.ADDRESS, proof=name)
        if user is not None:
            if not user.enabled:
                return Principal(user.name, Method.CERTIFICATE, failure=Failure.DISABLED_USER)
            return self.principal(user.name, Method.CERTIFICATE, proof=name)
        if self._anonymous:
            return self.principal(ANONYMOUS_USER, Method.ANONYMOUS)
        if certificate is not None:
            return Principal(certificate.subject, Method.CERTIFICATE, failure=Failure.UNKNOWN_USER)
        return _NO_CREDENTIAL

    def _known_name(self, certificate: PeerCertificate | None) -> str:
        """Return the name in a certificate that stands for a user; "" if none does."""
        if certificate is None or not self._certificates:
            return ""
        return next((name for name in certificate_names(certificate) if name in self._certificates), "")

    # Decisions.

    def __call__(self, context: Context) -> None:
        """Decide about a request: a check of the core.

        Raises NotAuthenticated, Forbidden, BodyError, InvalidRequest.
        """
        principal = context.principal
        if principal is OWN:
            return
        spec = context.known_spec
        fields, host = context.fields, context.channel.peer.address.host
        if principal.failure is not None:
            if principal is _NO_CREDENTIAL and self._anonymous_routes and spec.code == _ROUTE:
                self.allowed[Method.ANONYMOUS] += 1
                return
            raise self.reject(principal, context.channel.protocol, host, spec.name)
        key: tuple[object, ...] | None = None
        if depend_on_names(spec, fields, context.command.body):
            first, second = spec.need_fields
            key = (
                principal,
                context.code,
                fields.get(first),
                fields.get(second),
                host if self._by_address else None,
            )
            if key in self._granted:
                self.allowed[principal.method] += 1
                return
        needed = tuple(permissions(spec, fields, context.command.body))
        self.require(principal, needed, context.channel.protocol, host, spec.name)
        if spec.tool and any(not _CHANGES.isdisjoint(permission.actions) for permission in needed):
            if spec.code in _ACL_CHANGES and context.command.body:
                _check_subject(fields.get("subject", ""), context.command.body)
            log = self.audit.read if spec.code in _SECRET_READS else self.audit.changed
            log(principal, context.channel.protocol, host, spec.name, _text(needed) + _subject(fields))
        elif key is not None:
            if len(self._granted) >= _MAX_DECISIONS:
                self._granted.clear()
            self._granted.add(key)

    def require(
        self, principal: Principal, needed: Iterable[Permission], protocol: str, host: str, request: str
    ) -> None:
        """Check that a sender has these permissions. Raises NotAuthenticated, Forbidden."""
        if principal.failure is not None:
            raise self.reject(principal, protocol, host, request)
        denied = self.first_denied(principal, needed, host)
        if denied is None:
            self.allowed[principal.method] += 1
            return
        permission, reason = denied
        text = _text((permission,))
        self.deny(principal, protocol, host, request, f"{text}: {reason}")
        raise Forbidden(f"the user {principal.user} has no permission for {request}: {text}")

    def deny(self, principal: Principal, protocol: str, host: str, request: str, text: str) -> None:
        """Count and log a request whose sender lacks a permission."""
        self.counts[principal.method, "forbidden"] += 1
        self.audit.denied(principal, protocol, host, request, text)

    def first_denied(
        self, principal: Principal, needed: Iterable[Permission], host: str
    ) -> tuple[Permission, str] | None:
        """Return the first permission that a sender lacks, with the reason; None if it has all.

        A sender that is not authenticated has none, even if it claims to be a user.
        """
        if principal is OWN:
            return None
        if principal.failure is not None:
            return next(((permission, principal.failure.value) for permission in needed), None)
        granted, source = self._granted, host if self._by_address else None
        for permission in needed:
            key = (principal, permission, source)
            if key in granted:
                continue
            decision = decide(self.grants(principal), permission, host, self.sync_topics)
            if not decision.allowed:
                return permission, decision.reason
            if len(granted) >= _MAX_DECISIONS:
                granted.clear()
            granted.add(key)
        return None

    def is_valid(self, principal: Principal, host: str) -> bool:
        """Return whether a sender at an address, authenticated before, still is: by its user and its credential."""
        if principal.failure is not None:
            return False
        user = self.user(principal.user)
        if principal.method is Method.ADDRESS:
            return self._is_exempt(principal, user, host)
        if principal.method not in _BY_USER:
            return True
        if principal.method is Method.TOKEN:
            # Its user need not be in a source.
            return self.has_token_key(principal.proof) and (user is None or user.enabled)
        return user is not None and user.enabled and self._is_proven(principal, user)

    def _is_exempt(self, principal: Principal, user: User | None, host: str) -> bool:
        """Return whether a sender that is exempt by its address still is, as this user."""
        if not principal.user:
            return exempts_all(self.sources, host)
        if user is None or not user.enabled:
            return False
        if not principal.proof:
            return user.exempts(host)
        return self._is_proven(principal, user) and exempts_all(self.sources, host)

    def _is_proven(self, principal: Principal, user: User) -> bool:
        """Return whether a user still has the secret, or the name in certificates, that a principal has proved."""
        proof = principal.proof
        if not proof or proof == user.proof:
            return True
        named = self._certificates.get(proof)
        return named is not None and named.name == user.name

    def reject(self, principal: Principal, protocol: str, host: str, request: str) -> NotAuthenticated:
        """Count and log a sender that is not authenticated, and return the error.

        A credential that was not verified is no failure of its sender.
        """
        assert principal.failure is not None
        self.counts[principal.method, principal.failure.value] += 1
        self.audit.denied(principal, protocol, host, request, principal.failure.value)
        verified = principal.failure is not Failure.NOT_VERIFIED
        return NotAuthenticated(self.failures.fail(host) if verified else 0.0)


_BY_USER = frozenset({Method.SIGNATURE, Method.CERTIFICATE, Method.PASSWORD, Method.TOKEN})
_ALL = Grants(Role.SUPER, ())
_NO_CREDENTIAL = Principal("", Method.NONE, failure=Failure.NO_CREDENTIAL)


def _subject(fields: Mapping[str, str]) -> str:
    """Return the user or the subject of policies that a request is about, for the audit log."""
    return "".join(f", {name} {fields[name]}" for name in ("username", "subject") if fields.get(name))


def _check_subject(subject: str, body: bytes) -> None:
    """Check that the JSON of an ACL has no other subject than that of the ext field, which the audit log names.

    Brokers prefer the body's, with its key in any case and with `_` and `-` in it, and read several of them. Raises
    BodyError, InvalidRequest.
    """
    try:
        pairs = json.loads(body.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        raise BodyError("the body is not the JSON of an ACL") from None
    if not isinstance(pairs, tuple):
        raise BodyError("the body is not the JSON of an ACL")
    check_escapes(body)
    for key, value in pairs:
        text = "" if value is None else str(value)
        if field_name(key) == "subject" and text.strip() and text != subject:
            raise InvalidRequest("the body has another subject than the ext field subject")


def _text(needed: Iterable[Permission]) -> str:
    return ", ".join(
        f"{' or '.join(permission.actions)} on {permission.kind}:{permission.name or '*'}" for permission in needed
    )
