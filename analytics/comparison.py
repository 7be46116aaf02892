"""Comparison of two periods, or of two versions, replicas or tenants in the same time: changes and their confidence.

Made from the compact tables. The measure of chance is the variation of the hours, not that of single
requests.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP, Tables

_HOUR = 3600 // STEP
# Dimensions whose values may be compared, and by which periods are compared: name and column.
DIMENSIONS: Mapping[str, str] = {
    "topic": "topic",
    "tenant": "tenant",
    "group": "grp",
    "version": "sdk",
    "replica": "replica",
    "broker": "broker",
    "client": "client",
}
# Events of either side below which nothing is said, and the normal quantile of 95 %.
_LEAST = 12.0
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Change:
    """One measure of one subject. ratio: second to first, with its 95 % interval; confidence: that they differ at all,
    corrected for the number of comparisons.
    """

    subject: str
    measure: str
    first: float
    second: float
    ratio: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Side:
    """A part of the records: hours [start, end) since 1970, and a value of a dimension, or None for all."""

    start: int
    end: int
    dimension: str | None = None
    value: str | None = None


def compare_periods(tables: Tables, first: Side, second: Side, by: str = "topic") -> list[Change]:
    """Return the changes from one period to another, of all requests and of each value of a dimension, surest first."""
    column = DIMENSIONS[by]
    changes: list[Change] = []
    totals = tables.totals[tables.totals["dimension"] == column]
    for value in (None, *sorted(totals["value"].unique())):
        sides = [_hours(tables, column, value, side) for side in (first, second)]
        changes += _changes("all" if value is None else str(value), *sides)
    return _corrected(changes)


def compare_values(tables: Tables, dimension: str, first: str, second: str) -> list[Change]:
    """Return the differences of two values of a dimension, over the hours in which both have requests.

    Raises ValueError for a value without requests, or without a common hour.
    """
    column = DIMENSIONS[dimension]
    whole = Side(tables.first // _HOUR, tables.last // _HOUR + 1)
    sides = [_hours(tables, column, value, whole) for value in (first, second)]
    for value, side in zip((first, second), sides, strict=True):
        if not side.any():
            known = tables.totals[tables.totals["dimension"] == column]["value"].unique()
            raise ValueError(f"the records have no {dimension} {value!r}; they have {', '.join(sorted(known)[:20])}")
    both = (sides[0][0] > 0) & (sides[1][0] > 0)
    if not both.any():
        raise ValueError(f"{first} and {second} have no hour in common: compare periods instead")
    return _corrected(list(_changes(second, sides[0][:, both], sides[1][:, both])))


def lines(changes: list[Change], least: float = 0.99) -> Iterator[str]:
    """Return the changes of which one may be sure as text, or a sentence that there are none."""
    sure = [each for each in changes if each.confidence >= least]
    if not sure:
        yield f"No change is surer than {least:.0%}, in {len(changes)} comparisons."
    for each in sure:
        direction = "more" if each.ratio > 1 else "less"
        yield (
            f"{each.subject}: {each.measure} {_number(each.first)} -> {_number(each.second)},"
            f" {each.ratio:.2f} times ({each.low:.2f} to {each.high:.2f}), {direction};"
            f" confidence {each.confidence:.1%}"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_SUMS = ("n", "received", "sends", "logs")
_EVENTS = ("failed", "slow", "redelivered")


def _hours(tables: Tables, column: str, value: str | None, side: Side) -> Array:
    """Return the sums of each hour: rows _SUMS and _EVENTS."""
    totals = tables.totals[tables.totals["dimension"] == (column if value is not None else "replica")]
    events = tables.events
    if value is not None:
        totals, events = totals[totals["value"] == value], events[events[column] == value]
    rows = [_by_hour(totals, totals[name], side) for name in _SUMS]
    for name in _EVENTS:
        own = events[events["event"] == name]
        rows.append(_by_hour(own, own["n"], side))
    return np.stack(rows)


def _by_hour(frame: pd.DataFrame, amounts: "pd.Series[float]", side: Side) -> Array:
    places = frame["t"].to_numpy() // _HOUR - side.start
    inside = (places >= 0) & (places < side.end - side.start)
    return np.bincount(places[inside], amounts.to_numpy(float)[inside], max(side.end - side.start, 1))


def _changes(subject: str, first: Array, second: Array) -> Iterator[Change]:
    names = ("hours", *_SUMS, *_EVENTS)
    one, two = (dict(zip(names, (np.ones(side.shape[1]), *side), strict=True)) for side in (first, second))
    pairs = (
        ("requests per hour", "n", "hours"),
        ("failed share", "failed", "n"),
        ("slow share", "slow", "n"),
        ("redelivered share", "redelivered", "received"),
    )
    for measure, part, whole in pairs:
        change = _ratio(subject, measure, (one[part], one[whole]), (two[part], two[whole]))
        if change is not None:
            yield change
    change = _latency(subject, (one["logs"], one["sends"]), (two["logs"], two["sends"]))
    if change is not None:
        yield change


def _ratio(subject: str, measure: str, first: tuple[Array, Array], second: tuple[Array, Array]) -> Change | None:
    """Compare two shares, with the dispersion of the hours."""
    if max(first[0].sum(), second[0].sum()) < _LEAST or min(first[1].sum(), second[1].sum()) <= 0:
        return None
    # Half an event more, so that none is no zero.
    shares = [(part.sum() + 0.5) / whole.sum() for part, whole in (first, second)]
    spread = sum(_dispersion(part, whole) / (part.sum() + 0.5) for part, whole in (first, second))
    return _change(subject, measure, shares[0], shares[1], math.log(shares[1] / shares[0]), math.sqrt(spread))


def _dispersion(part: Array, whole: Array) -> float:
    """Return the variance of the hours' counts as a multiple of a Poisson count's, at least 1."""
    busy = whole > 0
    expected = whole[busy] * (part.sum() / whole.sum())
    if busy.sum() < 3 or not expected.any():
        return 1.0
    known = expected > 0
    return max(float(((part[busy] - expected)[known] ** 2 / expected[known]).sum() / (busy.sum() - 1)), 1.0)


def _latency(subject: str, first: tuple[Array, Array], second: tuple[Array, Array]) -> Change | None:
    """Compare the geometric means of the latency of sends."""
    if min(first[1].sum(), second[1].sum()) < _LEAST:
        return None
    means, variances = [], []
    for logs, sends in (first, second):
        mean = logs.sum() / sends.sum()
        busy = sends > 0
        # A single request varies by about half its logarithm; the variation of the hours is measured.
        within = 0.25 / sends.sum()
        between = float((sends[busy] ** 2 * (logs[busy] / sends[busy] - mean) ** 2).sum()) / sends.sum() ** 2
        means.append(mean)
        variances.append(within + between)
    one, two = (math.exp(mean) / 1000 for mean in means)
    return _change(
        subject, "send latency (ms, geometric mean)", one, two, means[1] - means[0], math.sqrt(sum(variances))
    )


def _change(subject: str, measure: str, first: float, second: float, log: float, error: float) -> Change:
    low, high = math.exp(log - _NORMAL * error), math.exp(log + _NORMAL * error)
    chance = math.erfc(abs(log) / max(error, 1e-12) / math.sqrt(2))
    return Change(subject, measure, first, second, math.exp(log), low, high, 1 - chance)


def _corrected(changes: list[Change]) -> list[Change]:
    """Return the changes, surest first, with confidences corrected after Bonferroni."""
    count = len(changes)
    corrected = [
        Change(
            **{name: getattr(each, name) for name in Change.__slots__ if name != "confidence"},
            confidence=max(1 - (1 - each.confidence) * count, 0.0),
        )
        for each in changes
    ]
    return sorted(corrected, key=lambda each: (-each.confidence, -abs(math.log(each.ratio))))
