"""Sends and acknowledgements that are slow, at once or more and more."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analytics.incidents.candidates import Cluster
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
from analytics.incidents.daily import Course
from analytics.incidents.exposure import Exposure
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.spans import Limits
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
    """Return whether the time of the day explains a cluster."""
    for name, value in cluster.scope.items():
        events = events[events[name] == value]
    slow = np.bincount(events["t"] - tables.first, events["n"], tables.periods)
    return Course(slow, over.requests(cluster.scope), STEP, _TELLING).is_busy(cluster.start, cluster.end)


# Least requests of an hour with a share.
_TELLING = 20.0


def _finding(tables: Tables, cluster: Cluster, new: Mapping[str, float], wide: list[Cluster]) -> Finding:
    start, growth = slow_onset(tables, cluster, wide)
    kind = Kind.LATENCY_GROWTH if growth else Kind.LATENCY_SPIKE
    sdk = rolled_out(tables, cluster, new)
    facts = {"symptom": "slow"}
    if sdk is not None:
        kind, start = Kind.BAD_ROLLOUT, rollout_start(tables, cluster, new[sdk], start)
        facts["version"] = version(sdk)
    elif "replica" in cluster.scope and not growth:
        kind = Kind.REPLICA_FAULT
    return finding(tables, cluster, kind, start, facts)
