"""Topics and tenants that send much less or more than on other days, and courses that only look like it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.volume import _shrinkings, volume
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP, Tables

_DAY, _HOUR = 86400 // STEP, 3600 // STEP
# A Thursday.
_FIRST = 20_006 * _DAY
_BEGIN = 3 * _DAY + 8 * _HOUR
_BATCH = slice(_DAY + _HOUR, _DAY + 3 * _HOUR)


def _found(rates: Mapping[str, Array]) -> list[Finding]:
    """Return the findings about sends to topics at these rates by period."""
    random = np.random.default_rng(6)
    parts = []
    for topic, rate in rates.items():
        sends = random.poisson(rate).astype(float)
        parts.append(pd.DataFrame({"t": np.arange(rate.size) + _FIRST, "topic": topic, "n": sends}))
    flows = pd.concat(parts).assign(op="send")
    flows["rows_"] = flows["n"]
    blank = pd.DataFrame()
    spans = pd.DataFrame({"t": flows["t"].unique()})
    return volume(Tables(spans, blank, flows, blank, blank, blank, blank, blank))


def _course(rate: float, days: int = 6) -> Array:
    """Return a rate that is four times higher at noon than at midnight."""
    return rate * (1 - 0.6 * np.cos(np.arange(days * _DAY) * 2 * np.pi / _DAY))


@pytest.mark.parametrize("left", [0.3, 0.4])
def test_a_topic_that_gets_a_third_for_hours_is_found(left: float) -> None:
    """The lowest usual count, of another hour or day, is not much more than a third."""
    rate = _course(10.0)
    rate[_BEGIN : _BEGIN + 4 * _HOUR] *= left
    (drop,) = _found({"a%1": rate, "a%2": _course(10.0), "a%3": _course(20.0)})
    assert (drop.kind, drop.about["topic"]) == ("traffic_drop", "a%1")
    assert drop.start == pytest.approx((_FIRST + _BEGIN) * STEP, abs=1800)
    assert drop.end == pytest.approx((_FIRST + _BEGIN + 4 * _HOUR) * STEP, abs=1800)
    # The text has the lowest usual count; the missing messages are counted from the typical one.
    assert drop.observed < drop.expected < drop.observed + drop.affected


@pytest.mark.parametrize("level", [0.3, 0.6])
def test_a_weekend_with_less_is_no_drop(level: float) -> None:
    weekend = np.ones(6 * _DAY)
    weekend[2 * _DAY : 4 * _DAY] = level
    assert _found({f"a%{number}": _course(10.0) * weekend for number in range(4)}) == []


def test_a_tenant_whose_topics_all_send_more_is_found_although_one_has_most_messages() -> None:
    rates = {"a%large": _course(100.0), **{f"a%{number}": _course(8.0) for number in range(3)}, "b%1": _course(20.0)}
    for topic, rate in rates.items():
        rate[_BEGIN : _BEGIN + 6] *= 5.0 if topic.startswith("a%") else 1.0
    (surge,) = _found(rates)
    assert (surge.kind, dict(surge.about)) == ("traffic_surge", {"tenant": "a"})


def test_a_topic_with_most_of_a_tenants_surplus_is_found_alone() -> None:
    rates = {"a%large": _course(100.0), "a%1": _course(8.0), "b%1": _course(20.0)}
    for topic in ("a%large", "a%1"):
        rates[topic][_BEGIN : _BEGIN + 6] *= 5.0
    assert {dict(each.about).get("topic") for each in _found(rates)} == {"a%large", "a%1"}


def test_a_batch_that_moves_with_the_clocks_leaves_no_drop() -> None:
    """Its former hour has an expected count, but the lowest one around is that of a quiet night."""
    counts, expected, low = (np.full(2 * _DAY, rate) for rate in (2.0, 2.0, 2.0))
    expected[_BATCH], low[_BATCH], counts[_BATCH] = 40.0, 1.5, 1.0
    spans = pd.DataFrame({"t": np.arange(2 * _DAY) + _FIRST})
    blank = pd.DataFrame()
    tables = Tables(spans, *[blank] * 7)
    assert _shrinkings(tables, {"topic": "a"}, counts, expected, low, 1.0) == []
    low[_BATCH] = 30.0
    assert [each.kind for each in _shrinkings(tables, {"topic": "a"}, counts, expected, low, 1.0)] == ["traffic_drop"]


def _closed(days: int, begin: float, end: float) -> Mapping[str, Array]:
    """Return the rates of topics of which one sends nothing from one day, counted from a Thursday, to another."""
    rates = {name: _course(10.0, days) for name in ("a%market", "a%1", "b%1", "b%2")}
    rates["a%market"][round(begin * _DAY) : round(end * _DAY)] = 0.0
    return rates


_SILENCES = {
    "closed on Friday evening": (6, 1.9, 3.9, []),
    "open again on Monday morning": (6, 1.7, 4.3, []),
    "closed on Friday morning": (7, 1.3, 3.9, []),
    "closed on Friday morning, to midnight": (7, 1.4, 4.0, []),
    "closed on Friday morning, a week": (8, 1.4, 4.1, []),
    "weekend and Tuesday": (6, 1.9, 5.5, ["traffic_drop"]),
    "one day of the weekend": (6, 2.2, 3.0, ["traffic_drop"]),
    "working days": (6, 4.2, 5.2, ["traffic_drop"]),
}


@pytest.mark.parametrize(("days", "begin", "end", "kinds"), _SILENCES.values(), ids=_SILENCES)
def test_a_topics_own_weekend_is_no_drop(days: int, begin: float, end: float, kinds: list[str]) -> None:
    assert [each.kind for each in _found(_closed(days, begin, end))] == kinds


def test_a_weekend_without_messages_is_a_drop_if_another_weekend_has_some() -> None:
    assert [each.kind for each in _found(_closed(13, 1.9, 3.9))] == ["traffic_drop"]


def _short_batch(nights: list[int]) -> Array:
    """Return a rate with a batch of ten minutes at three o'clock of some days."""
    rate = np.full(3 * _DAY, 0.1)
    for night in nights:
        rate[night * _DAY + 3 * _HOUR : night * _DAY + 3 * _HOUR + 2] = 130.0
    return rate


@pytest.mark.parametrize(("nights", "kinds"), [([0, 1, 2], []), ([1], ["traffic_surge"])])
def test_a_batch_of_minutes_that_comes_every_night_is_no_surge(nights: list[int], kinds: list[str]) -> None:
    """Its average over half an hour is lower than itself."""
    found = _found({"a%batch": _short_batch(nights), "a%1": _course(10.0, 3), "b%1": _course(10.0, 3)})
    assert [each.kind for each in found] == kinds


@pytest.mark.parametrize(("begin", "end"), [(1.7, 3.0), (0.0, 1.3)])
def test_a_topic_that_is_new_or_given_up_has_no_surge_on_its_only_days(begin: float, end: float) -> None:
    rate = np.zeros(3 * _DAY)
    rate[round(begin * _DAY) : round(end * _DAY)] = 8.0
    found = _found({"a%feed": rate, "a%1": _course(10.0, 3), "b%1": _course(10.0, 3)})
    assert {each.kind for each in found} <= {"silence"}


def test_a_drop_begins_with_the_first_missing_messages() -> None:
    """The lowest count of the other days' hours around is half of that of the busy hour in which the drop begins."""
    rates = {name: _course(3.0, 3) for name in ("a%1", "a%2", "b%1")}
    for rate in rates.values():
        rate.reshape(3, _DAY)[:, 8 * _HOUR : 9 * _HOUR] *= 3.0
    begin = 2 * _DAY + 8 * _HOUR
    rates["a%1"][begin : begin + 4 * _HOUR] *= 0.1
    (drop,) = _found(rates)
    assert drop.start == pytest.approx((_FIRST + begin) * STEP, abs=900)


_LESS = {"from night to night": (4, 22, []), "from noon on": (11, 22, ["traffic_drop"])}


@pytest.mark.parametrize(("first", "last", "kinds"), _LESS.values(), ids=_LESS)
def test_a_holiday_is_no_drop(first: int, last: int, kinds: list[str]) -> None:
    """A topic rests at night; on one day it has a tenth of its messages from one night to the other."""
    by_day = np.tile(np.repeat(np.isin(np.arange(24), range(6, 20)), _HOUR), 4)
    rates = {name: np.where(by_day, 4.0, 0.1) for name in ("a%1", "a%2", "b%1")}
    rates["a%1"][_DAY + first * _HOUR : _DAY + last * _HOUR] *= 0.1
    assert [each.kind for each in _found(rates)] == kinds
