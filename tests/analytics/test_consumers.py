"""Groups that stop, lag or rewind, and those that only seem to: resting by day, or new."""

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.consumers import consumers
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP, Tables

_DAY, _HOUR = 86400 // STEP, 3600 // STEP
_FIRST = 20_000 * _DAY
_SENT = 10.0


def _kinds(taken: Array, sent: Array | float = _SENT) -> list[str]:
    return [str(each.kind) for each in _found(taken, sent)]


def _found(taken: Array, sent: Array | float = _SENT) -> list[Finding]:
    """Return the findings about a group. taken: messages by period, of 10 that are due, or of these."""
    periods = np.arange(taken.size) + _FIRST
    due = pd.DataFrame({"t": periods, "op": "due", "topic": "t", "grp": None, "n": sent, "m": sent, "rows_": sent})
    received = due.assign(op="receive", grp="g", n=taken, m=taken, rows_=taken)
    totals = pd.DataFrame({"t": periods, "dimension": "topic", "value": "t", "n": _SENT})
    empty = pd.DataFrame()
    flows = pd.concat([due, received[taken > 0]])
    return consumers(Tables(totals, empty, flows, empty, empty, empty, empty, empty))


def _steady(days: int = 4) -> Array:
    return np.full(days * _DAY, _SENT)


def test_a_group_that_takes_what_is_due_has_no_finding() -> None:
    assert _kinds(_steady()) == []


@pytest.mark.parametrize(
    ("share", "kind"), [(0.0, "consumer_stopped"), (0.5, "consumer_lagging"), (4.0, "consumer_rewinding")]
)
def test_a_group_in_trouble_for_hours_is_found(share: float, kind: str) -> None:
    taken = _steady()
    taken[2 * _DAY : 2 * _DAY + 5 * _HOUR] *= share
    assert _kinds(taken) == [kind]


def test_a_group_that_rests_every_night_has_no_finding() -> None:
    days = _steady().reshape(-1, _DAY)
    days[:, : 6 * _HOUR] = 0.0
    # The backlog is taken in the morning.
    days[:, 6 * _HOUR : 12 * _HOUR] *= 2
    assert _kinds(days.ravel()) == []


def test_a_group_with_office_hours_has_its_weekend_off() -> None:
    """The records begin on a Friday, and half as many messages are sent at weekends."""
    sent = _steady(6).reshape(-1, _DAY)
    sent[:, : 7 * _HOUR] = sent[:, 17 * _HOUR :] = 0.5
    taken = np.where(sent > 0.5, sent, 0.0)
    sent[1:3] *= 0.5
    taken[1:3] = 0.0
    # The backlog is taken in the morning.
    taken[3, 7 * _HOUR : 12 * _HOUR] *= 3.0
    assert _kinds(taken.ravel(), sent.ravel()) == []


def test_a_group_that_works_at_night_and_stops_for_a_weekend_is_found() -> None:
    taken = _steady(6)
    taken[17 * _HOUR : 3 * _DAY + 7 * _HOUR] = 0.0
    assert _kinds(taken) == ["consumer_stopped"]


def test_a_new_group_that_begins_with_the_oldest_message_has_no_finding() -> None:
    taken = _steady()
    taken[: 2 * _DAY] = 0.0
    taken[2 * _DAY : 2 * _DAY + 8 * _HOUR] = 5 * _SENT
    assert _kinds(taken) == []


def test_a_new_group_that_stops_is_found() -> None:
    taken = _steady()
    taken[: 2 * _DAY] = 0.0
    taken[3 * _DAY :] = 0.0
    assert _kinds(taken) == ["consumer_stopped"]


def test_a_group_that_is_hardly_too_slow_at_first_lags_from_then_on() -> None:
    taken = _steady()
    taken[2 * _DAY : 2 * _DAY + _HOUR] *= 0.9
    taken[2 * _DAY + _HOUR : 2 * _DAY + 4 * _HOUR] *= 0.4
    (lag,) = _found(taken)
    assert (lag.kind, lag.start) == ("consumer_lagging", (_FIRST + 2 * _DAY) * STEP)


@pytest.mark.parametrize(("later", "kinds"), [(3.0, ["consumer_lagging"]), (1.0, [])])
def test_a_group_of_few_messages_that_takes_two_thirds_lags_if_it_takes_the_rest_later(
    later: float, kinds: list[str]
) -> None:
    """Some missing messages alone may be chance, or taken by others."""
    sent = np.full(4 * _DAY, 3.0)
    taken = sent.copy()
    begin, end = 2 * _DAY, 2 * _DAY + 3 * _HOUR
    taken[begin:end] *= 0.6
    taken[end : end + _HOUR // 2] *= later
    assert _kinds(taken, sent) == kinds
