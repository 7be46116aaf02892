"""Users and ACLs of ACL 2.0 as requests and responses carry them (RocketMQ's UserInfo and AclInfo).

Passwords are plain text: brokers keep them so, because they compute signatures from them, and return them to everyone
who may read the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from remoting.errors import BodyError

# Resources and actions; a resource is `*`, or a kind with a name that may end with `*`.
_KINDS = ("Any", "Cluster", "Namespace", "Topic", "Group")
_ACTIONS = ("All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
USER_PREFIX = "User:"
_Member = TypeVar("_Member", bound=StrEnum)


class UserType(StrEnum):
    """Type of a user. SUPER: no ACL restricts it."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Status of a user."""

    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(StrEnum):
    """Type of a policy. DEFAULT: applies only if no entry of the custom policy does."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(StrEnum):
    """Decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user. In requests, None and an empty password stand for a value that is not to be changed."""

    username: str
    password: str = field(default="", repr=False)
    user_type: UserType | None = None
    user_status: UserStatus | None = None

    @classmethod
    def parse(cls, body: bytes) -> "UserInfo":
        """Parse a UserInfo. Raises BodyError."""
        return cls.of(_loads(body))

    @classmethod
    def of(cls, data: object) -> "UserInfo":
        """Return the user of a JSON object. Raises BodyError."""
        values = _object(data)
        return cls(
            _text(values, "username"),
            _text(values, "password"),
            _member(UserType, values, "userType"),
            _member(UserStatus, values, "userStatus"),
        )

    def to_json(self) -> dict[str, str]:
        """Return the JSON object."""
        data = {"username": self.username, "password": self.password}
        if self.user_type is not None:
            data["userType"] = self.user_type
        if self.user_status is not None:
            data["userStatus"] = self.user_status
        return data


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """The decision about some actions on a resource, for requests from some sources (none: from all)."""

    resource: str
    actions: tuple[str, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: object) -> "PolicyEntry":
        """Return the entry of a JSON object. Raises BodyError."""
        values = _object(data)
        decision = _member(Decision, values, "decision")
        if decision is None:
            raise BodyError("The decision is null or illegal.")
        actions = tuple(
            name
            for item in _list(values.get("actions") or [])
            for name in _ACTIONS
            if name.lower() == str(item).lower()
        )
        ips = tuple(map(str, _list(values.get("sourceIps") or [])))
        return cls(normalized_resource(_text(values, "resource")), actions, decision, ips)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        data: dict[str, Any] = {
            "resource": self.resource,
            "actions": list(self.actions),
            "decision": self.decision,
        }
        if self.source_ips:
            data["sourceIps"] = list(self.source_ips)
        return data


@dataclass(frozen=True, slots=True)
class AclInfo:
    """The policies of a subject, such as `User:alice`; each has at most one entry for a resource."""

    subject: str
    policies: Mapping[PolicyType, tuple[PolicyEntry, ...]]

    @classmethod
    def parse(cls, body: bytes) -> "AclInfo":
        """Parse an AclInfo. Raises BodyError."""
        return cls._of(_loads(body))

    @classmethod
    def _of(cls, data: object) -> "AclInfo":
        values = _object(data)
        policies: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
        for item in _list(values.get("policies") or []):
            policy = _object(item)
            kind = _member(PolicyType, policy, "policyType") or PolicyType.CUSTOM
            entries = tuple(map(PolicyEntry.of, _list(policy.get("entries") or [])))
            if entries:
                policies[kind] = policies.get(kind, ()) + entries
        return cls(_text(values, "subject"), policies)

    @property
    def username(self) -> str | None:
        """The user's name; None for another kind of subject."""
        return self.subject[len(USER_PREFIX) :] if self.subject.startswith(USER_PREFIX) else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "subject": self.subject,
            "policies": [
                {"policyType": kind, "entries": [entry.to_json() for entry in entries]}
                for kind, entries in self.policies.items()
            ],
        }


def encode(data: object) -> bytes:
    """Return the body of a JSON object or list."""
    return orjson.dumps(data)


def normalized_resource(text: str) -> str:
    """Return a resource with the kind's usual spelling, without the text after a `*`. Raises BodyError."""
    if text == "*":
        return text
    kind, colon, name = text.partition(":")
    spelling = next((item for item in _KINDS if item.lower() == kind.lower()), None)
    if spelling is None or not colon or not name:
        raise BodyError("The resource is null.")
    if name.endswith("*"):
        name = name[: name.index("*") + 1]
    return f"{spelling}:{name}"


def _loads(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BodyError(f"a body with users or ACLs is not JSON: {error.msg}") from None


def _object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BodyError("a user, ACL or policy is not an object")
    return data


def _list(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise BodyError("users, ACLs, policies, actions or source IPs are not a list")
    return data


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BodyError(f"the {key} is not a text")
    return value


def _member(kind: type[_Member], values: dict[str, Any], key: str) -> _Member | None:
    text = _text(values, key).lower()
    return next((member for member in kind if member.value.lower() == text), None)
