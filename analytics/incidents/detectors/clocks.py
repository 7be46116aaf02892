"""Scheduled messages with impossible delays: clients with a wrong clock, or with the wrong unit."""

import numpy as np
import pandas as pd

from analytics.incidents.clusters import clusters, finding
from analytics.incidents.exposure import Exposure
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.names import host
from analytics.incidents.spans import Limits
from analytics.incidents.tables import DELAY_STEPS, STEP, Tables

_LIMITS = Limits(factor=4.0, events=5, share=0.3, ratio=4.0, likelihood=15.0, floor=0.01)
# A delay is odd if it differs by this factor from the range of a topic's other clients, or by a little more than that
# range spans, and by so many milliseconds: where all have the same delay, a clock that is minutes off is plain.
_FACTOR, _BEYOND_RANGE = 2.0, 1.1
_LEAST_MS = 30_000.0
# Factor beyond the others' usual range, at least the width of a class of delays; periods of an hour, and the least
# share of its messages that a shifted clock moves beyond that range. The usual share is less than half of it.
_BEYOND, _BLOCK, _SHIFTED = 1.03, 3600 // STEP, 0.4


def clocks(tables: Tables) -> list[Finding]:
    """Return findings about clients whose delays differ from those of the topic's other clients."""
    delays = tables.delays[tables.delays["client"].notna()]
    if delays.empty:
        return []
    odd = pd.concat([_odd(part) for _, part in delays.groupby("topic")])
    exposed = pd.concat(
        [
            pd.DataFrame({"t": delays["t"], "dimension": name, "value": delays[name], "n": delays["n"]})
            for name in ("client", "network", "sdk")
        ]
    ).dropna()
    over = Exposure.of(exposed, "n", ["client", "network", "sdk"], tables.first, tables.periods)
    events = delays[odd.reindex(delays.index, fill_value=False)].assign(grp=None, broker=None)
    return [
        finding(tables, cluster, Kind.CLIENT_CLOCK, cluster.start)
        for cluster in clusters(tables, events, over, _LIMITS)
    ]


def _odd(part: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows have a delay outside the range of the other hosts of the topic."""
    milliseconds = np.expm1((part["size"] + 0.5) / DELAY_STEPS)
    result = pd.Series(False, index=part.index)
    # A client that was restarted has another id: the messages of its other ids are no measure.
    hosts = pd.Series(map(host, part["client"], part["network"].fillna("")), part.index)
    for name, own in part.groupby(hosts):
        others = hosts != name
        reference = milliseconds[others] if others.any() else milliseconds
        weights = part.loc[reference.index, "n"]
        low, high = _quantile(reference, weights, 0.1), _quantile(reference, weights, 0.9)
        values = milliseconds[own.index]
        factor = min(_FACTOR, _BEYOND_RANGE * high / max(low, 1.0))
        above = (values > factor * high) & (values - high > _LEAST_MS)
        below = (values < low / factor) & (low - values > _LEAST_MS)
        result[own.index] = above | below | _shifted(own, values, low, high)
    return result


def _shifted(rows: pd.DataFrame, values: "pd.Series[float]", low: float, high: float) -> "pd.Series[bool]":
    """Return which rows of one host lie beyond the delays of nine tenths of the others, in hours with many of them:
    where delays vary, a clock moves all of them by less than their range.
    """
    blocks = rows["t"] // _BLOCK
    result = pd.Series(False, index=rows.index)
    amounts = rows["n"].groupby(blocks).sum()
    late = (values > _BEYOND * high) & (values - high > _LEAST_MS)
    early = (values < low / _BEYOND) & (low - values > _LEAST_MS)
    for beyond in (late, early):
        shares = (rows["n"] * beyond).groupby(blocks).sum() / amounts
        if shares.median() < _SHIFTED / 2:
            result |= beyond & (blocks.map(shares) >= _SHIFTED)
    return result


def _quantile(values: "pd.Series[float]", weights: "pd.Series[float]", share: float) -> float:
    order = np.argsort(values.to_numpy())
    sums = np.cumsum(weights.to_numpy()[order])
    return float(values.to_numpy()[order][np.searchsorted(sums, share * sums[-1])])
