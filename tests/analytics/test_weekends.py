"""Silences that are a topic's own weekend."""

import numpy as np
import pytest

from analytics.incidents.weekends import closed_weekend

_STEP, _DAY = 300, 288
# A Tuesday.
_FIRST = 20_004 * _DAY


def _closed(days: int, *silences: tuple[float, float]) -> tuple[int, int] | None:
    """Return the answer about a topic without messages from one time to another, in days since a Tuesday."""
    counts = np.full(days * _DAY, 5.0)
    for begin, end in silences:
        counts[round(begin * _DAY) : round(end * _DAY)] = 0.0
    return closed_weekend(counts, _FIRST, _STEP)


# From Friday evening to Monday morning in Tokyo and Los Angeles, too.
@pytest.mark.parametrize(("days", "begin", "end"), [(7, 3.9, 5.9), (8, 3.4, 6.0), (8, 4.05, 6.65)])
def test_a_weekend_without_messages_is_closed(days: int, begin: float, end: float) -> None:
    expected = (round(begin * _DAY) - 1, round(end * _DAY) + 1)
    assert _closed(days, (begin, end)) == expected
    assert _closed(days, (1.0, 1.5), (begin, end), (6.8, 6.9)) == expected


@pytest.mark.parametrize(
    ("days", "begin", "end"),
    [(6, 3.9, 6.0), (13, 3.9, 5.9), (8, 2.9, 6.2), (7, 4.5, 5.8)],
    ids=["it goes on", "there is another weekend", "it is longer", "it is shorter"],
)
def test_other_silences_are_none(days: int, begin: float, end: float) -> None:
    assert _closed(days, (begin, end)) is None


@pytest.mark.parametrize(
    ("night", "closed"), [((0.9, 1.25), True), ((0.5, 0.85), False)], ids=["it rests at night", "it rests at noon"]
)
def test_a_sunday_off_between_two_nights_is_closed(night: tuple[float, float], closed: bool) -> None:
    """Shifts of six days a week: from Saturday evening to Monday morning nothing is sent."""
    nights = [(day + night[0], day + night[1]) for day in range(4)]
    expected = (round(4.9 * _DAY) - 1, round(6.25 * _DAY) + 1) if closed else None
    assert _closed(8, *nights, (4.9, 6.25)) == expected
