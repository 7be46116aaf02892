"""Metrics: counted in plain objects on the event loop, formatted when they are collected.

A `Family` describes a metric, beside the code that counts it. `Metrics` takes snapshots of the families of one process.
`SeriesAggregator` merges the snapshots of one or several processes into one set of time series.
"""

from proxy.observability.metrics.exposition import serve
from proxy.observability.metrics.registry import Metrics

__all__ = ["Metrics", "serve"]
