"""Messages that are delivered again and again, and those that become dead letters."""

from analytics.incidents.clusters import clusters, exposure, finding
from analytics.incidents.finding import Finding
from analytics.incidents.scan import Limits
from analytics.incidents.tables import Tables

_REDELIVERED = Limits(factor=3.0, events=24, share=0.12, ratio=4.0, likelihood=40.0, floor=0.015, sharpness=1.5)
_BURIED = Limits(factor=3.0, events=6, share=0.0, ratio=5.0, likelihood=15.0, floor=5e-4)
_SCOPES = ("grp", "client")


def retries(tables: Tables) -> list[Finding]:
    """Return findings about redelivered messages and dead letters."""
    received = exposure(tables, "received", _SCOPES)
    found = []
    for event, kind, limits in (("redelivered", "redelivery_storm", _REDELIVERED), ("buried", "dead_letters", _BURIED)):
        events = tables.events[tables.events["event"] == event]
        found += [
            finding(tables, cluster, kind, cluster.start) for cluster in clusters(tables, events, received, limits)
        ]
    return found
