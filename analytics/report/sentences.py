"""Sentences of the report's sections: capacity, and the effect of a rules file."""

import pandas as pd

from analytics.facts import Limits
from analytics.transforms import quotas
from proxy.traffic_rules.model import RuleFile


def quota_summary(rules: RuleFile, over: pd.DataFrame) -> str:
    """Return a sentence on the limits that would have been exceeded, and on those that records cannot evaluate. over:
    rows of what_if, worst first.
    """
    limits, unsupported_limits = quotas.limits(rules), quotas.unsupported_limits(rules)
    evaluated, others = len(limits) - len(unsupported_limits), len(rules.rule) - len(limits)
    sentences = []
    if not evaluated:
        sentences.append("The rules file has no limit that records can evaluate.")
    elif over.empty:
        sentences.append(f"Of {many(evaluated, 'limit')} none would have been exceeded.")
    else:
        hit, worst = over["rule"].nunique(), over.iloc[0]
        subjects = many(len(over[["rule", "subject"]].drop_duplicates()), "subject")
        sentences.append(f"Of {many(evaluated, 'limit')} {count(hit)} would have been exceeded, by {subjects}.")
        who = "all together" if worst.subject == "*" else worst.subject
        sentences.append(
            f"Most affected: {who} by {worst.rule}, {percent(worst.over_share)} of its {worst.unit} refused"
            " (sends) or held (receives)."
        )
    sentences += [f"{name} is not evaluated: {reason}." for name, reason in unsupported_limits.items()]
    if others:
        sentences.append(f"{many(others, 'rule')} of other kinds {'is' if others == 1 else 'are'} not evaluated.")
    return " ".join(sentences)


# Days ahead of which a straight line through some days says nothing.
_FORESEEABLE = 730


def capacity_sentence(lines: pd.DataFrame, limits: Limits) -> str:
    """Return until when the replicas suffice, and from which figures that is known. lines: rows of `forecast`."""
    assumed = limits == Limits()
    source = "an assumption: state yours with --facts" if assumed else "the facts file"
    first = lines.assign(used=lines["peak"] / lines["limit"]).sort_values(
        ["days_until_limit", "used"], ascending=[True, False], na_position="last"
    )
    row = first.iloc[0]
    measure = str(row.measure).removesuffix("_per_s").replace("_", " ")
    reached = f"{many(limits.replicas, 'replica')} may serve {count(row.limit)} {measure} per second ({source})"
    trend = "" if pd.isna(row.fit) else f" The line explains {percent(max(row.fit, 0.0))} of the days' differences."
    if pd.notna(row.days_until_limit) and row.days_until_limit == 0:
        return f"The limit is reached: {reached}, and the busy hour had {count(row.peak)}."
    used = f"the busy hour uses {percent(row.used)} of it"
    if pd.isna(row.per_day):
        return f"{reached}; {used}. A trend needs three days with 20 recorded hours each."
    if pd.isna(row.days_until_limit):
        return f"{reached}; {used}, without growth.{trend}"
    if row.days_until_limit > _FORESEEABLE:
        return f"{reached}; {used}, and at this growth it suffices for more than two years.{trend}"
    return f"{reached}; {used}, and at this growth it suffices for {many(round(row.days_until_limit), 'day')}.{trend}"


def percent(share: float) -> str:
    """Return a share as a whole percentage."""
    return f"{100 * share:.0f} %"


def count(value: float) -> str:
    """Return a whole number with narrow spaces between thousands."""
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def many(value: float, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"
