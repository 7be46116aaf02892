"""Clients whose scheduled messages have delays unlike those of the others."""

from pathlib import Path

import numpy as np
import pytest

from analytics.incidents.detection import detect
from analytics.incidents.detectors.clocks import clocks
from analytics.incidents.finding import Finding
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write
from tests.analytics.score import tables

_HOURS, _BEGIN, _END = 12, 300, 420


def _found(root: Path, wrong: float, spread: float) -> list[Finding]:
    """Return the findings of four clients that schedule messages an hour ahead.

    wrong: minutes by which the clock of one of them is off for two hours; spread: of the delays, as a logarithm.
    """
    random = np.random.default_rng(5)
    rows = []
    for minute in range(0, _HOURS * 60, 2):
        for number in range(4):
            error = wrong if number == 2 and _BEGIN <= minute < _END else 0.0
            delay = 60 * np.exp(spread * random.uniform(-1, 1)) + error
            names = {"client_id": f"c-{number}", "address": f"10.0.{number}.1"}
            rows.append(kit.send(kit.at(minute, number), delay_ms=int(delay * 60_000), **names))
    write(root, rows)
    return clocks(tables(root))


@pytest.mark.parametrize("wrong", [20.0, -20.0, 300.0])
def test_a_clock_that_is_minutes_off_is_found_where_all_have_one_delay(tmp_path: Path, wrong: float) -> None:
    (clock,) = _found(tmp_path, wrong, 0.01)
    assert (clock.kind, clock.about["client"]) == ("client_clock", "c-2")
    assert abs(clock.start - kit.at(_BEGIN).timestamp()) <= 900


def test_minutes_are_no_wrong_clock_where_delays_differ(tmp_path: Path) -> None:
    assert _found(tmp_path, 20.0, 1.0) == []


_SENDERS = {"restarted once": (0, 1, 2, 3), "restarted once, three hosts": (0, 1, 2, 2, 2, 2)}


@pytest.mark.parametrize("senders", _SENDERS.values(), ids=_SENDERS)
def test_a_clock_is_found_where_delays_differ_by_less_and_a_deployment_does_not_hide_it(
    tmp_path: Path, senders: tuple[int, ...]
) -> None:
    """Delays of half an hour to two hours, by design; a clock is ninety-five minutes ahead, also after a restart.

    senders: numbers of the hosts that send every two minutes.
    """
    random = np.random.default_rng(5)
    begin, restart, end = 180, 330, 480
    rows = []
    for minute in range(0, _HOURS * 60, 2):
        for place, number in enumerate(senders):
            wrong = number == 2 and begin <= minute < end
            delay = 60 * random.choice([0.5, 1, 1, 2]) - random.uniform(0, 15) + (95 if wrong else 0)
            start = 2 if number == 2 and minute >= restart else 1
            names = {"client_id": f"10.0.{number}.1@7#{start}", "address": f"10.0.{number}.1"}
            rows.append(kit.send(kit.at(minute, place), delay_ms=int(delay * 60_000), **names))
    write(tmp_path, rows)
    (clock,) = [each for each in detect(tables(tmp_path)) if each.kind == "client_clock"]
    assert clock.about["network"] == "10.0.2.0/24"
    assert max(abs(clock.start - kit.at(begin).timestamp()), abs(clock.end - kit.at(end).timestamp())) <= 900
