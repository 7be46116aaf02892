"""Run all detectors over one set of records."""

from pyspark.sql import DataFrame

from analytics.transforms import anomalies, balance, errors, hot_keys, latency, neighbours, queues, redelivery, sessions
from analytics.transforms.findings import union


def detect(requests: DataFrame, connections: DataFrame, zone: str = "UTC", cells: DataFrame | None = None) -> DataFrame:
    """Return all findings (transforms/findings.py), unordered.

    zone: time zone of the daily season. cells: the requests' roll-up by CELL every five minutes (or a divisor of that),
    if it exists already; kept in memory or on disk it saves most of the work.
    """
    traffic = requests if cells is None else cells
    return union(
        [
            errors.bursts(traffic),
            latency.spikes(traffic),
            redelivery.storms(traffic),
            balance.stalls(traffic),
            neighbours.noisy(traffic),
            anomalies.anomalies(traffic, zone=zone),
            hot_keys.findings(requests),
            queues.skewed(requests),
            sessions.storms(connections),
        ]
    )
