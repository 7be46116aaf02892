"""The data of the page's drill-down, from the compact tables: series by topic, group, client and other dimensions,
edges from producers over topics to groups, and the incidents. The page needs no server for it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analytics.incidents.finding import ATTRIBUTES
from analytics.incidents.incident import Incident
from analytics.incidents.tables import STEP, Tables
from analytics.lineage import lineage
from analytics.transforms.operations import RECEIVE, SEND

# Dimensions in the order of the menu: name on the page, column of the tables.
DIMENSIONS: Mapping[str, str] = {
    "topic": "topic",
    "group": "grp",
    "client": "client",
    "broker": "broker",
    "tenant": "tenant",
    "replica": "replica",
    "version": "sdk",
    "addresses": "network",
}
# Values of a dimension on the page, in addition to those of incidents; the rest is summed as "others".
_VALUES = 30
_OTHERS = "others"
# Points of a series at most, and the lengths of a point in STEPs.
_POINTS = 320
_LENGTHS = (1, 3, 6, 12, 36, 288)
_EVENTS = ("failed", "slow", "redelivered", "buried")


def explorer(tables: Tables, incidents: Sequence[Incident], zone: str) -> dict[str, Any]:
    """Return the data as values of JSON. Series have a number for each point; one without any but 0 is left out."""
    length = next((each for each in _LENGTHS if tables.periods / each <= _POINTS), _LENGTHS[-1])
    first = tables.first // length
    points = tables.last // length - first + 1
    shown = [each for each in incidents if each.muted is None]
    return {
        "zone": zone,
        "begin": first * length * STEP,
        "step": length * STEP,
        "points": points,
        "dimensions": {
            name: _dimension(tables, column, _named(shown, name), length, first, points)
            for name, column in DIMENSIONS.items()
        },
        "incidents": [_incident(each) for each in shown],
        "lineage": lineage(tables),
    }


def embedded(data: Mapping[str, Any]) -> str:
    """Return the data as JSON that may stand in a <script> element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _named(incidents: Sequence[Incident], dimension: str) -> set[str]:
    """Return the values of a dimension that incidents name."""
    attribute = {"addresses": "network", "version": "sdk"}.get(dimension, dimension)
    return {each.about[attribute] for each in incidents if attribute in each.about}


def _dimension(
    tables: Tables, column: str, named: set[str], length: int, first: int, points: int
) -> dict[str, dict[str, list[float]]]:
    """Return the series of each value, the busiest first."""
    totals = tables.totals[tables.totals["dimension"] == column]
    sums = totals.groupby("value")["n"].sum().sort_values(ascending=False)
    kept = [str(value) for place, value in enumerate(sums.index) if place < _VALUES or value in named]
    frames = {"requests": totals.assign(amount=totals["n"]), "received": totals.assign(amount=totals["received"])}
    events = tables.events[tables.events[column].notna()]
    for event in _EVENTS:
        own = events[events["event"] == event]
        frames[event] = own.assign(value=own[column], amount=own["n"])
    if column in ("topic", "grp"):
        frames |= _flows(tables, column)
    series: dict[str, dict[str, list[float]]] = {name: {} for name in kept}
    if len(kept) < len(sums):
        series[_OTHERS] = {}
    for measure, frame in frames.items():
        codes = pd.Index(kept).get_indexer(pd.Index(frame["value"]))
        codes = np.where(codes < 0, len(kept), codes)
        places = codes * points + (frame["t"].to_numpy() // length - first)
        matrix = np.bincount(places, frame["amount"], (len(kept) + 1) * points).reshape(-1, points)
        for name, row in zip([*kept, _OTHERS], matrix, strict=True):
            if row.any() and name in series:
                series[name][measure] = [round(float(value), 1) if value % 1 else int(value) for value in row]
    return series


def _flows(tables: Tables, column: str) -> dict[str, pd.DataFrame]:
    """Return the due and the taken messages: of a topic by all its groups, of a group from all its topics."""
    flows = tables.flows[(tables.flows["t"] >= tables.first) & (tables.flows["t"] <= tables.last)]
    taken = flows[flows["op"] == RECEIVE]
    due = flows[flows["op"] == "due"]
    if column == "topic":
        sent = flows[flows["op"] == SEND]
        return {"sent": sent.assign(value=sent["topic"], amount=sent["m"])}
    pairs = taken[["topic", "grp"]].drop_duplicates()
    joined = due.drop(columns=["grp"]).merge(pairs, on="topic")
    return {
        "due": joined.assign(value=joined["grp"], amount=joined["m"]),
        "taken": taken.assign(value=taken["grp"], amount=taken["m"]),
    }


def _incident(incident: Incident) -> dict[str, Any]:
    about = incident.about
    page = {"network": "addresses", "sdk": "version"}
    # The narrowest attribute that the page has a dimension for.
    narrow = [name for name in reversed(ATTRIBUTES) if name in about and page.get(name, name) in DIMENSIONS]
    narrow = [name for name in narrow if name != "version"]
    scope = incident.findings[0].facts.get("scope", "").split("+") if incident.findings else []
    chosen = next((name for name in scope if name in narrow), narrow[0] if narrow else None)
    return {
        "kind": incident.kind.replace("_", " "),
        "severity": incident.severity,
        "start": incident.start,
        "end": incident.end,
        "open": bool(incident.open),
        "dimension": None if chosen is None else page.get(chosen, chosen),
        "value": None if chosen is None else about[chosen],
        "happened": incident.happened,
        "advice": incident.advice,
    }
