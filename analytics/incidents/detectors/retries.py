"""Messages that are sent or delivered again and again, and those that become dead letters."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import clusters, exposure, finding
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.spans import Limits
from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP, Tables

_REDELIVERED = Limits(factor=3.0, events=24, share=0.12, ratio=4.0, likelihood=40.0, floor=0.015, sharpness=1.5)
_BURIED = Limits(factor=3.0, events=6, share=0.0, ratio=5.0, likelihood=15.0, floor=5e-4)
# The sixth attempt proves five failures: one message that no consumer can take has few of them.
_LATE = Limits(factor=3.0, events=4, share=0.0, ratio=8.0, likelihood=20.0, floor=5e-4)
_REPEATED = Limits(factor=3.0, events=24, share=0.2, ratio=4.0, likelihood=40.0, floor=0.02, sharpness=1.5)
_SCOPES = ("grp", "client")
_SENDERS = ("client", "topic", "tenant", "sdk")


def retries(tables: Tables) -> list[Finding]:
    """Return findings redelivery_storm, poison_message, dead_letters and duplicate_sends."""
    received, sent = exposure(tables, "received", _SCOPES), exposure(tables, "sends", _SENDERS)
    found = []
    for event, kind, over, limits in (
        ("redelivered", Kind.REDELIVERY_STORM, received, _REDELIVERED),
        ("late", Kind.POISON_MESSAGE, received, _LATE),
        ("buried", Kind.DEAD_LETTERS, received, _BURIED),
        ("repeated", Kind.DUPLICATE_SENDS, sent, _REPEATED),
    ):
        events = tables.events[tables.events["event"] == event]
        found += [
            finding(tables, cluster, kind, cluster.start)
            for cluster in clusters(tables, events, over, limits)
            if kind != Kind.DUPLICATE_SENDS
            or not _is_chance(cluster, over.requests(cluster.scope), _series(tables, events, cluster.scope))
        ]
    return found


def _is_chance(cluster: Cluster, requests: Array, repeated: Array) -> bool:
    """Return whether keys repeat by chance because many more different messages are sent than around; not if as many
    repeat less at most other times, as those of a batch do in other nights. requests, repeated: of all periods.
    """
    single = np.maximum(requests - repeated, 0.0)
    span = slice(cluster.start, cluster.end)
    level, length = single[span].mean(), cluster.end - cluster.start
    around = np.concatenate([single[max(cluster.start - _AROUND, 0) : cluster.start], single[cluster.end :][:_AROUND]])
    if not around.size or level <= _BUSY * around.mean():
        return False
    others = []
    for part in (slice(0, cluster.start), slice(cluster.end, None)):
        if requests[part].size >= length:
            sums = [np.convolve(each[part], np.ones(length), "valid") for each in (requests, repeated, single)]
            busy = sums[2] >= _AS_MANY * level * length
            others.append(sums[1][busy] / sums[0][busy])
    shares = np.concatenate(others) if others else np.zeros(0)
    own = repeated[span].sum() / max(requests[span].sum(), 1.0)
    return bool(not shares.size or np.median(shares) >= _CHANCE * own)


def _series(tables: Tables, events: pd.DataFrame, scope: Mapping[str, str]) -> Array:
    """Return the events of a scope by period, those of other clusters too."""
    inside = np.logical_and.reduce([events[name] == value for name, value in scope.items()])
    return np.bincount(events["t"][inside] - tables.first, events["n"][inside], tables.periods)


# Periods around in which different messages are counted: six hours; how many times as many are too many, and as many;
# the share of repetitions at other times, as a part of the own one, that is chance.
_AROUND, _BUSY, _AS_MANY, _CHANCE = 6 * 3600 // STEP, 2.0, 0.7, 0.3
