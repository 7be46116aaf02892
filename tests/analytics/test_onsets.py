"""The onset of gradual changes of latency, errors, traffic and sizes."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.sizes import sizes
from analytics.incidents.onsets import daily_course, latency_bend, share_bend, volume_bend
from analytics.incidents.tables import STEP, Tables

_DAY = 288
_COURSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": lambda age: 6.0**age,
    "straight": lambda age: 1 + 5 * age,
    "levelling": lambda age: 1 + 5 * np.minimum(age / 0.6, 1),
    "stairs": lambda age: 1 + 5 * np.ceil(8 * age) / 8,
}


def _factors(course: str, length: int, bend: int) -> np.ndarray:
    age = np.clip(np.arange(length) - bend, 0, None) / (length - bend)
    return np.where(age > 0, _COURSES[course](age), 1.0)


@pytest.mark.parametrize("course", _COURSES)
def test_latency_that_grows_bends_where_it_begins(course: str) -> None:
    """Thirty requests in each period; a few of the values are outliers, and some periods have no requests."""
    random = np.random.default_rng(2)
    values = np.log(_factors(course, 240, 140)) + 0.1 * random.standard_normal(240)
    values[[20, 90, 131]] += 1.0
    weights = np.full(240, 30.0)
    weights[60:66] = 0.0
    bend, gain = latency_bend(values, weights)
    assert abs(bend - 140) <= 10
    assert gain > 0


def test_latency_that_is_there_at_once_is_no_growth() -> None:
    random = np.random.default_rng(3)
    values = np.where(np.arange(240) >= 140, 1.5, 0.0) + 0.1 * random.standard_normal(240)
    assert latency_bend(values, np.full(240, 30.0))[1] < 0


@pytest.mark.parametrize("course", _COURSES)
def test_traffic_grows_before_it_is_plain(course: str) -> None:
    expected = np.full(96, 40.0)
    rates = expected * _factors(course, 96, 50)
    fits = [
        volume_bend(np.random.default_rng(seed).poisson(rates).astype(float), expected, 66, 32) for seed in range(9)
    ]
    assert all(gain > 0 for _, gain in fits)
    assert abs(float(np.median([bend for bend, _ in fits])) - 50) <= 5


def test_traffic_that_is_there_at_once_is_no_growth() -> None:
    expected = np.full(96, 40.0)
    stepped = np.random.default_rng(1).poisson(np.where(np.arange(96) >= 66, 200.0, 40.0)).astype(float)
    assert volume_bend(stepped, expected, 66, 32)[1] < 0


@pytest.mark.parametrize("course", ["straight", "levelling", "stairs"])
def test_share_of_errors_grows_before_it_is_plain(course: str) -> None:
    random = np.random.default_rng(4)
    share = 0.001 + 0.06 * (_factors(course, 120, 60) - 1)
    requests = np.full(120, 50.0)
    bend, gain = share_bend(random.poisson(requests * share).astype(float), requests, 0.001)
    assert gain > 0
    assert abs(bend - 60) <= 6


def _latencies(days: int) -> tuple[np.ndarray, np.ndarray]:
    """Return latencies' logarithms that follow the load of the day, and the number of requests."""
    places = np.arange(days * _DAY)
    course = 0.5 * np.sin(places / _DAY * 2 * np.pi)
    return course + 0.05 * np.random.default_rng(5).standard_normal(places.size), np.full(places.size, 30.0)


def test_latency_that_follows_the_time_of_the_day_is_usual() -> None:
    """The third day grows in its second half; its course comes from the other days."""
    values, weights = _latencies(3)
    hidden = slice(2 * _DAY + 100, 3 * _DAY)
    values[hidden] += np.linspace(0, 2, _DAY - 100)
    rest = values - daily_course(weights * values, weights, 0, hidden)
    assert rest[: 2 * _DAY].std() < 0.1
    bend, gain = latency_bend(rest[2 * _DAY :], weights[2 * _DAY :])
    assert gain > 0
    assert abs(bend - 100) <= 12


def test_time_of_the_day_that_explains_nothing_is_left_out() -> None:
    values = np.random.default_rng(6).standard_normal(4 * _DAY)
    assert not daily_course(30 * values, np.full(4 * _DAY, 30.0), 0, slice(0, 0)).any()


def test_a_single_day_has_no_course() -> None:
    values, weights = _latencies(1)
    assert not daily_course(weights * values, weights, 0, slice(0, 0)).any()


def test_bodies_that_grow_for_hours_begin_before_they_are_large() -> None:
    """They grow twentyfold in twelve hours."""
    random = np.random.default_rng(2)
    begin, end, periods = 400, 544, 900
    grown = np.clip((np.arange(periods) - begin) / (end - begin), 0.0, 1.0) * (np.arange(periods) < end)
    sends = random.poisson(10.0, periods).astype(float)
    bytes_ = sends * 1000 * (1 + 19 * grown) * np.exp(0.2 * random.standard_normal(periods))
    large = np.where(1 + 19 * grown > 5, sends, 0.0)
    numbers = {"t": np.arange(periods), "dimension": "topic", "value": "a", "sends": sends, "bytes": bytes_}
    events = pd.DataFrame({"t": np.arange(periods), "event": "large", "topic": "a", "n": large, "rows_": large})
    events = events[events["n"] > 0].assign(bytes=bytes_[large > 0], op="send", client="c", tenant=None, sdk=None)
    events = events.assign(grp=None, broker=None, replica="r", network=None)
    members, blank = pd.DataFrame({"sdk": ["grpc JAVA 5.0.7"], "first_us": [0.0]}), pd.DataFrame()
    totals = pd.DataFrame({**numbers, "n": sends, "rows_": sends})
    (found,) = sizes(Tables(totals, events, blank, blank, members, blank, blank, blank))
    assert found.kind == "large_messages"
    # An hour is a twelfth of the incident.
    assert abs(found.start / STEP - begin) <= 12
