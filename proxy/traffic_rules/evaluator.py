"""Evaluation of the rules for a request. Pure: callers pass time and random numbers."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from proxy.traffic_rules.decision import Decision
from proxy.traffic_rules.effects import (
    ActiveAllow,
    ActiveDeny,
    ActiveFault,
    ActiveMaintenance,
    ActiveMirror,
    ActiveRule,
    DrawPercent,
    draw_percent,
)
from proxy.traffic_rules.matching import Attributes, matched_attributes
from proxy.traffic_rules.model import Allow, Deny, Fault, Limit, Maintenance, Mirror, RuleFile
from proxy.traffic_rules.rate_limits import ActiveLimit

_ACTIVE: dict[type[Any], type[ActiveRule[Any]]] = {
    Allow: ActiveAllow,
    Deny: ActiveDeny,
    Limit: ActiveLimit,
    Maintenance: ActiveMaintenance,
    Mirror: ActiveMirror,
    Fault: ActiveFault,
}
# Bounds of the cache of an index: entries, and characters of a key. Clients choose the names in the keys.
_MAX_CACHED_KEYS = 10_000
_MAX_KEY_LENGTH = 2_048


class _RuleIndex:
    """The rules for one request code, cached by the attributes that their criteria read."""

    def __init__(self, rules: Sequence[ActiveRule[Any]]) -> None:
        self._rules = rules
        attributes = sorted(set().union(*(matched_attributes(active.rule.match) for active in rules)))
        self.reads_topics = "topics" in attributes
        self.denies = any(isinstance(active.rule, Deny) for active in rules)
        self._key: Callable[[Attributes], Any] = attrgetter(*attributes) if attributes else lambda _: None
        self._cache: dict[Any, tuple[ActiveRule[Any], ...]] = {}

    def matching(self, request: Attributes) -> tuple[ActiveRule[Any], ...]:
        """Return the rules that match the request, in their order."""
        key = self._key(request)
        rules = self._cache.get(key)
        if rules is None:
            rules = tuple(active for active in self._rules if active.matches(request))
            if len(repr(key)) <= _MAX_KEY_LENGTH:
                if len(self._cache) >= _MAX_CACHED_KEYS:
                    self._cache.clear()
                self._cache[key] = rules
        return rules


class Evaluator:
    """The request rules of a file, in force.

    predecessor: the evaluator before a reload. A rule of the same name and kind continues its counts, and an unchanged
    limit its token buckets.
    """

    def __init__(
        self,
        file: RuleFile,
        predecessor: "Evaluator | None" = None,
        draw_percent: DrawPercent = draw_percent,
    ) -> None:
        previous = (
            {} if predecessor is None else {(active.name, active.rule.kind): active for active in predecessor.rules}
        )
        self.rules: list[ActiveRule[Any]] = []
        by_code: dict[int, list[ActiveRule[Any]]] = {}
        for rule in file.rule:
            make = _ACTIVE.get(type(rule))
            if make is None:
                continue
            active = make(rule, file.dry_run, draw_percent)
            same = previous.get((rule.name, rule.kind))
            if same is not None:
                active.inherit(same)
            self.rules.append(active)
            for code in rule.codes:
                by_code.setdefault(int(code), []).append(active)
        self._indexes = {code: _RuleIndex(rules) for code, rules in by_code.items()}

    def covers(self, code: int) -> bool:
        """Return whether any rule applies to requests of this code."""
        return code in self._indexes

    def reads_topics(self, code: int) -> bool:
        """Return whether a rule for requests of this code has criteria on topics."""
        index = self._indexes.get(code)
        return index is not None and index.reads_topics

    def denies_by_topics(self, code: int) -> bool:
        """Return whether criteria on topics may decide if a request of this code is denied."""
        index = self._indexes.get(code)
        return index is not None and index.reads_topics and index.denies

    def evaluate(self, request: Attributes, now: float) -> Decision | None:
        """Return the decision of the rules, evaluated in their order up to the first rejection; None: no effect.

        `now` is in seconds of any monotonic clock.
        """
        index = self._indexes.get(request.code)
        matching = () if index is None else index.matching(request)
        if not matching:
            return None
        if len(matching) == 1 and matching[0].passes(request, now):
            matching[0].counts.matched += 1
            return None
        decision = Decision()
        for active in matching:
            active.counts.matched += 1
            active.apply(request, decision, now)
            if decision.rejection is not None:
                break
        decision.conclude()
        return decision
