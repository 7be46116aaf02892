"""Rules in force, and the effects on a request of all kinds but limits. Pure: callers pass time and random numbers."""

import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from proxy.traffic_rules.decision import Decision, MirrorCopy, Rejection
from proxy.traffic_rules.matching import MAX_NAME_LENGTH, Attributes, matcher
from proxy.traffic_rules.model import Allow, Deny, Fault, Maintenance, Mirror
from remoting.compilation import mypyc_attr

# Returns a random number in [0, 100).
DrawPercent = Callable[[], float]


def draw_percent() -> float:
    """Return a random number in [0, 100)."""
    return random.random() * 100  # noqa: S311  # a percentage of requests


class RuleCounts:
    """Counts of one rule.

    matched: requests or connections that met its criteria. enforced: those that the rule had an effect on. dry_run:
    those that it would have had an effect on but for its dry run.
    """

    __slots__ = ("dry_run", "enforced", "matched")

    def __init__(self) -> None:
        self.matched = 0
        self.enforced = 0
        self.dry_run = 0


_R = TypeVar("_R", bound=Any)


@mypyc_attr(allow_interpreted_subclasses=True)
class ActiveRule(Generic[_R]):
    """A rule in force, with its counts."""

    def __init__(self, rule: _R, dry_run: bool, draw_percent: DrawPercent = draw_percent) -> None:
        self.rule = rule
        self.dry_run = dry_run or rule.dry_run
        self.draw_percent = draw_percent
        self.counts = RuleCounts()
        self.matches = matcher(rule.match)

    @property
    def name(self) -> str:
        """Name of the rule."""
        name: str = self.rule.name
        return name

    def hit(self) -> bool:
        """Count one effect of the rule and return whether to carry it out."""
        if self.dry_run:
            self.counts.dry_run += 1
        else:
            self.counts.enforced += 1
        return not self.dry_run

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        """Add the rule's effect on a matching request to the decision."""
        raise NotImplementedError

    def passes(self, request: Attributes, now: float) -> bool:
        """Return True if the rule, as the only one that matches, lets the request pass unchanged; else use `apply`."""
        return False

    def inherit(self, predecessor: "ActiveRule[Any]") -> None:
        """Continue the counts of the same rule before a reload."""
        self.counts = predecessor.counts


class ActiveAllow(ActiveRule[Allow]):
    """Exempts requests from later deny rules."""

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        if not decision.allowed and self.hit():
            decision.allowed = True


class ActiveDeny(ActiveRule[Deny]):
    """Rejects requests that no earlier allow rule exempts."""

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        if not decision.allowed and self.hit():
            decision.rejection = Rejection(
                "deny", self.name, f"{describe(request)} is not permitted (rule {self.name})"
            )


class ActiveMaintenance(ActiveRule[Maintenance]):
    """Rejects sends."""

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        if self.hit():
            text = f"{describe(request)}: {self.rule.message} (rule {self.name})"
            decision.rejection = Rejection("maintenance", self.name, text)


class ActiveMirror(ActiveRule[Mirror]):
    """Adds a copy of the messages to the decision. The copy is counted when it is sent, after the message is stored."""

    def __init__(self, rule: Mirror, dry_run: bool, draw_percent: DrawPercent = draw_percent) -> None:
        super().__init__(rule, dry_run, draw_percent)
        self._copy = MirrorCopy(rule, self.hit)

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        if self.rule.percent == 100 or self.draw_percent() < self.rule.percent:
            if self.dry_run:
                self.hit()
            else:
                decision.add_mirror(self._copy)


class ActiveFault(ActiveRule[Fault]):
    """Delays requests or answers them with an error."""

    def apply(self, request: Attributes, decision: Decision, now: float) -> None:
        rule = self.rule
        if (rule.percent < 100 and self.draw_percent() >= rule.percent) or not self.hit():
            return
        decision.wait = max(decision.wait, rule.delay)
        if rule.error is not None:
            decision.rejection = Rejection("fault", self.name, f"injected fault (rule {self.name})", rule.error)


def describe(request: Attributes) -> str:
    """Return the request's first topic or group, for error texts."""
    for kind, names in (("topic", request.topics), ("group", request.groups)):
        if names:
            return f"{kind} {names[0][:MAX_NAME_LENGTH]}"
    return "the request"
