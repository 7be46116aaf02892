"""The expected count at a time of the day."""

import numpy as np
import pytest

from analytics.incidents.seasonal import season, weekend_offset

_STEP = 300
_DAY = 288
# Friday 23 October 2026, 00:00 UTC.
_FRIDAY = 1792713600 // _STEP


def _days(levels: list[float]) -> np.ndarray:
    curve = 10 + 8 * np.sin(np.arange(_DAY) / _DAY * 2 * np.pi)
    return np.concatenate([level * curve for level in levels])


def test_weekends_have_their_own_level_with_four_days() -> None:
    counts = _days([1.0, 0.2, 0.2, 1.0])
    found = season(counts[None, :], _FRIDAY, _STEP)
    assert found is not None
    assert found.expected[0] == pytest.approx(counts, rel=0.1, abs=0.3)
    assert (found.low <= found.expected).all()
    assert (found.high >= found.expected).all()


def test_incident_of_one_day_does_not_move_the_season() -> None:
    counts = _days([1.0, 0.2, 0.2, 1.0])
    silent = counts.copy()
    silent[3 * _DAY + 150 :] = 0.0
    found = season(silent[None, :], _FRIDAY, _STEP)
    assert found is not None
    assert found.expected[0, 3 * _DAY + 150 :].sum() > 0.4 * counts[3 * _DAY + 150 :].sum()


def test_less_than_two_days_have_no_season() -> None:
    assert season(np.ones((1, _DAY)), _FRIDAY, _STEP) is None


@pytest.mark.parametrize("hours", [-2, 0, 5])
def test_the_hour_at_which_weekends_begin_is_learnt(hours: int) -> None:
    random = np.random.default_rng(3)
    weekdays = np.roll(np.repeat([1.0, 1.0, 0.2, 0.2, 1.0], _DAY), hours * 12)
    counts = random.poisson(np.tile(weekdays * 10, (8, 1)))
    found = weekend_offset(counts, _FRIDAY - _DAY, _STEP)
    assert found is not None
    assert abs(found / 2 - hours) <= 1


def test_records_without_a_change_of_level_tell_nothing_about_weekends() -> None:
    counts = np.random.default_rng(3).poisson(10.0, (8, 5 * _DAY))
    assert weekend_offset(counts, _FRIDAY - _DAY, _STEP) is None
    assert weekend_offset(counts[:, : 2 * _DAY], _FRIDAY - 4 * _DAY, _STEP) is None
