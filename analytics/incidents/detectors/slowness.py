"""Sends and acknowledgements that are slow, at once or more and more."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analytics.incidents.clusters import (
    clusters,
    exposure,
    finding,
    new_sdks,
    rolled_out,
    rollout_start,
    slow_onset,
    version,
)
from analytics.incidents.exposure import Exposure
from analytics.incidents.finding import Finding
from analytics.incidents.scan import Cluster, Limits
from analytics.incidents.tables import STEP, Tables

_LIMITS = Limits(factor=4.0, events=12, share=0.04, ratio=3.0, likelihood=25.0, floor=1e-2)


def slowness(tables: Tables) -> list[Finding]:
    """Return findings about slow requests, each request in one of them."""
    events = tables.events[tables.events["event"] == "slow"]
    new = new_sdks(tables)
    over = exposure(tables, "timed")
    found = [each for each in clusters(tables, events, over, _LIMITS) if not _is_daily(tables, events, over, each)]
    wide = [cluster for cluster in found if not {"topic", "grp", "client"} & set(cluster.scope)]
    return [_finding(tables, cluster, new, [each for each in wide if each is not cluster]) for cluster in found]


def _is_daily(tables: Tables, events: pd.DataFrame, over: Exposure, cluster: Cluster) -> bool:
    """Return whether the scope is as slow at the same time of most other days, and less so in between: what is busy is
    slower.
    """
    for name, value in cluster.scope.items():
        events = events[events[name] == value]
    slow = np.bincount(events["t"] - tables.first, events["n"], tables.periods)
    timed = over.requests(cluster.scope)
    length = cluster.end - cluster.start
    if length >= _DAY // 2:
        return False

    def share(start: int, end: int) -> float:
        span = slice(max(start, 0), max(end, 0))
        return float(slow[span].sum() / timed[span].sum()) if timed[span].sum() >= _TIMED else np.nan

    here = share(cluster.start, cluster.end)
    shifts = [shift for shift in range(-(tables.periods // _DAY), tables.periods // _DAY + 1) if shift]
    others = np.array([share(cluster.start + shift * _DAY, cluster.end + shift * _DAY) for shift in shifts])
    between = np.array([share(cluster.end + shift * _DAY, cluster.start + (shift + 1) * _DAY) for shift in shifts])
    known = others[~np.isnan(others)]
    return bool(known.size and np.median(known) >= _ALIKE * here and np.nanmean(between) <= _BETWEEN * here)


# Periods of a day; requests that tell a share; least share of slow requests at the same time of other days, and the
# highest one between, as a part of the cluster's.
_DAY = 86400 // STEP
_TIMED, _ALIKE, _BETWEEN = 20.0, 0.5, 0.6


def _finding(tables: Tables, cluster: Cluster, new: Mapping[str, float], wide: list[Cluster]) -> Finding:
    start, growth = slow_onset(tables, cluster, wide)
    kind = "latency_growth" if growth else "latency_spike"
    sdk = rolled_out(tables, cluster, new)
    facts = {"symptom": "slow"}
    if sdk is not None:
        kind, start = "bad_rollout", rollout_start(tables, cluster, new[sdk], start)
        facts["version"] = version(sdk)
    elif "replica" in cluster.scope:
        kind = "replica_fault"
    return finding(tables, cluster, kind, start, facts)
