"""Metrics of the traffic rules."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proxy.observability.metrics.family import Family, Kind, Merge, Samples
from proxy.traffic_rules.effects import ActiveRule, RuleCounts
from proxy.traffic_rules.reloading import ReloadOutcome, RulesReloader

_LABELS = ("rule", "kind")
MATCHED = Family(
    "gantry_rule_matched", Kind.COUNTER, "Requests or connections that met the criteria of a traffic rule.", _LABELS
)
ENFORCED = Family(
    "gantry_rule_enforced",
    Kind.COUNTER,
    "Requests or connections that a traffic rule rejected, delayed, allowed, mirrored or renamed.",
    _LABELS,
)
DRY_RUN = Family(
    "gantry_rule_dry_run",
    Kind.COUNTER,
    "Requests or connections that a traffic rule would have rejected, delayed, allowed, mirrored or renamed but for "
    "its dry run.",
    _LABELS,
)
MIRRORED = Family(
    "gantry_rule_mirrored",
    Kind.COUNTER,
    "Message copies of mirror rules, by outcome: stored, failed, dropped over the in-flight limit, or skipped because "
    "the message was a copy or half of a transaction.",
    ("rule", "outcome"),
)
RULES = Family("gantry_rules", Kind.GAUGE, "Traffic rules in force.", (), Merge.MAX)
OUTDATED = Family(
    "gantry_rules_outdated",
    Kind.GAUGE,
    "1 if the rules file is invalid and the former rules remain in force, else 0.",
    (),
    Merge.MAX,
)
RELOADS = Family(
    "gantry_rules_reloads",
    Kind.COUNTER,
    "Changed versions of the rules file, by outcome: loaded or failed.",
    ("outcome",),
)
_BY_RULE: tuple[tuple[Family, Callable[[RuleCounts], int]], ...] = (
    (MATCHED, lambda counts: counts.matched),
    (ENFORCED, lambda counts: counts.enforced),
    (DRY_RUN, lambda counts: counts.dry_run),
)


def read(
    rules: Sequence[ActiveRule[Any]], mirrored: Mapping[tuple[str, str], int], reloader: RulesReloader
) -> Iterable[tuple[Family, Samples]]:
    """Yield the metrics of the rules in force. `mirrored` has the number of copies by rule and outcome."""
    for family, value in _BY_RULE:
        yield family, {(active.name, active.rule.kind): value(active.counts) for active in rules}
    yield MIRRORED, {(rule, outcome): copies for (rule, outcome), copies in mirrored.items()}
    yield RULES, {(): len(rules)}
    yield OUTDATED, {(): int(reloader.error is not None)}
    yield RELOADS, {(outcome,): reloader.counts[outcome] for outcome in (ReloadOutcome.LOADED, ReloadOutcome.FAILED)}
