"""Messages that are sent or delivered again and again, and those that become dead letters."""

import numpy as np

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import clusters, exposure, finding
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.spans import Limits
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
            if kind != Kind.DUPLICATE_SENDS or not _is_busy(cluster)
        ]
    return found


def _is_busy(cluster: Cluster) -> bool:
    """Return whether many more different messages are sent than around, and than at any other time as long: then keys
    repeat by chance. Around a nightly batch nothing is sent.
    """
    single = np.maximum(cluster.total_series - cluster.bad_series, 0.0)
    length = cluster.end - cluster.start
    before, after = single[: cluster.start], single[cluster.end :]
    parts = [part for part in (before, after) if part.size >= length]
    if not parts:
        return False
    around = np.concatenate([before[-_AROUND:], after[:_AROUND]]).mean()
    level = max(around, *(np.convolve(part, np.full(length, 1.0 / length), "valid").max() for part in parts))
    return bool(single[cluster.start : cluster.end].mean() > _BUSY * level)


# Periods around in which different messages are counted: six hours; and how many times as many are too many.
_AROUND, _BUSY = 6 * 3600 // STEP, 2.0
