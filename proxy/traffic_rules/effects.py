"""What rules do to a request that they are about. Pure: time and chance come in from outside."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from proxy.traffic_rules.decision import Decision, Refusal
from proxy.traffic_rules.matching import LONGEST, Attributes, matcher
from proxy.traffic_rules.model import Allow, Deny, Fault, Maintenance, Mirror


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

    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        """Say what the rule does to a request that it is about."""
        raise NotImplementedError

    def passes(self, subject: Attributes, now: float) -> bool:
        """Whether the rule lets a request through as if it were not there; if it is the only one about it.

        False: `apply` says what it does.
        """
        return False

    def inherit(self, former: "Active[Any]") -> None:
        """Take over what the rule of this name and kind has counted."""
        self.counts = former.counts


class ActiveAllow(Active[Allow]):
    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        if not verdict.allowed and self.hit():
            verdict.allowed = True


class ActiveDeny(Active[Deny]):
    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        if not verdict.allowed and self.hit():
            verdict.refusal = Refusal("deny", self.name, f"{described(subject)} is not permitted (rule {self.name})")


class ActiveMaintenance(Active[Maintenance]):
    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        if self.hit():
            text = f"{described(subject)}: {self.rule.message} (rule {self.name})"
            verdict.refusal = Refusal("maintenance", self.name, text)


class ActiveMirror(Active[Mirror]):
    """Whether a copy is sent, and counted so, is seen once the message is stored."""

    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        if self.rule.percent == 100 or self.chance() < self.rule.percent:
            if self.dry:
                self.hit()
            else:
                verdict.copy_to(self)


class ActiveFault(Active[Fault]):
    def apply(self, subject: Attributes, verdict: Decision, now: float) -> None:
        rule = self.rule
        if (rule.percent < 100 and self.chance() >= rule.percent) or not self.hit():
            return
        verdict.wait = max(verdict.wait, rule.delay)
        if rule.error is not None:
            verdict.refusal = Refusal("fault", self.name, f"injected fault (rule {self.name})", rule.error)


def described(subject: Attributes) -> str:
    """What the request is about, in words."""
    for kind, names in (("topic", subject.topics), ("group", subject.groups)):
        if names:
            return f"{kind} {names[0][:LONGEST]}"
    return "the request"
