"""Users and ACLs as brokers return them, read entry by entry.

Brokers accept ACLs that their tools do not write, such as for the resources `Topic:` and `Unknown:foo`. One of them
must not keep the changes of all others from being read.
"""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus
from remoting.errors import BodyError

_log = logging.getLogger("gantry.auth")

_ALLOW = Decision.ALLOW.lower()
_TYPES = {kind.lower(): kind for kind in PolicyType}


class Acls(NamedTuple):
    """The readable part of all ACLs. denied: users with an entry that may deny something and is not readable."""

    infos: list[AclInfo]
    denied: frozenset[str]


def read_users(body: bytes) -> list[UserInfo]:
    """Return the users; those that are not readable are disabled. Raises BodyError if the body is no list."""
    users = []
    for item in _list(body):
        try:
            users.append(UserInfo.of(item))
        except BodyError as error:
            name = item.get("username") if isinstance(item, dict) else None
            _log.warning("a user of the brokers is disabled, because it is not readable: %s", error)
            if isinstance(name, str):
                users.append(UserInfo(name, user_status=UserStatus.DISABLE))
    return users


def read_acls(body: bytes) -> Acls:
    """Return the ACLs without their unreadable entries. Raises BodyError if the body is no list."""
    infos: list[AclInfo] = []
    denied: set[str] = set()
    for item in _list(body):
        subject = item.get("subject") if isinstance(item, dict) else None
        if not isinstance(subject, str):
            _log.warning("an ACL of the brokers is ignored, because it has no subject")
            continue
        policies: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
        info = AclInfo(subject, policies)
        try:
            for kind, entry in _entries(item):
                readable = _readable(subject, entry)
                if readable is not None:
                    policies[kind] = (*policies.get(kind, ()), readable)
        except BodyError as error:
            _log.warning("%s is disabled, because an entry of its ACL is not readable: %s", subject, error)
            if info.username is not None:
                denied.add(info.username)
        infos.append(info)
    return Acls(infos, frozenset(denied))


def _entries(acl: dict[str, Any]) -> Iterator[tuple[PolicyType, object]]:
    """Yield all entries with the type of their policies. Raises BodyError."""
    policies = acl.get("policies") or []
    if not isinstance(policies, list):
        raise BodyError("its policies are not a list")
    for policy in policies:
        entries = policy.get("entries") or [] if isinstance(policy, dict) else None
        if not isinstance(entries, list):
            raise BodyError("the entries of a policy are not a list")
        kind = _TYPES.get(str(policy.get("policyType")).lower(), PolicyType.CUSTOM)
        for entry in entries:
            yield kind, entry


def _readable(subject: str, entry: object) -> PolicyEntry | None:
    """Return an entry; None for one that permits something and is not readable. Raises BodyError for another."""
    try:
        return PolicyEntry.of(entry)
    except BodyError as error:
        if not isinstance(entry, dict) or str(entry.get("decision")).lower() != _ALLOW:
            raise
        _log.warning("an entry of the ACL of %s permits nothing, because it is not readable: %s", subject, error)
        return None


def _list(body: bytes) -> list[Any]:
    """Parse a list; brokers write an empty one as no body."""
    try:
        items = orjson.loads(body) if body else []
    except orjson.JSONDecodeError as error:
        raise BodyError(f"a body with users or ACLs is not JSON: {error.msg}") from None
    if not isinstance(items, list):
        raise BodyError("users or ACLs are not a list")
    return items
