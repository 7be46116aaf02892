"""Rate limits by token buckets. Pure."""

from collections.abc import Callable, Hashable
from typing import Any, Final

from proxy.traffic_rules.decision import Decision, Rejection
from proxy.traffic_rules.effects import ActiveRule, DrawPercent, draw_percent
from proxy.traffic_rules.matching import MAX_NAME_LENGTH, Attributes
from proxy.traffic_rules.model import Limit
from proxy.traffic_rules.token_buckets import TokenBuckets
from remoting.requests import RECEIVES
from remoting.token_bucket import TokenBucket

# A constant of this module, because compiled code looks up those of a module that is not compiled.
_RECEIVES: Final = RECEIVES


def _first(names: tuple[str, ...]) -> str:
    return names[0][:MAX_NAME_LENGTH] if names else ""


_KEYS: dict[str, Callable[[Attributes], Hashable]] = {
    # Before its first heartbeat a remoting client is identified by its address.
    "client": lambda request: (request.client_id or request.address)[:MAX_NAME_LENGTH],
    "user": lambda request: request.user or "",
    "group": lambda request: _first(request.groups),
    "topic": lambda request: _first(request.topics),
    "address": lambda request: request.address,
    "connection": lambda request: request.connection,
}
_AMOUNTS: dict[str, Callable[[Attributes], float]] = {
    "messages": lambda request: request.messages,
    "bytes": lambda request: request.size,
    "requests": lambda _: 1,
}


class ActiveLimit(ActiveRule[Limit]):
    """Charges sends in advance and receives by their reply, because their messages are not known before."""

    def __init__(self, rule: Limit, dry_run: bool, draw_percent: DrawPercent = draw_percent) -> None:
        super().__init__(rule, dry_run, draw_percent)
        self._key = _key(rule.per)
        rates = {"messages": rule.messages, "bytes": rule.bytes, "requests": rule.requests}
        self._use({unit: TokenBuckets(rate, rule.burst) for unit, rate in rates.items() if rate is not None})

    def _use(self, buckets: dict[str, TokenBuckets]) -> None:
        self._buckets = buckets
        self._units = tuple((unit, of_unit, _AMOUNTS[unit]) for unit, of_unit in buckets.items())

    def inherit(self, predecessor: ActiveRule[Any]) -> None:
        """Continue the counts and, unless the limit itself has changed, the token buckets."""
        super().inherit(predecessor)
        if isinstance(predecessor, ActiveLimit) and _without_match(predecessor.rule) == _without_match(self.rule):
            self._use(predecessor._buckets)

    def passes(self, request: Attributes, now: float) -> bool:
        # The common case: one unit, and tokens left.
        if len(self._units) != 1 or request.code in _RECEIVES:
            return False
        _, buckets, amount_of = self._units[0]
        return not buckets.get(self._key(request), now).spend(amount_of(request), now)

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        if request.code in _RECEIVES:
            self._apply_to_receive(self._key(request), decision, now)
        else:
            self._apply_to_send(request, decision, now)

    def _apply_to_send(self, request: Attributes, decision: Decision, now: float) -> None:
        key = self._key(request)
        exhausted_unit, max_wait = "", 0.0
        spent: list[tuple[TokenBucket, float]] = []
        for unit, buckets, amount_of in self._units:
            bucket, amount = buckets.get(key, now), amount_of(request)
            wait = bucket.spend(amount, now)
            if wait > max_wait:
                exhausted_unit, max_wait = unit, wait
            elif not wait:
                spent.append((bucket, amount))
        if not max_wait:
            # A dry run keeps the tokens, so that its buckets empty as those of a limit in force.
            if not self.dry_run:
                decision.add_spent(spent)
            return
        for bucket, amount in spent:
            bucket.give_back(amount)
        if self.hit():
            rate = f"{getattr(self.rule, exhausted_unit):g} {exhausted_unit}/s"
            text = f"rate limit of {rate} for {self._scope(request)} exceeded, retry in {max_wait:.3f} s"
            decision.rejection = Rejection("limit", self.name, f"{text} (rule {self.name})")

    def _apply_to_receive(self, key: Hashable, decision: Decision, now: float) -> None:
        # Wait until earlier receives are paid off and one token of each unit is available.
        by_unit = {unit: buckets.get(key, now) for unit, buckets, _ in self._units}
        wait = max(bucket.wait(1.0, now) for bucket in by_unit.values())
        if wait > 0 and self.hit() and wait > decision.wait:
            decision.wait, decision.waiting_limit = wait, self.name
        if not wait or not self.dry_run:
            requests = by_unit.get("requests")
            if requests is not None:
                requests.take(1.0, now)
                decision.add_spent([(requests, 1.0)])
            decision.add_meter(self._charge_reply, key)

    def _charge_reply(self, key: Hashable, messages: int, size: int, now: float) -> None:
        for unit, amount in (("messages", messages), ("bytes", size)):
            buckets = self._buckets.get(unit)
            if buckets is not None and amount:
                buckets.get(key, now).take(amount, now)

    def _scope(self, request: Attributes) -> str:
        """Return the attributes by which the request is counted, for error texts."""
        return " and ".join(f"{name} {_KEYS[name](request)}" for name in self.rule.per) or "all clients"


def _without_match(rule: Limit) -> Limit:
    return rule.model_copy(update={"match": None})


def _key(per: tuple[str, ...]) -> Callable[[Attributes], Hashable]:
    """Return a function from a request to the key of its bucket."""
    if len(per) == 1:
        return _KEYS[per[0]]
    readers = tuple(_KEYS[name] for name in per)
    return lambda request: tuple(read(request) for read in readers)
