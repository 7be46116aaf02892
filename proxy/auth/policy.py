"""Users, groups and policies, in the terms of RocketMQ's ACL 2.0. Pure."""

import hmac
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Self

from protocol_negotiation.networks import IpAddress, Network, contains, parse_network
from proxy.auth.passwords import PasswordHash
from remoting.permissions import Action, ResourceKind
from remoting.signature import SecretKey

# The user of senders without a credential, where `auth.anonymous` is "allow".
ANONYMOUS_USER = "anonymous"
_ANY_NAME = "*"


class Role(StrEnum):
    """Role of a user. OPERATOR: may read everything about the cluster. SUPER: no policy restricts it."""

    NORMAL = "normal"
    OPERATOR = "operator"
    SUPER = "super"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of resources. `name` is a whole name, or the beginning of names if `prefixed` ("" for all names)."""

    kind: ResourceKind
    name: str
    prefixed: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `Topic:orders`, `Group:billing-*`, `Cluster:*` or `*`. Raises ValueError.

        Blanks count, as to brokers: no topic and no group has a name with one.
        """
        if text == _ANY_NAME:
            return cls(ResourceKind.ANY, "", prefixed=True)
        kind, colon, name = text.partition(":")
        kinds = {member.value.lower(): member for member in ResourceKind}
        if not colon or not name or kind.lower() not in kinds:
            raise ValueError(f"a resource is Topic:NAME, Group:NAME, Cluster:NAME or *, not {text[:80]!r}")
        if _ANY_NAME in name[:-1]:
            raise ValueError(f"a resource's name has * only at its end: {text[:80]!r}")
        if name.endswith(_ANY_NAME):
            return cls(kinds[kind.lower()], name[:-1], prefixed=True)
        return cls(kinds[kind.lower()], name)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY and self.prefixed and not self.name:
            return _ANY_NAME
        return f"{self.kind}:{self.name}{_ANY_NAME if self.prefixed else ''}"

    def covers(self, kind: ResourceKind, name: str) -> bool:
        """Return whether the pattern covers a resource. Only patterns for all names cover the empty name."""
        if self.kind is not ResourceKind.ANY and self.kind is not kind:
            return False
        return name.startswith(self.name) if self.prefixed else bool(name) and name == self.name

    @property
    def generality(self) -> tuple[bool, bool, int]:
        """A sort key: the most specific pattern first (literal names, long prefixes, short prefixes, any kind)."""
        return (self.kind is ResourceKind.ANY, self.prefixed, -len(self.name))


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule about resources.

    Attributes:
        actions: the actions that the rule is about; ANY stands for all.
        networks: source networks of the requests that the rule is about; () for all.
        fallback: whether the rule applies only if no other rule of the user does (ACL 2.0's default policies).
        origin: description of the rule's place, for `gantry acl explain` and logs.
    """

    pattern: Pattern
    actions: frozenset[Action]
    allow: bool
    networks: tuple[Network, ...] = ()
    fallback: bool = False
    origin: str = ""

    def applies(self, kind: ResourceKind, name: str, actions: Iterable[Action], address: IpAddress | None) -> bool:
        """Return whether the rule is about one of these actions on this resource, from this address."""
        return (
            self.pattern.covers(kind, name)
            and (Action.ANY in self.actions or not self.actions.isdisjoint(actions))
            and (not self.networks or contains(self.networks, address))
        )

    def __str__(self) -> str:
        verb = "allow" if self.allow else "deny"
        sources = f" from {', '.join(map(str, self.networks))}" if self.networks else ""
        return f"{verb} {format_actions(self.actions)} on {self.pattern}{sources}"


def parse_actions(texts: Iterable[str]) -> frozenset[Action]:
    """Return the actions of these names; `All`, `Any` and `*` stand for all. Raises ValueError."""
    names = {action.value.lower(): action for action in Action} | {"all": Action.ANY, "*": Action.ANY}
    actions = set()
    for text in texts:
        action = names.get(text.strip().lower())
        if action is None:
            known = ", ".join(action for action in Action if action is not Action.ANY)
            raise ValueError(f"unknown action {text[:40]!r}; actions are {known}, All")
        actions.add(action)
    if not actions:
        raise ValueError("a policy needs at least one action")
    return frozenset(actions)


def format_actions(actions: Iterable[Action]) -> str:
    """Return the actions' names, in the order of their definition."""
    present = set(actions)
    return ",".join(action.value for action in Action if action in present)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of these texts. Raises ValueError."""
    return tuple(map(parse_network, texts))


@lru_cache(10_000)
def parse_address(host: str) -> IpAddress | None:
    """Return a host as an address; None for Unix sockets."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user.

    Attributes:
        key: secret of the user's signatures; None if the user cannot sign.
        security_token: token that accompanies the user's signatures, of temporary credentials; None: any is ignored.
        password: hash of the password for the HTTP API; None if the secret of the signatures is the password.
        certificates: names in client certificates that stand for the user: `CN=…,O=…`, `dns:…`, `email:…`, `uri:…`,
            `ip:…`, `sha256:…`.
        expires: when the user is to be disabled, in seconds since 1970.
        exempt: sources whose requests in the user's name need no signature (ACL 1.0).
        proof: what a signature proves; it changes with the secret and the security token. "" if the user cannot sign.
    """

    name: str
    key: SecretKey | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    password: PasswordHash | None = field(default=None, repr=False)
    role: Role = Role.NORMAL
    groups: frozenset[str] = frozenset()
    enabled: bool = True
    expires: float = math.inf
    policies: tuple[Policy, ...] = ()
    certificates: tuple[str, ...] = ()
    exempt: "AddressPatterns | None" = None
    origin: str = ""
    proof: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        token = (self.security_token or "").encode()
        object.__setattr__(self, "proof", "" if self.key is None else self.key.digest(token).hex())

    def exempts(self, host: str) -> bool:
        """Return whether requests in the user's name need no signature from an address."""
        return self.enabled and self.exempt is not None and self.exempt.cover(host)

    def accepts_token(self, token: str) -> bool:
        """Return whether a signature with this security token ("" for none) may be the user's, in constant time."""
        expected = self.security_token
        return expected is None or hmac.compare_digest(token.encode("utf-8", "surrogatepass"), expected.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of users, each with its role and policies."""

    name: str
    role: Role = Role.NORMAL
    policies: tuple[Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressPatterns:
    """Addresses as ACL 1.0 writes them (`10.0.*.*`, `10.0.0.{1,2}`, `10.0.0.1-9`), as networks and octet sets."""

    networks: tuple[Network, ...] = ()
    octets: tuple[tuple[frozenset[int], ...], ...] = ()

    def cover(self, host: str) -> bool:
        """Return whether one of the patterns covers an address."""
        address = parse_address(host)
        if address is None:
            return False
        if contains(self.networks, address):
            return True
        if address.version != 4 or not self.octets:
            return False
        return any(
            all(octet in allowed for octet, allowed in zip(address.packed, pattern, strict=True))
            for pattern in self.octets
        )


_NO_USERS: Mapping[str, User] = MappingProxyType({})
_NO_GROUPS: Mapping[str, Group] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Directory:
    """All users and groups of a source.

    exempt: sources whose requests need no credential (ACL 1.0). next_expiry: when the next user expires and is to be
    disabled, in seconds since 1970.
    """

    users: Mapping[str, User] = field(default_factory=lambda: _NO_USERS)
    groups: Mapping[str, Group] = field(default_factory=lambda: _NO_GROUPS)
    exempt: AddressPatterns | None = None
    next_expiry: float = math.inf

    def at(self, now: float) -> "Directory":
        """Return the directory at a time, in seconds since 1970: expired users are disabled."""
        users = {
            name: replace(user, enabled=False) if user.expires <= now else user for name, user in self.users.items()
        }
        next_expiry = min((user.expires for user in users.values() if user.expires > now), default=math.inf)
        return replace(self, users=users, next_expiry=next_expiry)


@dataclass(frozen=True, slots=True)
class Grants:
    """The role and all policies of a principal."""

    role: Role
    policies: tuple[Policy, ...]
