"""Shares that have the same course on most days."""

import numpy as np
import pytest

from analytics.incidents.daily import Course
from analytics.incidents.statistics import Array

STEP, DAY, HOUR = 300, 288, 12
Hours = dict[int, float]


def course(days: int, usual: float, every: Hours | None = None, of_day: dict[int, Hours] | None = None) -> Course:
    """Return a course of 40 requests a period. every, of_day: share by hour, of all days and of some."""
    shares = np.full((days, 24), usual)
    for hour, share in (every or {}).items():
        shares[:, hour] = share
    for day, hours in (of_day or {}).items():
        for hour, share in hours.items():
            shares[day, hour] = share
    whole = np.full(days * DAY, 40.0)
    return Course(whole * np.repeat(shares.ravel(), HOUR), whole, STEP, 20.0)


def span(day: int, first: int, last: int) -> tuple[int, int]:
    return day * DAY + first * HOUR, day * DAY + last * HOUR


NOON = {11: 0.1, 12: 0.12, 13: 0.1}
EARLY = {10: 0.1, 11: 0.12, 12: 0.1}
NIGHT = dict.fromkeys((*range(7), *range(20, 24)), 0.0)


def test_the_busy_hours_of_each_day_are_busy() -> None:
    assert course(3, 0.001, NOON).is_busy(*span(1, 11, 14))


def test_clocks_that_change_move_the_busy_hours() -> None:
    assert course(2, 0.001, of_day={0: NOON, 1: EARLY}).is_busy(*span(1, 10, 13))


def test_clocks_that_change_between_the_other_days_move_the_busy_hours() -> None:
    """At no one time are most of the other days busy: of five days, one has the time, two another, and two are free."""
    seen = course(6, 0.001, of_day={0: {12: 0.1}, 1: {12: 0.1}, 4: {11: 0.1}, 5: {11: 0.1}})
    assert seen.is_busy(*span(1, 12, 13))


def test_a_span_of_several_busy_hours_is_busy() -> None:
    assert course(4, 0.001, NOON).is_busy(*span(1, 11, 38))


def _with_jobs(shares: list[float]) -> Course:
    """Return a course in which a job of ten minutes makes this share of the requests slow, by day."""
    slow = np.zeros(len(shares) * DAY)
    for day, share in enumerate(shares):
        slow[day * DAY + 100 : day * DAY + 102] = 40.0 * share
    return Course(slow, np.full(slow.size, 40.0), STEP, 20.0)


@pytest.mark.parametrize(("others", "busy"), [(0.5, True), (0.1, False)])
def test_a_job_of_some_minutes_is_compared_with_the_same_minutes(others: float, busy: bool) -> None:
    """Its share is smaller in the half hour around it."""
    assert _with_jobs([others, 0.6, others]).is_busy(DAY + 100, DAY + 102) is busy


FAULTS = {
    "one day": (course(3, 0.001, of_day={1: NOON}), span(1, 11, 14)),
    "worse": (course(3, 0.001, NOON, {1: {12: 0.6}}), span(1, 12, 13)),
    "lasting": (course(3, 0.1), span(1, 8, 20)),
    "single day": (course(1, 0.001, NOON), span(0, 11, 14)),
}


@pytest.mark.parametrize(("seen", "when"), FAULTS.values(), ids=FAULTS)
def test_faults_are_not_busy_hours(seen: Course, when: tuple[int, int]) -> None:
    assert not seen.is_busy(*when)


def test_a_group_that_works_by_day_rests_at_night() -> None:
    assert course(3, 1.0, NIGHT).rests(*span(1, 20, 24))


STOPS = {
    "one day": (course(3, 1.0, of_day={1: NIGHT}), span(1, 20, 24)),
    "beside less": (course(3, 1.0, {12: 0.7}, {1: {12: 0.0}}), span(1, 12, 13)),
    "never works": (course(3, 0.0), span(1, 12, 13)),
}


@pytest.mark.parametrize(("seen", "when"), STOPS.values(), ids=STOPS)
def test_stops_are_no_rest(seen: Course, when: tuple[int, int]) -> None:
    assert not seen.rests(*when)


def test_a_group_of_few_messages_that_lags_does_not_rest() -> None:
    random = np.random.default_rng(5)
    whole = np.full(4 * DAY, 1.5)
    taken: Array = random.poisson(1.5, 4 * DAY).astype(float)
    when = span(2, 9, 12)
    taken[slice(*when)] = random.poisson(0.75, 3 * HOUR)
    assert not Course(taken, whole, STEP, 14.0).rests(*when)


def test_a_quiet_night_has_a_share_as_a_whole() -> None:
    """A group that works by day takes nothing at night, in which each half hour has too few messages for a share."""
    by_day = np.isin(np.arange(3 * 24) % 24, range(8, 20))
    whole = np.repeat(np.where(by_day, 40.0, 0.3), HOUR)
    assert Course(whole * np.repeat(by_day, HOUR), whole, STEP, 14.0).rests(*span(1, 20, 32))
