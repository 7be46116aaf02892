"""Keys that suddenly have most messages of a topic."""

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.keys import keys
from analytics.incidents.finding import Finding
from analytics.incidents.statistics import Array
from analytics.incidents.tables import KEY_STEPS, STEP, Tables

_PERIODS, _SENT = 96, 200.0
_FIRST = 20_000 * 48


def _found(counts: dict[int, Array], weight: float = 1.0) -> list[Finding]:
    """Return the findings about a topic with 200 messages a period. counts: those of single keys, by period. weight:
    messages that a record stands for.
    """
    parts = [pd.DataFrame({"t": np.arange(_PERIODS) + _FIRST, "mkey": key, "n": each}) for key, each in counts.items()]
    seen = pd.concat(parts, ignore_index=True).assign(topic="t")
    sends = pd.DataFrame({"t": np.arange(_PERIODS * KEY_STEPS) + _FIRST * KEY_STEPS, "op": "send", "topic": "t"})
    sends = sends.assign(grp=None, n=_SENT / KEY_STEPS, m=_SENT / KEY_STEPS, rows_=_SENT / KEY_STEPS / weight)
    totals = sends[["t"]].assign(dimension="topic", value="t", n=_SENT / KEY_STEPS)
    blank = pd.DataFrame()
    return keys(Tables(totals, blank, sends, blank, blank, blank, seen[seen["n"] >= 4], blank))


def _key(usual: float, hot: float, begin: int, end: int) -> Array:
    counts = np.full(_PERIODS, usual)
    counts[begin:end] = hot
    return counts


@pytest.mark.parametrize("usual", [(60, 20), (60, 55)])
def test_a_key_beside_ones_that_always_have_most_messages_is_found(usual: tuple[float, float]) -> None:
    (hot,) = _found({1: _key(usual[0], 0, 0, 0), 2: _key(usual[1], 0, 0, 0), 7: _key(0, 80, 40, 44)})
    assert (hot.about["key"], hot.start) == (f"{7:016x}", (_FIRST + 40) * KEY_STEPS * STEP)


def test_the_keys_of_an_import_are_not_hot() -> None:
    """One key comes after the other, beside one that comes always."""
    one_by_one = {place + 2: _key(0, 90, 4 * place, 4 * place + 4) for place in range(_PERIODS // 4)}
    assert _found(one_by_one) == []
    assert _found({1: _key(100, 100, 0, 1), **one_by_one}) == []


def test_a_few_sampled_records_are_no_hot_key() -> None:
    counts = {1: _key(20, 20, 0, 1), 7: _key(0, 120, 40, 41)}
    assert _found(counts)
    assert _found(counts, weight=20.0) == []


def test_a_hot_key_begins_when_it_is_hot_although_few_records_of_it_come_before() -> None:
    """Of 25 messages one is recorded: three records of the key in a period are chance."""
    counts = _key(6.0, 120.0, 40, 48)
    counts[34:40] = 25.0
    (hot,) = _found({7: counts, 1: _key(20, 20, 0, 1)}, weight=5.0)
    assert hot.start == pytest.approx((_FIRST + 40) * KEY_STEPS * STEP, abs=900)
