"""Metrics: counted in plain objects by the event loop, put into form when somebody asks.

A `Family` says what is counted, beside the code that counts it. `Metrics` gathers what one process has counted as a
snapshot; a `Ledger` makes one set of series of the snapshots of one process or of several.
"""

from proxy.observability.metrics.exposition import serve
from proxy.observability.metrics.registry import Metrics

__all__ = ["Metrics", "serve"]
