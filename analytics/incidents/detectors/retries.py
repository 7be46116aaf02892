"""Messages that are sent or delivered again and again, and those that become dead letters."""

from analytics.incidents.clusters import clusters, exposure, finding
from analytics.incidents.finding import Finding
from analytics.incidents.scan import Limits
from analytics.incidents.tables import Tables

_REDELIVERED = Limits(factor=3.0, events=24, share=0.12, ratio=4.0, likelihood=40.0, floor=0.015, sharpness=1.5)
_BURIED = Limits(factor=3.0, events=6, share=0.0, ratio=5.0, likelihood=15.0, floor=5e-4)
_LATE = Limits(factor=3.0, events=8, share=0.0, ratio=8.0, likelihood=20.0, floor=5e-4)
_REPEATED = Limits(factor=3.0, events=24, share=0.2, ratio=4.0, likelihood=40.0, floor=0.02, sharpness=1.5)
_SCOPES = ("grp", "client")
_SENDERS = ("client", "topic", "tenant", "sdk")


def retries(tables: Tables) -> list[Finding]:
    """Return findings redelivery_storm, poison_message, dead_letters and duplicate_sends."""
    received, sent = exposure(tables, "received", _SCOPES), exposure(tables, "sends", _SENDERS)
    found = []
    for event, kind, over, limits in (
        ("redelivered", "redelivery_storm", received, _REDELIVERED),
        ("late", "poison_message", received, _LATE),
        ("buried", "dead_letters", received, _BURIED),
        ("repeated", "duplicate_sends", sent, _REPEATED),
    ):
        events = tables.events[tables.events["event"] == event]
        found += [finding(tables, cluster, kind, cluster.start) for cluster in clusters(tables, events, over, limits)]
    return found
