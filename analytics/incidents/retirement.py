"""Topics that are given up as planned: their groups stop asking for messages too, and all their clients work on."""

from analytics.incidents.tables import COARSE, STEP, Tables
from analytics.transforms.operations import RECEIVE, SEND

# Seconds after a topic's last message in which its groups ask for the last time.
_LAST = 7200.0


def is_retired(tables: Tables, topic: str, begin: float) -> bool:
    """Return whether a topic is given up. begin: seconds since 1970 of its silence, which lasts to the records' end.

    After a crash, the groups of the topic ask on, or clients of theirs or of its senders make no request at all. A
    group that asks a last time in vain shows that requests without messages are recorded.
    """
    if tables.members.empty:
        return False
    rows = tables.members[tables.members["topic"] == topic]
    receives = rows[rows["op"] == RECEIVE]
    times = receives["t"] * COARSE * STEP
    last = receives[times > begin - COARSE * STEP]
    if not (last["m"] == 0).any() or (times > begin + _LAST).any():
        return False
    totals = tables.totals[(tables.totals["dimension"] == "client") & (tables.totals["t"] * STEP > begin + _LAST)]
    alive = frozenset(totals["value"])
    parts = [rows[rows["op"] == SEND], *(part for _, part in receives.groupby("grp"))]
    return all(not alive.isdisjoint(part["client"]) for part in parts)
