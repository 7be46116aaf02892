"""Which requests a rule is about: what rules look at of a request, and the tests that a `match` is made of. Pure."""

import re
from collections.abc import Callable, Hashable, Iterable
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Protocol

from proxy.traffic_rules.model import Match, Network

# Characters by which names that clients make up are told apart, in counts, and said again: they may be of any length.
LONGEST = 255


class Attributes(Protocol):
    """A request, as far as rules look at it. None, or empty: it is not known.

    topics, groups: those that it names, mostly one. address: the client's, without the port. server_name: the SNI.
    certificate: the distinguished name. connection: what tells connections apart. messages, size: messages it brings,
    and bytes of their bodies; of a receive they are not known before the answer.
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
    """Whether a request is one that the rule is about; what is quickly looked at comes first."""
    tests = [make(value) for key, (_, make) in _TESTS.items() if (value := getattr(match, key))]
    if not tests:
        return _always
    if len(tests) == 1:
        return tests[0]
    return lambda subject: all(test(subject) for test in tests)


def aspects(match: Match) -> set[str]:
    """The attributes of a subject that the match goes by: what is equal in these, it is about alike."""
    return {aspect for key, (aspect, _) in _TESTS.items() if getattr(match, key)}


def _always(_: Attributes) -> bool:
    return True


def _globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    patterns = tuple(patterns)
    if not any(character in pattern for pattern in patterns for character in "*?["):
        return frozenset(patterns).__contains__
    compiled = re.compile("|".join(map(translate, patterns)))
    return lambda text: compiled.match(text) is not None


def _one(read: Callable[[Attributes], str | None]) -> Callable[[tuple[str, ...]], _Predicate]:
    """A test of one text."""

    def make(patterns: tuple[str, ...]) -> _Predicate:
        fits = _globs(patterns)

        def test(subject: Attributes) -> bool:
            text = read(subject)
            return text is not None and fits(text)

        return test

    return make


def _any(read: Callable[[Attributes], tuple[str, ...]]) -> Callable[[tuple[str, ...]], _Predicate]:
    """A test of several texts, one of which is enough."""

    def make(patterns: tuple[str, ...]) -> _Predicate:
        fits = _globs(patterns)
        return lambda subject: any(map(fits, read(subject)))

    return make


def _language(patterns: tuple[str, ...]) -> _Predicate:
    fits = _globs(pattern.upper() for pattern in patterns)
    return lambda subject: subject.language is not None and fits(subject.language.upper())


@lru_cache(10_000)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(address)
    except ValueError:
        # A Unix socket's peer.
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _networks(networks: tuple[Network, ...]) -> _Predicate:
    def test(subject: Attributes) -> bool:
        ip = _parsed(subject.address)
        return ip is not None and any(ip in network for network in networks)

    return test


@lru_cache(10_000)
def _numbers(version: str) -> tuple[int, ...]:
    """The version's first three numbers; () where it has none."""
    found = [int(number) for number in re.findall(r"\d{1,9}", version)[:3]]
    return tuple(found + [0] * (3 - len(found))) if found else ()


def _version(fits: Callable[[tuple[int, ...], tuple[int, ...]], bool]) -> Callable[[str], _Predicate]:
    def make(bound: str) -> _Predicate:
        limit = _numbers(bound)

        def test(subject: Attributes) -> bool:
            numbers = _numbers(subject.version or "")
            return bool(numbers) and fits(numbers, limit)

        return test

    return make


# By key of a match: what of the subject is looked at, and the test.
_TESTS: dict[str, tuple[str, Callable[[Any], _Predicate]]] = {
    "protocols": ("protocol", _one(lambda subject: subject.protocol)),
    "listeners": ("listener", _one(lambda subject: subject.listener)),
    "topics": ("topics", _any(lambda subject: subject.topics)),
    "groups": ("groups", _any(lambda subject: subject.groups)),
    "clients": ("client_id", _one(lambda subject: subject.client_id)),
    "networks": ("address", _networks),
    "server_names": ("server_name", _one(lambda subject: subject.server_name)),
    "subjects": ("certificate", _one(lambda subject: subject.certificate)),
    "languages": ("language", _language),
    "version_from": ("version", _version(lambda numbers, bound: numbers >= bound)),
    "version_below": ("version", _version(lambda numbers, bound: numbers < bound)),
}
