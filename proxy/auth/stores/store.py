"""The interface of all stores of users and policies, and the values that it exchanges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from typing import Literal, Protocol

from proxy.auth.decision import Decision, decide
from proxy.auth.policy import Directory, Pattern, Role, format_actions, parse_actions
from proxy.auth.sources.source import Source, exempts_all, find_user, grants
from proxy.core.principal import Method, Principal
from remoting.permissions import Action, Permission

# A subject is the name of a user, or this and the name of a group.
GROUP_PREFIX = "@"
# Random bytes of a generated secret key.
SECRET_BYTES = 24
_ALL = "All"


class StoreError(Exception):
    """A change that the store refuses, or a store that cannot be read. The message has no secret."""


class NotInStore(StoreError):
    """The store has no such user, group or policy."""


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user, or a group if the name begins with `@`. policies: their number. expires: ISO 8601."""

    user: str
    role: Role
    groups: tuple[str, ...]
    enabled: bool
    policies: int
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy of a user or group. effect: allow or deny; default: whether it applies only where no other one does."""

    user: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    sources: tuple[str, ...]
    default: bool = False


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user or group to be created.

    secret: None to generate one, unless there is a password. password: for the HTTP API only; its hash is stored.
    security_token, expires: of temporary credentials.
    """

    name: str
    role: Role = Role.NORMAL
    groups: tuple[str, ...] = ()
    secret: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class UserChange:
    """Changes of a user; None leaves a value as it is. security_token, expires: "" to remove it."""

    role: Role | None = None
    groups: tuple[str, ...] | None = None
    enabled: bool | None = None
    secret: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    expires: datetime | Literal[""] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A policy to be added."""

    actions: tuple[str, ...]
    resource: str
    deny: bool = False
    sources: tuple[str, ...] = ()


class Store(Protocol):
    """A store of users and policies. All methods raise StoreError, and those of brokers also RemotingError."""

    async def users(self) -> list[UserEntry]:
        """Return all users, and then all groups, by name."""

    async def policies(self, subject: str | None = None) -> list[PolicyEntry]:
        """Return the policies of all users and groups, or of one. Raises NotInStore."""

    async def directory(self) -> Directory:
        """Return the users and policies as decisions use them."""

    async def create(self, user: NewUser) -> str | None:
        """Create a user or group; return the secret key if it was generated."""

    async def update(self, name: str, change: UserChange) -> None:
        """Change a user. Raises NotInStore."""

    async def delete(self, subject: str) -> None:
        """Delete a user or group with its policies. Raises NotInStore."""

    async def grant(self, subject: str, grant: Grant) -> None:
        """Add a policy. Raises NotInStore for an unknown subject."""

    async def revoke(self, subject: str, actions: Sequence[str], resource: str) -> None:
        """Remove actions (none: all) of a resource from the policies. Raises NotInStore without such a policy."""


def action_names(actions: Iterable[Action]) -> tuple[str, ...]:
    """Return the actions by name, in the order of their definition; `All` for all, as brokers name it."""
    present = frozenset(actions)
    return (_ALL,) if Action.ANY in present else tuple(format_actions(present).split(","))


def explain(
    sources: Sequence[Source],
    user: str,
    action: str,
    resource: str,
    address: str,
    sync_topics: frozenset[str] = frozenset(),
) -> Decision:
    """Return the decision about one action of a user, from an address, on one resource. Raises ValueError.

    sync_topics: as in `decide`.
    """
    (parsed,) = parse_actions([action])
    host = _address(address)
    pattern = Pattern.parse(resource)
    if pattern.prefixed:
        raise ValueError("a decision is about one resource, without *")
    found = find_user(sources, user)
    permission = Permission(pattern.kind, pattern.name, (parsed,))
    if exempts_all(sources, host) or (found is not None and found.exempts(host)):
        return decide(grants(sources, Principal(user, Method.ADDRESS)), permission, host, sync_topics)
    if found is None:
        return Decision(False, f"no user {user} in {', '.join(source.name for source in sources)}")
    if not found.enabled:
        return Decision(False, f"the user is disabled or has expired ({found.origin})")
    return decide(grants(sources, Principal(user, Method.SIGNATURE)), permission, host, sync_topics)


def _address(text: str) -> str:
    """Return an IP address as connections have it. Raises ValueError."""
    try:
        parsed = ip_address(text)
    except ValueError:
        raise ValueError(f"not an IP address: {text!r}") from None
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
