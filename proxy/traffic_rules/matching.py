"""Matching of requests and connections against a rule's criteria. Pure."""

import re
from collections.abc import Callable, Hashable, Iterable
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Protocol

from proxy.traffic_rules.match_criteria import Match, Network

# Characters of a client-chosen name in counts, logs and error texts. Clients may send names of any length.
MAX_NAME_LENGTH = 255


class Attributes(Protocol):
    """Attributes of a request or connection that rules read. None or empty: not known.

    Attributes:
        topics, groups: the names in the request, usually one.
        address: client address without the port.
        server_name: the SNI of a TLS client.
        certificate: distinguished name of the client certificate.
        connection: number of the connection.
        messages, size: number of messages in a send and their bytes; of a receive, not known before its reply.
    """

    @property
    def code(self) -> int: ...
    @property
    def protocol(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def server_name(self) -> str | None: ...
    @property
    def certificate(self) -> str | None: ...
    @property
    def address(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def language(self) -> str | None: ...
    @property
    def version(self) -> str | None: ...
    @property
    def topics(self) -> tuple[str, ...]: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def connection(self) -> Hashable: ...
    @property
    def messages(self) -> int: ...
    @property
    def size(self) -> int: ...


_Predicate = Callable[[Attributes], bool]


def matcher(match: Match) -> _Predicate:
    """Return a predicate that tests the criteria; the cheap ones first."""
    tests = [make(value) for key, (_, make) in _TESTS.items() if (value := getattr(match, key))]
    if not tests:
        return _always
    if len(tests) == 1:
        return tests[0]
    return lambda request: all(test(request) for test in tests)


def matched_attributes(match: Match) -> set[str]:
    """Return the names of the attributes that the criteria read. Requests that are equal in these match alike."""
    return {attribute for key, (attribute, _) in _TESTS.items() if getattr(match, key)}


def _always(_: Attributes) -> bool:
    return True


def _globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    patterns = tuple(patterns)
    if not any(character in pattern for pattern in patterns for character in "*?["):
        return frozenset(patterns).__contains__
    compiled = re.compile("|".join(map(translate, patterns)))
    return lambda text: compiled.match(text) is not None


def _text(read: Callable[[Attributes], str | None]) -> Callable[[tuple[str, ...]], _Predicate]:
    """Return a factory of tests of one attribute, which must be known."""

    def make(patterns: tuple[str, ...]) -> _Predicate:
        matches = _globs(patterns)

        def test(request: Attributes) -> bool:
            text = read(request)
            return text is not None and matches(text)

        return test

    return make


def _any_text(read: Callable[[Attributes], tuple[str, ...]]) -> Callable[[tuple[str, ...]], _Predicate]:
    """Return a factory of tests of an attribute with several values, one of which must match."""

    def make(patterns: tuple[str, ...]) -> _Predicate:
        matches = _globs(patterns)
        return lambda request: any(map(matches, read(request)))

    return make


def _language(patterns: tuple[str, ...]) -> _Predicate:
    matches = _globs(pattern.upper() for pattern in patterns)
    return lambda request: request.language is not None and matches(request.language.upper())


@lru_cache(10_000)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(address)
    except ValueError:
        # The peer of a Unix socket.
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _networks(networks: tuple[Network, ...]) -> _Predicate:
    def test(request: Attributes) -> bool:
        ip = _parsed(request.address)
        return ip is not None and any(ip in network for network in networks)

    return test


@lru_cache(10_000)
def _numbers(version: str) -> tuple[int, ...]:
    """Return the version's first three numbers; () if it has none."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", version)[:3]]
    return tuple(numbers + [0] * (3 - len(numbers))) if numbers else ()


def _version(compare: Callable[[tuple[int, ...], tuple[int, ...]], bool]) -> Callable[[str], _Predicate]:
    def make(bound: str) -> _Predicate:
        limit = _numbers(bound)

        def test(request: Attributes) -> bool:
            numbers = _numbers(request.version or "")
            return bool(numbers) and compare(numbers, limit)

        return test

    return make


# By criterion: the attribute that it reads, and a factory of its test.
_TESTS: dict[str, tuple[str, Callable[[Any], _Predicate]]] = {
    "protocols": ("protocol", _text(lambda request: request.protocol)),
    "listeners": ("listener", _text(lambda request: request.listener)),
    "topics": ("topics", _any_text(lambda request: request.topics)),
    "groups": ("groups", _any_text(lambda request: request.groups)),
    "clients": ("client_id", _text(lambda request: request.client_id)),
    "users": ("user", _text(lambda request: request.user)),
    "networks": ("address", _networks),
    "server_names": ("server_name", _text(lambda request: request.server_name)),
    "subjects": ("certificate", _text(lambda request: request.certificate)),
    "languages": ("language", _language),
    "version_from": ("version", _version(lambda numbers, bound: numbers >= bound)),
    "version_below": ("version", _version(lambda numbers, bound: numbers < bound)),
}
