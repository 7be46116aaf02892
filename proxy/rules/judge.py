"""What rules say of a request. Pure: time and chance come in from outside, and nothing is done here.

A replica judges the requests that it gets (`rules`); analytics judges those that it has records of:

    judge = Judge(parse(text))
    verdict = judge.judge(Record(code=RequestCode.SEND_MESSAGE_V2, topics=("orders",), messages=1), at)

with records in the order of their time. `would_hit` says which rules a single request comes within.
"""

import random
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from proxy.rules.buckets import Buckets, TokenBucket
from proxy.rules.model import (
    RECEIVES,
    Allow,
    Connections,
    Deny,
    Fault,
    Limit,
    Maintenance,
    Match,
    Mirror,
    Network,
    RuleFile,
)
from remoting.codes import RequestCode

# Characters by which names that clients make up are told apart, in counts, and said again: they may be of any length.
_LONGEST = 255
# The requests behind the rpcs that rules are about; what stands in a traffic record is the rpc's name.
RPCS: Mapping[str, RequestCode] = {
    "SendMessage": RequestCode.SEND_MESSAGE_V2,
    "ReceiveMessage": RequestCode.POP_MESSAGE,
    "AckMessage": RequestCode.ACK_MESSAGE,
    "ChangeInvisibleDuration": RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    "ForwardMessageToDeadLetterQueue": RequestCode.CONSUMER_SEND_MSG_BACK,
    "EndTransaction": RequestCode.END_TRANSACTION,
    "RecallMessage": RequestCode.RECALL_MESSAGE,
    "PullMessage": RequestCode.PULL_MESSAGE,
    "UpdateOffset": RequestCode.UPDATE_CONSUMER_OFFSET,
    "GetOffset": RequestCode.QUERY_CONSUMER_OFFSET,
    "SyncLiteSubscription": RequestCode.LITE_SUBSCRIPTION_CTL,
    "Heartbeat": RequestCode.HEART_BEAT,
    "NotifyClientTermination": RequestCode.UNREGISTER_CLIENT,
}


class Subject(Protocol):
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


@dataclass(frozen=True, slots=True)
class Record:
    """A request of which this is known: a `Subject` made of a traffic record."""

    code: int
    protocol: str = "remoting"
    listener: str = ""
    server_name: str | None = None
    certificate: str | None = None
    address: str = ""
    client_id: str | None = None
    language: str | None = None
    version: str | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    connection: Hashable = None
    messages: int = 0
    size: int = 0


# Matching.

_Predicate = Callable[[Subject], bool]


def matcher(match: Match) -> _Predicate:
    """Whether a request is one that the rule is about; what is quickly looked at comes first."""
    tests = [make(value) for key, make in _TESTS.items() if (value := getattr(match, key))]
    if not tests:
        return _always
    if len(tests) == 1:
        return tests[0]
    return lambda subject: all(test(subject) for test in tests)


def _always(_: Subject) -> bool:
    return True


def _globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    patterns = tuple(patterns)
    if not any(character in pattern for pattern in patterns for character in "*?["):
        return frozenset(patterns).__contains__
    compiled = re.compile("|".join(map(translate, patterns)))
    return lambda text: compiled.match(text) is not None


def _one(read: Callable[[Subject], str | None]) -> Callable[[tuple[str, ...]], _Predicate]:
    """A test of one text."""

    def make(patterns: tuple[str, ...]) -> _Predicate:
        fits = _globs(patterns)

        def test(subject: Subject) -> bool:
            text = read(subject)
            return text is not None and fits(text)

        return test

    return make


def _any(read: Callable[[Subject], tuple[str, ...]]) -> Callable[[tuple[str, ...]], _Predicate]:
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
    def test(subject: Subject) -> bool:
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

        def test(subject: Subject) -> bool:
            numbers = _numbers(subject.version or "")
            return bool(numbers) and fits(numbers, limit)

        return test

    return make


_TESTS: dict[str, Callable[[Any], _Predicate]] = {
    "protocols": _one(lambda subject: subject.protocol),
    "listeners": _one(lambda subject: subject.listener),
    "topics": _any(lambda subject: subject.topics),
    "groups": _any(lambda subject: subject.groups),
    "clients": _one(lambda subject: subject.client_id),
    "networks": _networks,
    "server_names": _one(lambda subject: subject.server_name),
    "subjects": _one(lambda subject: subject.certificate),
    "languages": _language,
    "version_from": _version(lambda numbers, bound: numbers >= bound),
    "version_below": _version(lambda numbers, bound: numbers < bound),
}


# What comes of it.


class Refusal(NamedTuple):
    """The request is not served: by which rule, and what the client is told. code: a fault's response code."""

    kind: Literal["deny", "limit", "maintenance", "fault"]
    rule: str
    text: str
    code: int = 0


# What a request takes: of which unit, from which bucket, how much.
Spending = list[tuple[str, TokenBucket, float]]


class Verdict:
    """What the rules say of one request.

    wait: seconds until it may be served, or refused by a fault. waits_for: the limit that it waits for. mirrors: where
    copies of its messages go.
    """

    __slots__ = ("_metered", "_taken", "allowed", "mirrors", "refusal", "wait", "waits_for")

    def __init__(self) -> None:
        self.refusal: Refusal | None = None
        self.wait = 0.0
        self.waits_for = ""
        self.allowed = False
        self.mirrors: list[Active[Mirror]] = []
        self._taken: Spending = []
        self._metered: list[tuple[ActiveLimit, Hashable]] = []

    @property
    def metered(self) -> bool:
        """Whether the answer's messages are to be told to `answered`."""
        return bool(self._metered)

    def served(self, now: float) -> None:
        """The request is served now, so it counts. To be told only of one that waited for a limit."""
        taken, self._taken = self._taken, []
        for _, bucket, amount in taken:
            bucket.take(amount, now)

    def answered(self, messages: int, size: int, now: float) -> None:
        """The answer to a receive brought so many messages, and bytes of them."""
        for limit, key in self._metered:
            limit.take(key, {"messages": messages, "bytes": size}, now)

    # For rules.

    def take(self, spending: "Spending") -> None:
        self._taken += spending

    def meter(self, limit: "ActiveLimit", key: Hashable) -> None:
        self._metered.append((limit, key))

    def conclude(self, now: float) -> None:
        """All rules have been asked."""
        if self.refusal is not None:
            self._taken.clear()
            self._metered.clear()
            self.mirrors.clear()
        elif not self.waits_for:
            self.served(now)


class Counts:
    """What became of a rule: requests (or connections) that it was about, and of these, done or only counted."""

    __slots__ = ("dry_run", "enforced", "matched")

    def __init__(self) -> None:
        self.matched = 0
        self.enforced = 0
        self.dry_run = 0


_R = TypeVar("_R", bound=Any)


class Active(Generic[_R]):
    """A rule in force. `chance` gives numbers from 0 up to, not including, 100."""

    def __init__(self, rule: _R, dry: bool, chance: Callable[[], float]) -> None:
        self.rule = rule
        self.dry = dry or rule.dry_run
        self.chance = chance
        self.counts = Counts()
        self.matches = matcher(rule.match)

    @property
    def name(self) -> str:
        name: str = self.rule.name
        return name

    def hit(self) -> bool:
        """The rule would do something: counts it, and says whether it shall."""
        if self.dry:
            self.counts.dry_run += 1
        else:
            self.counts.enforced += 1
        return not self.dry

    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        """Say what the rule does to a request that it is about."""
        raise NotImplementedError

    def inherit(self, former: "Active[Any]") -> None:
        """Take over what the rule of this name and kind has counted."""
        self.counts = former.counts


class ActiveAllow(Active[Allow]):
    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        if not verdict.allowed and self.hit():
            verdict.allowed = True


class ActiveDeny(Active[Deny]):
    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        if not verdict.allowed and self.hit():
            verdict.refusal = Refusal("deny", self.name, f"{_what(subject)} is not permitted (rule {self.name})")


class ActiveMaintenance(Active[Maintenance]):
    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        if self.hit():
            text = f"{_what(subject)}: {self.rule.message} (rule {self.name})"
            verdict.refusal = Refusal("maintenance", self.name, text)


class ActiveMirror(Active[Mirror]):
    """Whether a copy is sent, and counted so, is seen once the message is stored."""

    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        if self.rule.percent == 100 or self.chance() < self.rule.percent:
            if self.dry:
                self.hit()
            else:
                verdict.mirrors.append(self)


class ActiveFault(Active[Fault]):
    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        rule = self.rule
        if (rule.percent < 100 and self.chance() >= rule.percent) or not self.hit():
            return
        verdict.wait = max(verdict.wait, rule.delay)
        if rule.error is not None:
            verdict.refusal = Refusal("fault", self.name, f"injected fault (rule {self.name})", rule.error)


class ActiveLimit(Active[Limit]):
    """Sends are paid for in advance, receives afterwards: what they bring is not known before."""

    def __init__(self, rule: Limit, dry: bool, chance: Callable[[], float]) -> None:
        super().__init__(rule, dry, chance)
        rates = {"messages": rule.messages, "bytes": rule.bytes, "requests": rule.requests}
        self._buckets = {unit: Buckets(rate, rule.burst) for unit, rate in rates.items() if rate is not None}
        self._key = _key(rule.per)

    def inherit(self, former: Active[Any]) -> None:
        super().inherit(former)
        if isinstance(former, ActiveLimit) and former.rule.model_copy(update={"match": None}) == self.rule.model_copy(
            update={"match": None}
        ):
            # Changing who it is about, or another rule, forgives nobody.
            self._buckets = former._buckets

    def apply(self, subject: Subject, verdict: Verdict, now: float) -> None:
        key = self._key(subject)
        if subject.code in RECEIVES:
            self._receive(key, verdict, now)
        else:
            self._send(subject, key, verdict, now)

    def _send(self, subject: Subject, key: Hashable, verdict: Verdict, now: float) -> None:
        spending = [(unit, buckets.get(key, now), _AMOUNTS[unit](subject)) for unit, buckets in self._buckets.items()]
        unit, wait = _longest(spending, now)
        if wait > 0:
            if self.hit():
                text = f"{self._limit(unit)} of {self._whose(subject)} is used up, try again in {wait:.3f} s"
                verdict.refusal = Refusal("limit", self.name, f"{text} (rule {self.name})")
        elif self.dry:
            # A limit that is tried out fills up as one in force would.
            for _, bucket, amount in spending:
                bucket.take(amount, now)
        else:
            verdict.take(spending)

    def _receive(self, key: Hashable, verdict: Verdict, now: float) -> None:
        # Until what was received before is paid for, and there is something for this one.
        # What a receive needs at least, to be worth its while, is one of each.
        least = [(unit, buckets.get(key, now), 1.0) for unit, buckets in self._buckets.items()]
        _, wait = _longest(least, now)
        if wait > 0 and self.hit() and wait > verdict.wait:
            verdict.wait, verdict.waits_for = wait, self.name
        if not wait or not self.dry:
            verdict.take([spent for spent in least if spent[0] == "requests"])
        if not wait or not self.dry:
            verdict.meter(self, key)

    def take(self, key: Hashable, amounts: Mapping[str, float], now: float) -> None:
        for unit, amount in amounts.items():
            buckets = self._buckets.get(unit)
            if buckets is not None and amount:
                buckets.get(key, now).take(amount, now)

    def _limit(self, unit: str) -> str:
        return f"the limit of {getattr(self.rule, unit):g} {unit}/s"

    def _whose(self, subject: Subject) -> str:
        """Who shares the count, in words."""
        return " and ".join(f"{name} {_KEYS[name](subject)}" for name in self.rule.per) or "all together"


def _longest(spending: Spending, now: float) -> tuple[str, float]:
    """The unit that is waited for longest, and how long: 0 where there is enough of all."""
    longest, most = "", 0.0
    for unit, bucket, amount in spending:
        wait = bucket.wait(amount, now)
        if wait > most:
            longest, most = unit, wait
    return longest, most


def _key(per: tuple[str, ...]) -> Callable[[Subject], Hashable]:
    """What tells those apart that have a count of their own."""
    if len(per) == 1:
        return _KEYS[per[0]]
    reads = tuple(_KEYS[name] for name in per)
    return lambda subject: tuple(read(subject) for read in reads)


def _first(names: tuple[str, ...]) -> str:
    return names[0][:_LONGEST] if names else ""


_KEYS: dict[str, Callable[[Subject], Hashable]] = {
    # Who has not said yet who it is, is known by where it is.
    "client": lambda subject: (subject.client_id or subject.address)[:_LONGEST],
    "group": lambda subject: _first(subject.groups),
    "topic": lambda subject: _first(subject.topics),
    "address": lambda subject: subject.address,
    "connection": lambda subject: subject.connection,
}
_AMOUNTS: dict[str, Callable[[Subject], float]] = {
    "messages": lambda subject: subject.messages,
    "bytes": lambda subject: subject.size,
    "requests": lambda _: 1,
}


def _what(subject: Subject) -> str:
    """What the request is about, in words."""
    for kind, names in (("topic", subject.topics), ("group", subject.groups)):
        if names:
            return f"{kind} {_first(names)}"
    return "the request"


_ACTIVE: dict[type[Any], type[Active[Any]]] = {
    Allow: ActiveAllow,
    Deny: ActiveDeny,
    Limit: ActiveLimit,
    Maintenance: ActiveMaintenance,
    Mirror: ActiveMirror,
    Fault: ActiveFault,
}


class Judge:
    """The rules of a file about requests, in force.

    former: the judge of the file before; a rule of the same name and kind goes on counting, and a limit that was not
    changed forgives nobody.
    """

    def __init__(
        self, file: RuleFile, former: "Judge | None" = None, chance: Callable[[], float] | None = None
    ) -> None:
        chance = (lambda: random.random() * 100) if chance is None else chance
        known = {} if former is None else {(active.name, active.rule.kind): active for active in former.rules}
        self.rules: list[Active[Any]] = []
        by_code: dict[int, list[Active[Any]]] = {}
        for rule in file.rule:
            make = _ACTIVE.get(type(rule))
            if make is None:
                continue
            active = make(rule, file.dry_run, chance)
            same = known.get((rule.name, rule.kind))
            if same is not None:
                active.inherit(same)
            self.rules.append(active)
            for code in rule.codes:
                by_code.setdefault(int(code), []).append(active)
        self._by_code = {code: tuple(rules) for code, rules in by_code.items()}

    def concerns(self, code: int) -> bool:
        """Whether any rule is about requests of this code."""
        return code in self._by_code

    def judge(self, subject: Subject, now: float) -> Verdict | None:
        """What the rules say of a request now, in seconds of any clock that does not go back; None: nothing.

        They are asked in their order, until one refuses.
        """
        verdict: Verdict | None = None
        for active in self._by_code.get(subject.code, ()):
            if active.matches(subject):
                active.counts.matched += 1
                if verdict is None:
                    verdict = Verdict()
                active.apply(subject, verdict, now)
                if verdict.refusal is not None:
                    break
        if verdict is not None:
            verdict.conclude(now)
        return verdict


def would_hit(file: RuleFile, subject: Subject) -> list[str]:
    """The names of the rules that are about this request, or its connection, in their order."""
    return [
        rule.name
        for rule in file.rule
        if (subject.code in rule.codes or not rule.codes) and matcher(rule.match)(subject)
    ]


# A connection that opens.


class ActiveConnections(Active[Connections]):
    """How many connections there are, by what they share."""

    def __init__(self, rule: Connections, dry: bool, chance: Callable[[], float]) -> None:
        super().__init__(rule, dry, chance)
        self._open: dict[Hashable, int] = {}

    def _key(self, subject: Subject) -> Hashable:
        return tuple(subject.address if name == "address" else subject.listener for name in self.rule.per)

    def refuses(self, subject: Subject) -> str | None:
        """What the client is told if there are too many of its kind already."""
        if not self.matches(subject):
            return None
        self.counts.matched += 1
        if self._open.get(self._key(subject), 0) < self.rule.most or not self.hit():
            return None
        return f"{self.rule.most} connections are open, which is the most (rule {self.name})"

    def opened(self, subject: Subject) -> None:
        if self.matches(subject):
            key = self._key(subject)
            self._open[key] = self._open.get(key, 0) + 1

    def closed(self, subject: Subject) -> None:
        if self.matches(subject):
            key = self._key(subject)
            left = self._open.get(key, 0) - 1
            if left > 0:
                self._open[key] = left
            else:
                self._open.pop(key, None)
