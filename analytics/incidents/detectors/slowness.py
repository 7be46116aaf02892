"""Sends and acknowledgements that are slow, at once or more and more."""

from collections.abc import Mapping

from analytics.incidents.clusters import clusters, exposure, finding, new_sdks, rolled_out, rollout_start, slow_onset
from analytics.incidents.finding import Finding
from analytics.incidents.scan import Cluster, Limits
from analytics.incidents.tables import Tables

_LIMITS = Limits(factor=4.0, events=12, share=0.04, ratio=3.0, likelihood=25.0, floor=1e-2)


def slowness(tables: Tables) -> list[Finding]:
    """Return findings about slow requests, each request in one of them."""
    events = tables.events[tables.events["event"] == "slow"]
    new = new_sdks(tables)
    return [_finding(tables, cluster, new) for cluster in clusters(tables, events, exposure(tables, "timed"), _LIMITS)]


def _finding(tables: Tables, cluster: Cluster, new: Mapping[str, float]) -> Finding:
    start, growth = slow_onset(tables, cluster)
    kind = "latency_growth" if growth else "latency_spike"
    version = rolled_out(cluster, new)
    if version is not None:
        kind, start = "bad_rollout", rollout_start(tables, new[version], start)
    elif "replica" in cluster.scope:
        kind = "replica_fault"
    return finding(tables, cluster, kind, start, {"symptom": "slow"})
