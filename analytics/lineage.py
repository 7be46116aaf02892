"""Lineage: the producers and groups of each topic, their rates, and how these changed.

Made from the compact tables of `incidents/tables.py`: rates are messages per hour over the span of the records.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analytics.incidents.tables import COARSE, STEP, Tables
from analytics.transforms.operations import RECEIVE, SEND

# Producers and consumers of a topic by name; the others are counted.
_CLIENTS = 12
_TOPICS = 200


def lineage(tables: Tables) -> dict[str, Any]:
    """Return topics with their producers, groups and consumers, the busiest first, and the orphans.

    Rates are messages per hour: `rate` of the whole span, `before` and `after` of its first and second half. Orphans:
    topics that no group takes messages from, and groups that ask for messages and get none.
    """
    middle = (tables.first + tables.last + 1) // 2
    hours = max(tables.periods * STEP / 3600, STEP / 3600)
    flows = tables.flows[(tables.flows["t"] >= tables.first) & (tables.flows["t"] <= tables.last)]
    sent = _rates(flows[flows["op"] == SEND], ["topic"], middle, hours)
    taken = _rates(flows[flows["op"] == RECEIVE], ["topic", "grp"], middle, hours)
    members = tables.members.assign(t=tables.members["t"] * COARSE)
    producers = _rates(members[members["op"] == SEND], ["topic", "client"], middle, hours)
    consumers = _rates(members[members["op"] == RECEIVE], ["topic", "grp", "client"], middle, hours)
    topics = []
    for row in sent.sort_values("rate", ascending=False).head(_TOPICS).to_dict("records"):
        name = row["topic"]
        groups = taken[(taken["topic"] == name) & (taken["rate"] > 0)]
        topics.append(
            {
                "name": name,
                **_rate(row),
                "producers": _clients(producers[producers["topic"] == name]),
                "groups": [
                    {
                        "name": group["grp"],
                        **_rate(group),
                        "consumers": _clients(
                            consumers[(consumers["topic"] == name) & (consumers["grp"] == group["grp"])]
                        ),
                    }
                    for group in groups.sort_values("rate", ascending=False).to_dict("records")
                ],
            }
        )
    return {"topics": topics, "orphans": _orphans(sent, taken)}


def _rates(rows: pd.DataFrame, by: list[str], middle: int, hours: float) -> pd.DataFrame:
    later = rows["t"] >= middle
    amounts = rows.assign(before=rows["m"].where(~later, 0.0), after=rows["m"].where(later, 0.0))
    sums = amounts.groupby(by, as_index=False)[["m", "before", "after"]].sum()
    return sums.assign(rate=sums["m"] / hours, before=2 * sums["before"] / hours, after=2 * sums["after"] / hours)


def _rate(row: Mapping[Any, Any]) -> dict[str, float]:
    return {name: round(float(row[name]), 2) for name in ("rate", "before", "after")}


def _clients(rows: pd.DataFrame) -> dict[str, Any]:
    busiest = rows.sort_values("rate", ascending=False)
    named = [{"name": row["client"], **_rate(row)} for row in busiest.head(_CLIENTS).to_dict("records")]
    return {"count": len(rows), "busiest": named}


def _orphans(sent: pd.DataFrame, taken: pd.DataFrame) -> dict[str, list[str]]:
    alive = taken[taken["rate"] > 0]
    topics = sorted(set(sent.loc[sent["rate"] > 0, "topic"]) - set(alive["topic"]))
    groups = sorted(set(taken["grp"]) - set(alive["grp"]))
    return {"topics": topics, "groups": groups}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Return the lineage as text: a topic, then its producers and its groups."""
    for topic in found["topics"]:
        yield f"{topic['name']}: {_hourly(topic)}, from {_named(topic['producers'], 'producer')}"
        for group in topic["groups"]:
            yield f"    -> {group['name']}: {_hourly(group)}, by {_named(group['consumers'], 'consumer')}"
    for title, names in (("topics that nobody consumes", "topics"), ("groups that get no messages", "groups")):
        if found["orphans"][names]:
            yield f"{title}: {', '.join(found['orphans'][names])}"


def _hourly(each: Mapping[str, Any]) -> str:
    return f"{each['rate']:,.1f} messages per hour ({each['before']:,.1f}, then {each['after']:,.1f})"


def _named(clients: Mapping[str, Any], noun: str) -> str:
    named = ", ".join(each["name"] for each in clients["busiest"][:3])
    return f"{clients['count']} {noun}{'' if clients['count'] == 1 else 's'} ({named})" if named else f"no known {noun}"
