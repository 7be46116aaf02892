"""Connections that end abnormally in numbers, and clients that connect again and again."""

import numpy as np
import pandas as pd

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import finding
from analytics.incidents.exposure import Exposure
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.scan import scan
from analytics.incidents.spans import Limits
from analytics.incidents.tables import Tables

# Unintended ends, and planned ones.
_ABNORMAL = ("reset", "unresponsive", "protocol", "abuse", "unfinished_frame", "slow_reader", "lost")
_PLANNED = ("drain", "operator", "local")
# An address loses a connection every eight hours at least.
_STORM = Limits(factor=4.0, events=8, share=0.01, ratio=4.0, likelihood=40.0, floor=1e-5)
_CHURN = Limits(factor=6.0, events=20, share=0.0, ratio=8.0, likelihood=40.0, floor=1e-5)
# Connections of one address, or of one of the clients behind it, for a churn; periods around that belong to it.
_EACH, _NEAR = 12, 12


def connections(tables: Tables) -> list[Finding]:
    """Return findings connection_storm (abnormal ends) and connection_churn (one client again and again)."""
    closes = tables.connections[tables.connections["event"] == "close"]
    if closes.empty:
        return []
    closes = closes.assign(rows_=closes["n"], grp=None, topic=None, tenant=None, broker=None)
    over = _exposure(tables, closes, ("replica", "network", "address"))
    abnormal = closes["cause"].isin(_ABNORMAL)
    found = []
    for cluster in scan(closes[abnormal], over, _STORM):
        cause = str(cluster.events.groupby("cause")["n"].sum().idxmax())
        found.append(finding(tables, cluster, Kind.CONNECTION_STORM, cluster.start, {"cause": cause}))
    # By address too: a client that has a new name for each connection has only its address in common.
    over = _exposure(tables, closes, ("network", "address", "client"))
    found += [
        finding(tables, cluster, Kind.CONNECTION_CHURN, cluster.start, {"cause": "reconnects"})
        for cluster in scan(closes[~abnormal & ~closes["cause"].isin(_PLANNED)], over, _CHURN)
        if cluster.bad >= _EACH * max(cluster.events["address"].nunique(), _lasting(tables, cluster), 1)
    ]
    return found


def _lasting(tables: Tables, cluster: Cluster) -> int:
    """Return the number of a cluster's clients that send at other times too: many of them may have one address, that of
    a gateway. A client with a new name for each connection is none.
    """
    clients = tables.totals[tables.totals["dimension"] == "client"]
    clients = clients[clients["value"].isin(cluster.events["client"].dropna().unique())]
    periods = clients["t"] - tables.first
    outside = (periods < cluster.start - _NEAR) | (periods >= cluster.end + _NEAR)
    return int(clients.loc[outside, "value"].nunique())


def _exposure(tables: Tables, closes: pd.DataFrame, dimensions: tuple[str, ...]) -> Exposure:
    """Return the number of addresses of each value, in every period from its first request on.

    Only the addresses and clients with most ends count by themselves, because the number of all is not bounded.
    """
    made = Exposure(tables.first, tables.periods)
    periods = np.arange(tables.first, tables.first + tables.periods)
    for name in dimensions:
        sizes = closes.groupby(name)["address"].nunique()
        if name in {"address", "client"} and len(sizes) > _MOST:
            sizes = sizes[closes.groupby(name)["n"].sum().nlargest(_MOST).index]
        if not len(sizes):
            continue
        first = _first(tables, name).reindex(sizes.index).fillna(tables.first).to_numpy()
        made.add(name, sizes.index, (periods >= first[:, None]) * sizes.to_numpy(float)[:, None])
    return made


# Addresses, or clients, that are scanned one by one: 32 MB for a week.
_MOST = 2_000


def _first(tables: Tables, name: str) -> "pd.Series[float]":
    """Return the period of each value's first request: a replica that did not exist had no connections."""
    totals = tables.totals[tables.totals["dimension"] == name].groupby("value")["t"].min()
    events = tables.connections.groupby(name)["t"].min()
    firsts: pd.Series[float] = pd.concat([totals, events]).groupby(level=0).min().astype(float)
    return firsts
