"""Limits: of what goes through per second, by token buckets, and of connections that are open. Pure."""

from collections.abc import Callable, Hashable
from typing import Any

from proxy.traffic_rules.decision import Decision, Refusal
from proxy.traffic_rules.effects import Active
from proxy.traffic_rules.matching import LONGEST, Attributes
from proxy.traffic_rules.model import RECEIVES, Connections, Limit
from proxy.traffic_rules.token_buckets import Buckets, TokenBucket


def _first(names: tuple[str, ...]) -> str:
    return names[0][:LONGEST] if names else ""


_KEYS: dict[str, Callable[[Attributes], Hashable]] = {
    # Who has not said yet who it is, is known by where it is.
    "client": lambda subject: (subject.client_id or subject.address)[:LONGEST],
    "group": lambda subject: _first(subject.groups),
    "topic": lambda subject: _first(subject.topics),
    "address": lambda subject: subject.address,
    "connection": lambda subject: subject.connection,
}
_AMOUNTS: dict[str, Callable[[Attributes], float]] = {
    "messages": lambda subject: subject.messages,
    "bytes": lambda subject: subject.size,
    "requests": lambda _: 1,
}


class ActiveLimit(Active[Limit]):
    """Sends are paid for in advance, receives afterwards: what they bring is not known before."""

    def __init__(self, rule: Limit, dry: bool, chance: Callable[[], float]) -> None:
        super().__init__(rule, dry, chance)
        self._key = _key(rule.per)
        rates = {"messages": rule.messages, "bytes": rule.bytes, "requests": rule.requests}
        self._fill({unit: Buckets(rate, rule.burst) for unit, rate in rates.items() if rate is not None})

    def _fill(self, buckets: dict[str, Buckets]) -> None:
        self._buckets = buckets
        self._units = tuple((unit, kept, _AMOUNTS[unit]) for unit, kept in buckets.items())

    def inherit(self, former: Active[Any]) -> None:
        super().inherit(former)
        if isinstance(former, ActiveLimit) and former.rule.model_copy(update={"match": None}) == self.rule.model_copy(
            update={"match": None}
        ):
            # Changing who it is about, or another rule, forgives nobody.
            self._fill(former._buckets)

    def passes(self, subject: Attributes, now: float) -> bool:
        # As most limits are: of one unit, and not used up.
        if len(self._units) != 1 or subject.code in RECEIVES:
            return False
        _, buckets, amount_of = self._units[0]
        return not buckets.get(self._key(subject), now).spend(amount_of(subject), now)

    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        if subject.code in RECEIVES:
            self._receive(self._key(subject), verdict, now)
        else:
            self._send(subject, verdict, now)

    def _send(self, subject: Attributes, verdict: Decision, now: float) -> None:
        key = self._key(subject)
        longest, most = "", 0.0
        spent: list[tuple[TokenBucket, float]] = []
        for unit, buckets, amount_of in self._units:
            bucket, amount = buckets.get(key, now), amount_of(subject)
            wait = bucket.spend(amount, now)
            if wait > most:
                longest, most = unit, wait
            elif not wait:
                spent.append((bucket, amount))
        if not most:
            # A limit that is tried out fills up as one in force would.
            if not self.dry:
                verdict.spend(spent)
            return
        for bucket, amount in spent:
            bucket.give_back(amount)
        if self.hit():
            text = f"{self._limit(longest)} of {self._whose(subject)} is used up, try again in {most:.3f} s"
            verdict.refusal = Refusal("limit", self.name, f"{text} (rule {self.name})")

    def _receive(self, key: Hashable, verdict: Decision, now: float) -> None:
        # Until what was received before is paid for, and there is something for this one.
        # What a receive needs at least, to be worth its while, is one of each.
        least = {unit: buckets.get(key, now) for unit, buckets, _ in self._units}
        wait = max(bucket.wait(1.0, now) for bucket in least.values())
        if wait > 0 and self.hit() and wait > verdict.wait:
            verdict.wait, verdict.waits_for = wait, self.name
        if not wait or not self.dry:
            requests = least.get("requests")
            if requests is not None:
                requests.take(1.0, now)
                verdict.spend([(requests, 1.0)])
            verdict.meter(self._received, key)

    def _received(self, key: Hashable, messages: int, size: int, now: float) -> None:
        for unit, amount in (("messages", messages), ("bytes", size)):
            buckets = self._buckets.get(unit)
            if buckets is not None and amount:
                buckets.get(key, now).take(amount, now)

    def _limit(self, unit: str) -> str:
        return f"the limit of {getattr(self.rule, unit):g} {unit}/s"

    def _whose(self, subject: Attributes) -> str:
        """Who shares the count, in words."""
        return " and ".join(f"{name} {_KEYS[name](subject)}" for name in self.rule.per) or "all together"


def _key(per: tuple[str, ...]) -> Callable[[Attributes], Hashable]:
    """What tells those apart that have a count of their own."""
    if len(per) == 1:
        return _KEYS[per[0]]
    reads = tuple(_KEYS[name] for name in per)
    return lambda subject: tuple(read(subject) for read in reads)


class ActiveConnections(Active[Connections]):
    """How many connections there are, by what they share."""

    def __init__(self, rule: Connections, dry: bool, chance: Callable[[], float]) -> None:
        super().__init__(rule, dry, chance)
        self._open: dict[Hashable, int] = {}

    def _key(self, subject: Attributes) -> Hashable:
        return tuple(subject.address if name == "address" else subject.listener for name in self.rule.per)

    def refuses(self, subject: Attributes) -> str | None:
        """What the client is told if there are too many of its kind already."""
        if not self.matches(subject):
            return None
        self.counts.matched += 1
        if self._open.get(self._key(subject), 0) < self.rule.most or not self.hit():
            return None
        return f"{self.rule.most} connections are open, which is the most (rule {self.name})"

    def opened(self, subject: Attributes) -> None:
        """A connection has opened."""
        if self.matches(subject):
            key = self._key(subject)
            self._open[key] = self._open.get(key, 0) + 1

    def closed(self, subject: Attributes) -> None:
        """A connection that had opened has closed."""
        if self.matches(subject):
            key = self._key(subject)
            left = self._open.get(key, 0) - 1
            if left > 0:
                self._open[key] = left
            else:
                self._open.pop(key, None)
