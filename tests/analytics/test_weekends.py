"""Silences that are a topic's own weekend."""

import numpy as np
import pytest

from analytics.incidents.statistics import Interval
from analytics.incidents.weekends import is_only_weekend

_STEP, _DAY = 300, 288
# A Tuesday.
_FIRST = 20_004 * _DAY


def _is_weekend(days: int, begin: float, end: float, seen: tuple[float, float]) -> bool:
    """Return the answer about a span, in days since a Tuesday, of a topic without messages from one day to another."""
    counts = np.full(days * _DAY, 5.0)
    counts[round(begin * _DAY) : round(end * _DAY)] = 0.0
    span = Interval(0, round(seen[0] * _DAY), round(seen[1] * _DAY), 1.0)
    return is_only_weekend(counts, _FIRST, _STEP, span)


@pytest.mark.parametrize("seen", [(3.9, 5.9), (3.9, 4.0), (5.5, 5.9)])
def test_a_part_of_a_weekend_is_one(seen: tuple[float, float]) -> None:
    assert _is_weekend(7, 3.9, 5.9, seen)


@pytest.mark.parametrize(("begin", "end"), [(3.4, 6.0), (4.05, 6.65)])
def test_weekends_of_other_zones_are_ones(begin: float, end: float) -> None:
    """From Friday evening to Monday morning in Tokyo and Los Angeles."""
    assert _is_weekend(8, begin, end, (begin, end))


@pytest.mark.parametrize(
    ("days", "begin", "end"),
    [(6, 3.9, 6.0), (13, 3.9, 5.9), (8, 2.9, 6.2), (7, 4.5, 5.8)],
    ids=["it goes on", "there is another weekend", "it is longer", "it is shorter"],
)
def test_other_silences_are_none(days: int, begin: float, end: float) -> None:
    assert not _is_weekend(days, begin, end, (begin, end))
