"""Users and ACLs that the brokers keep (ACL 2.0), loaded again every few seconds.

Brokers return passwords in plain text, to users of type Super and others with permission to read the cluster. They keep
their users separately: one broker is asked, and another one only if it does not respond. While none does, the last
users and ACLs remain in force.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proxy.auth.policy import Directory, Pattern, Policy, Role, User, parse_actions, parse_networks
from proxy.auth.sources.broker_lists import read_acls, read_users
from proxy.core.backend import Backend
from remoting import command as commands
from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.requests import REQUESTS
from remoting.signature import SecretKey

_log = logging.getLogger("gantry.auth")

# Seconds for a broker to respond. With the interval it bounds the time until a revocation is effective.
_TIMEOUT = 2.0
_NAMESPACE = "Namespace:"


@dataclass(frozen=True, slots=True)
class _Bodies:
    """The responses of a broker, to be compared before they are parsed."""

    users: bytes
    acls: bytes


class BrokerSource:
    """Users and ACLs of the backend's brokers.

    backend: returns the backend, which does not exist yet at the start. interval: seconds between two requests.
    """

    name = "brokers"

    def __init__(
        self, backend: Callable[[], Backend], interval: float, clock: Callable[[], float] | None = None
    ) -> None:
        self.directory = Directory()
        self.error: str | None = None
        self._backend = backend
        self._interval = interval
        self._clock = asyncio.get_running_loop().time if clock is None else clock
        self._next_at = 0.0
        self._loaded_at: float | None = None
        self._bodies: _Bodies | None = None
        # The broker that responded last.
        self._broker = ""
        self._last_problem = ""

    async def refresh(self) -> bool:
        """Load users and ACLs if the interval is over; return whether they have changed."""
        if self._clock() < self._next_at:
            return False
        self._next_at = self._clock() + self._interval
        try:
            bodies = await self._load()
            changed = bodies != self._bodies
            if changed:
                acls = read_acls(bodies.acls)
                self.directory = directory(read_users(bodies.users), acls.infos, acls.denied)
        except RemotingError as error:
            self._failed(str(error))
            return False
        self._loaded_at = self._clock()
        self.error = None
        self._last_problem = ""
        if changed:
            self._bodies = bodies
            _log.info("loaded %d users from the broker %s", len(self.directory.users), self._broker)
        return changed

    def _failed(self, problem: str) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            _log.warning("users and ACLs cannot be loaded from the brokers, the former remain in force: %s", problem)
        if self._loaded_at is None:
            self.error = f"never loaded, so that no user is known: {problem}"
        else:
            self.error = f"those of {self._clock() - self._loaded_at:.0f} s ago are in force: {problem}"

    async def _load(self) -> _Bodies:
        """Return the responses of one broker. Raises the last broker's RemotingError."""
        backend = self._backend()
        names = sorted(await backend.brokers(), key=lambda name: (name != self._broker, name))
        failure = RemotingError("no broker is known")
        for name in names:
            try:
                users, acls = await asyncio.gather(
                    self._ask(backend, name, RequestCode.AUTH_LIST_USER),
                    self._ask(backend, name, RequestCode.AUTH_LIST_ACL),
                )
            except RemotingError as error:
                failure = error
                continue
            self._broker = name
            return _Bodies(users, acls)
        raise failure

    async def _ask(self, backend: Backend, broker: str, code: RequestCode) -> bytes:
        reply = await backend.request(broker, REQUESTS[code], commands.request(code), _TIMEOUT, None)
        if reply.code != ResponseCode.SUCCESS:
            raise RemotingError(f"the broker {broker} answered {code.name} with {reply.code}: {reply.remark}")
        return reply.body


def directory(users: Iterable[UserInfo], acls: Sequence[AclInfo], denied: frozenset[str] = frozenset()) -> Directory:
    """Return the users with the policies of their ACLs. denied: users to be disabled, as in `Acls`."""
    policies: dict[str, tuple[Policy, ...]] = {}
    for info in acls:
        if info.username is not None:
            try:
                policies[info.username] = tuple(_policies(info))
            except ValueError as error:
                _log.warning("%s is disabled, because a deny rule of its ACL is not readable: %s", info.subject, error)
                denied |= {info.username}
    return Directory({info.username: _user(info, policies.get(info.username, ()), denied) for info in users})


def _user(info: UserInfo, policies: tuple[Policy, ...], denied: frozenset[str]) -> User:
    return User(
        name=info.username,
        key=SecretKey(info.password) if info.password else None,
        role=Role.SUPER if info.user_type is UserType.SUPER else Role.NORMAL,
        enabled=info.user_status is not UserStatus.DISABLE and info.username not in denied,
        policies=policies,
        origin="brokers",
    )


def _policies(info: AclInfo) -> Iterable[Policy]:
    """Yield the policies of an ACL without unreadable ones that permit. Raises ValueError for one that denies."""
    for kind, entries in info.policies.items():
        for entry in entries:
            if entry.resource.startswith(_NAMESPACE):
                # No request of clients has a resource of this kind.
                _log.warning("an entry of the ACL of %s is ignored: its resource is a %s", info.subject, entry.resource)
                continue
            try:
                yield _policy(info.subject, kind, entry)
            except ValueError as error:
                if entry.decision is not Decision.ALLOW:
                    raise
                _log.warning("an entry of the ACL of %s permits nothing: %s", info.subject, error)


def _policy(subject: str, kind: PolicyType, entry: PolicyEntry) -> Policy:
    return Policy(
        Pattern.parse("*" if entry.resource.startswith("Any:") else entry.resource),
        parse_actions(entry.actions),
        entry.decision is Decision.ALLOW,
        parse_networks(entry.source_ips),
        fallback=kind is PolicyType.DEFAULT,
        origin=f"ACL of {subject} at the brokers",
    )
