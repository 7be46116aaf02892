"""ACL 1.0: the file `plain_acl.yml` of brokers, read as it is (PlainPermissionManager)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from protocol_negotiation.networks import Network, parse_network
from proxy.auth.policy import AddressPatterns, Directory, Pattern, Policy, Role, User
from remoting.names import RETRY_PREFIX
from remoting.permissions import Action, ResourceKind
from remoting.signature import SecretKey

PATTERNS = ("*.yml", "*.yaml")

_ACTIONS = {
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
    "ANY": frozenset({Action.PUB, Action.SUB}),
}
_DENY = "DENY"
_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})")
_ALL_OCTETS = frozenset(range(256))


def parse(texts: list[tuple[str, str]]) -> Directory:
    """Return the directory of the files, given by name and text. Raises ValueError that names file and key."""
    users: dict[str, User] = {}
    exempt: list[str] = []
    for file, text in texts:
        try:
            content = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f", line {mark.line + 1}"
            raise ValueError(f"{file}{line}: not valid YAML") from None
        except Exception:
            # PyYAML's errors about values with a tag or of a date are of many kinds, and have the value in their text.
            raise ValueError(f"{file}: a value does not fit its tag, or is no valid date") from None
        if content is None:
            continue
        if not isinstance(content, Mapping):
            raise ValueError(f"{file}: needs the keys accounts and globalWhiteRemoteAddresses")
        exempt += _list(file, content, "globalWhiteRemoteAddresses")
        for number, account in enumerate(_list(file, content, "accounts"), 1):
            user = _user(f"{file}: account {number}", account)
            users[user.name] = user
    try:
        return Directory(users, exempt=parse_addresses(map(str, exempt)) if exempt else None)
    except ValueError as error:
        raise ValueError(f"globalWhiteRemoteAddresses: {error}") from None


def _list(place: str, content: Mapping[Any, Any], key: str) -> list[Any]:
    items = content.get(key) or []
    if not isinstance(items, list):
        raise ValueError(f"{place}: {key} is not a list")
    return items


def _user(place: str, account: Any) -> User:
    if not isinstance(account, Mapping):
        raise ValueError(f"{place} is not a map")
    name, secret = account.get("accessKey"), account.get("secretKey")
    # YAML reads a key of digits as a number.
    if name is None or secret is None or len(str(name)) < 6 or len(str(secret)) < 6:
        raise ValueError(f"{place}: accessKey and secretKey need at least 6 characters")
    place = f"{place} ({name})"
    addresses = account.get("whiteRemoteAddress")
    try:
        policies = [
            *_fallback(ResourceKind.TOPIC, account.get("defaultTopicPerm"), place),
            *_fallback(ResourceKind.GROUP, account.get("defaultGroupPerm"), place),
            *_entries(ResourceKind.TOPIC, _list(place, account, "topicPerms"), place),
            *_entries(ResourceKind.GROUP, _list(place, account, "groupPerms"), place),
        ]
        exempt = parse_addresses([str(addresses)]) if addresses else None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    return User(
        name=str(name),
        key=SecretKey(str(secret)),
        role=Role.SUPER if str(account.get("admin", False)).lower() == "true" else Role.NORMAL,
        policies=tuple(policies),
        exempt=exempt,
        origin=place,
    )


def _fallback(kind: ResourceKind, permission: object, origin: str) -> Iterable[Policy]:
    """Yield the policy for all names without one of their own."""
    if permission is not None:
        yield _policy(Pattern(kind, "", prefixed=True), str(permission), f"{origin}, default permission", fallback=True)


def _entries(kind: ResourceKind, entries: list[Any], origin: str) -> Iterable[Policy]:
    for entry in entries:
        name, equals, permission = str(entry).rpartition("=")
        if not equals or not name.strip():
            raise ValueError(f"a permission is NAME=PERMISSION, not {str(entry)[:80]!r}")
        name = name.strip()
        if kind is ResourceKind.GROUP:
            name = name.removeprefix(RETRY_PREFIX)
        yield _policy(Pattern(kind, name), permission, origin)


def _policy(pattern: Pattern, permission: str, origin: str, *, fallback: bool = False) -> Policy:
    text = permission.strip().upper().replace(" ", "")
    if text == _DENY:
        return Policy(pattern, frozenset({Action.ANY}), allow=False, fallback=fallback, origin=origin)
    if text not in _ACTIONS:
        raise ValueError(f"a permission is DENY, PUB, SUB or PUB|SUB, not {permission[:40]!r}")
    return Policy(pattern, _ACTIONS[text], allow=True, fallback=fallback, origin=origin)


# Addresses, as RemoteAddressStrategyFactory reads them.


def parse_addresses(texts: Iterable[str]) -> AddressPatterns:
    """Return the patterns of white lists: `*`, `10.0.*.*`, `10.0.0.{1,2}`, `10.0.0.1-9`, lists. Raises ValueError."""
    networks: list[Network] = []
    octets: list[tuple[frozenset[int], ...]] = []
    for text in texts:
        for address in _split(text):
            if address == "*":
                networks += (parse_network("0.0.0.0/0"), parse_network("::/0"))
            elif address.replace(".", "").isdigit() or ":" in address or "/" in address:
                networks.append(parse_network(address))
            else:
                octets.append(_octets(address))
    return AddressPatterns(tuple(networks), tuple(octets))


def _split(text: str) -> Iterable[str]:
    """Yield the addresses of a list; commas in braces belong to an address."""
    return filter(None, (part.strip() for part in re.split(r"[,;](?![^{]*\})", text)))


def _octets(text: str) -> tuple[frozenset[int], ...]:
    parts = re.split(r"\.(?![^{]*\})", text)
    if len(parts) != 4:
        raise ValueError(f"not an address pattern: {text[:80]!r}")
    return tuple(_octet(part, text) for part in parts)


def _octet(part: str, text: str) -> frozenset[int]:
    if part == "*":
        return _ALL_OCTETS
    numbers: set[int] = set()
    for item in part.strip("{}").split(","):
        bounds = _RANGE.fullmatch(item.strip())
        if bounds is not None:
            numbers.update(range(int(bounds[1]), int(bounds[2]) + 1))
        elif item.strip().isdigit():
            numbers.add(int(item))
        else:
            raise ValueError(f"not an address pattern: {text[:80]!r}")
    return frozenset(numbers) & _ALL_OCTETS
