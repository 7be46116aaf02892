"""Topics that are given up, and those whose senders or groups fail."""

import pandas as pd
import pytest

from analytics.incidents.retirement import is_retired
from analytics.incidents.tables import COARSE, STEP, Tables

_PERIODS, _BEGIN = 600, 300


def _asked(until: int, empty_from: int) -> pd.DataFrame:
    """Return the requests of a sender until the topic's silence, and of its group until a period."""
    sent = pd.DataFrame({"t": range(_BEGIN // COARSE), "op": "send", "grp": None, "client": "sender", "m": 5.0})
    places = range(until // COARSE)
    taken = [5.0 if COARSE * place < empty_from else 0.0 for place in places]
    asked = pd.DataFrame({"t": places, "op": "receive", "grp": "group", "client": "receiver", "m": taken})
    return pd.concat([sent, asked]).assign(topic="feed")


@pytest.mark.parametrize(
    ("until", "empty_from", "alive", "retired"),
    [
        (_BEGIN + 6, _BEGIN, ("sender", "receiver"), True),
        (_PERIODS, _BEGIN, ("sender", "receiver"), False),
        (_BEGIN + 6, _BEGIN, ("receiver",), False),
        (_BEGIN + 6, _BEGIN, ("sender",), False),
        (_BEGIN, _PERIODS, ("sender", "receiver"), False),
    ],
    ids=[
        "retired",
        "its group asks on",
        "its sender is gone",
        "its group is gone",
        "requests in vain are not recorded",
    ],
)
def test_a_topic_is_retired_if_its_group_goes_too_and_all_clients_work_on(
    until: int, empty_from: int, alive: tuple[str, ...], retired: bool
) -> None:
    clients = [pd.DataFrame({"t": range(_PERIODS), "dimension": "client", "value": client}) for client in alive]
    blank = pd.DataFrame()
    tables = Tables(pd.concat(clients), blank, blank, blank, _asked(until, empty_from), blank, blank, blank)
    assert is_retired(tables, "feed", _BEGIN * STEP) == retired
