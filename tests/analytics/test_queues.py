"""Queues of groups that take or commit at other times than messages come."""

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detectors.queues import clients, queues
from analytics.incidents.statistics import Array
from analytics.incidents.tables import COARSE, STEP, Tables, sampled_share

_DAY = 86400 // (COARSE * STEP)
_PERIODS = 4 * _DAY


def _kinds(sent: Array, taken: Array, commits: Array | None = None, weight: float = 1.0) -> list[str]:
    """Return the kinds of findings. sent, taken, commits: by queue and period; weight: of a record."""
    parts = []
    for op, counts in (("send", sent), ("receive", taken), ("ack", commits)):
        for queue, row in enumerate(() if counts is None else counts):
            part = pd.DataFrame({"t": np.arange(row.size), "queue": queue, "op": op, "m": row, "n": row})
            part["rows_"] = row / weight
            parts.append(part[row > 0].assign(topic="a", broker="b", grp=None if op == "send" else "g"))
    blank = pd.DataFrame({"topic": []})
    spans = pd.DataFrame({"t": np.arange(_PERIODS * COARSE)})
    rows = pd.concat(parts, ignore_index=True)
    return [each.kind for each in queues(Tables(spans, blank, blank, rows, blank, blank, blank, blank))]


@pytest.mark.parametrize("rate", [0.7, 2.0, 6.0])
def test_a_group_that_takes_a_days_messages_at_night_has_no_stopped_queue(rate: float) -> None:
    """The group takes the messages since the night before in an hour and a half; by night, little is sent."""
    course = 1 - 0.8 * np.cos((np.arange(_PERIODS) - 12) * 2 * np.pi / _DAY)
    sent = np.random.default_rng(3).poisson(rate * course, (4, _PERIODS)).astype(float)
    taken = np.zeros_like(sent)
    for begin in range(9, _PERIODS, _DAY):
        taken[:, begin : begin + 9] = sent[:, max(begin - _DAY, 0) : begin].sum(axis=1)[:, None] / 9
    assert "queue_stopped" not in _kinds(sent, taken)


@pytest.mark.parametrize(("stops", "kinds"), [(True, ["commits_stopped"]), (False, [])])
def test_commits_without_receives_are_compared_with_those_of_other_queues(stops: bool, kinds: list[str]) -> None:
    """All queues have few messages for six hours, or one is not committed."""
    random = np.random.default_rng(4)
    rates = np.full((12, _PERIODS), 5.0)
    rates[1 if stops else slice(None), 300:336] *= 0.0 if stops else 0.03
    assert _kinds(rates[:0], rates[:0], random.poisson(rates).astype(float)) == kinds


@pytest.mark.parametrize("stops", [True, False])
def test_a_group_that_commits_no_queue_is_found_where_each_has_few_records(stops: bool) -> None:
    """Of the commits, one of twenty is recorded: a queue has a record in each half an hour."""
    random = np.random.default_rng(5)
    taken = 20.0 * random.poisson(1.0, (8, _PERIODS))
    commits = 20.0 * random.poisson(0.5, (8, _PERIODS))
    commits[:, 300:312] *= 0.0 if stops else 1.0
    assert _kinds(taken[:0], taken, commits, weight=20.0) == ["commits_stopped"] * stops


def _stopped(counts: dict[str, Array], weight: float = 1.0) -> list[str]:
    """Return the clients that stop, of a group that takes 60 messages a period. weight: messages of a record."""
    parts = [pd.DataFrame({"t": np.arange(_PERIODS), "client": name, "m": row}) for name, row in counts.items()]
    members = pd.concat(parts, ignore_index=True).query("m > 0").assign(op="receive", topic="a", grp="g")
    members = members.assign(n=members["m"], rows_=members["m"] / weight)
    taken = sum(counts.values())
    flows = [
        pd.DataFrame({"t": np.arange(_PERIODS) * COARSE, "op": op, "m": row, "grp": group}).assign(topic="a")
        for op, row, group in (("receive", taken, "g"), ("due", np.full(_PERIODS, 60.0), None))
    ]
    flow = pd.concat(flows, ignore_index=True)
    flow = flow.assign(n=flow["m"], rows_=flow["m"] / weight)
    blank = pd.DataFrame({"topic": []})
    spans = pd.DataFrame({"t": np.arange(_PERIODS * COARSE)})
    return [each.about["client"] for each in clients(Tables(spans, blank, flow, blank, members, blank, blank, blank))]


def _client(begin: int, end: int, rate: float = 20.0) -> Array:
    series = np.zeros(_PERIODS)
    series[begin:end] = rate
    return series


def test_a_client_that_starts_again_with_another_id_has_not_stopped() -> None:
    """The group has less to do after the restart, because the others take more than their part before it."""
    stays = _client(0, _PERIODS) + _client(0, 300, 10.0)
    assert _stopped({"a": stays, "b": _client(0, 300)}) == ["b"]
    assert _stopped({"a": stays, "b": _client(0, 300), "c": _client(301, _PERIODS, 10.0)}) == []


def test_a_group_that_took_less_than_due_before_a_client_left_misses_nothing() -> None:
    """The group takes three quarters of the due messages on the last days, before the client leaves and after."""
    stays, leaves = _client(0, 200, 30.0) + _client(200, _PERIODS, 20.0), _client(0, 200, 30.0) + _client(200, 400)
    takes_over = _client(400, _PERIODS)
    assert _stopped({"a": stays + takes_over, "b": leaves}) == []


def test_a_group_that_takes_every_message_after_a_client_left_misses_nothing() -> None:
    """Before, it took a backlog too: a quarter more than the due messages."""
    stays, leaves = _client(0, 400, 25.0) + _client(400, _PERIODS, 60.0), _client(0, 300) + _client(300, 400, 50.0)
    assert _stopped({"a": stays, "b": leaves}) == []


def test_a_client_whose_messages_others_take_has_not_stopped() -> None:
    """The group misses a tenth of the messages, a third of the client's."""
    stays, leaves = _client(0, 400, 42.0) + _client(400, _PERIODS, 54.0), _client(0, 400, 18.0)
    assert _stopped({"a": stays, "b": leaves}) == []
    assert _stopped({"a": _client(0, _PERIODS, 42.0), "b": leaves}) == ["b"]


def test_polls_without_messages_are_no_sample_of_those_with_messages() -> None:
    """Of twenty polls in vain one is recorded, of the messages each."""
    rows = pd.DataFrame({"op": "receive", "m": [0.0, 40.0], "n": [200.0, 40.0], "rows_": [10.0, 40.0]})
    assert sampled_share(rows) == 1.0
    assert sampled_share(rows.assign(op="ack", n=[40.0, 40.0])) == 0.625
