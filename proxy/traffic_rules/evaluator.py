"""The judge: what rules say of a request. Pure: time and chance come in from outside, and nothing is done here."""

import random
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from proxy.traffic_rules.decision import Decision
from proxy.traffic_rules.effects import Active, ActiveAllow, ActiveDeny, ActiveFault, ActiveMaintenance, ActiveMirror
from proxy.traffic_rules.limits import ActiveLimit
from proxy.traffic_rules.matching import Attributes, aspects
from proxy.traffic_rules.model import Allow, Deny, Fault, Limit, Maintenance, Mirror, RuleFile

_ACTIVE: dict[type[Any], type[Active[Any]]] = {
    Allow: ActiveAllow,
    Deny: ActiveDeny,
    Limit: ActiveLimit,
    Maintenance: ActiveMaintenance,
    Mirror: ActiveMirror,
    Fault: ActiveFault,
}
# Kinds of requests of which it is remembered which rules are about them; and how long, as text, what tells one kind
# from others may be: names that clients make up must not fill the memory.
_MAX_KINDS = 10_000
_LONGEST_KIND = 2_048


class _RuleIndex:
    """The rules that may be about requests of one code.

    Which of them are is found out once for all requests that are alike in what the rules go by.
    """

    def __init__(self, rules: Sequence[Active[Any]]) -> None:
        self._rules = rules
        read = sorted(set().union(*(aspects(active.rule.match) for active in rules)))
        self._kind: Callable[[Attributes], Any] = attrgetter(*read) if read else lambda _: None
        self._known: dict[Any, tuple[Active[Any], ...]] = {}

    def about(self, subject: Attributes) -> tuple[Active[Any], ...]:
        """The rules that are about this request, in their order."""
        kind = self._kind(subject)
        found = self._known.get(kind)
        if found is None:
            found = tuple(active for active in self._rules if active.matches(subject))
            if len(repr(kind)) <= _LONGEST_KIND:
                if len(self._known) >= _MAX_KINDS:
                    self._known.clear()
                self._known[kind] = found
        return found


class Evaluator:
    """The rules of a file about requests, in force.

    former: the judge of the file before; a rule of the same name and kind goes on counting, and a limit that was not
    changed forgives nobody.
    """

    def __init__(
        self, file: RuleFile, former: "Evaluator | None" = None, chance: Callable[[], float] | None = None
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
        self._dockets = {code: _RuleIndex(rules) for code, rules in by_code.items()}

    def concerns(self, code: int) -> bool:
        """Whether any rule is about requests of this code."""
        return code in self._dockets

    def judge(self, subject: Attributes, now: float) -> Decision | None:
        """What the rules say of a request now, in seconds of any clock that does not go back; None: nothing.

        They are asked in their order, until one refuses.
        """
        docket = self._dockets.get(subject.code)
        about = () if docket is None else docket.about(subject)
        if not about:
            return None
        if len(about) == 1 and about[0].passes(subject, now):
            about[0].counts.matched += 1
            return None
        verdict = Decision()
        for active in about:
            active.counts.matched += 1
            active.apply(subject, verdict, now)
            if verdict.refusal is not None:
                break
        verdict.conclude()
        return verdict
