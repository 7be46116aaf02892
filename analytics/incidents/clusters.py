"""Findings from clusters of bad events: times, onset of a growth, common attributes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analytics.incidents.candidates import Cluster, narrowed
from analytics.incidents.exposure import Exposure
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.onsets import daily_course, latency_bend, share_bend
from analytics.incidents.scan import scan
from analytics.incidents.spans import Limits
from analytics.incidents.statistics import Array
from analytics.incidents.tables import COARSE, DIMENSIONS, SEPARATOR, STEP, Tables
from analytics.transforms.operations import SEND

# Periods for which a cluster must last to be a growth, and how much likelier (logarithm) than a step it must be: among
# long incidents a growth is the usual one.
_GROWTH_PERIODS = 24
_GROWTH = -1.0
# Failures and requests that precede all others in the estimate of a usual share, and the least share.
_PRIOR_BAD, _PRIOR, _LEAST_USUAL = 0.4, 200.0, 5e-4
_NAMES = {"grp": "group"}
_COLUMNS = sorted({name for names in DIMENSIONS for name in names})


def exposure(tables: Tables, column: str, dimensions: Sequence[str] | None = None) -> Exposure:
    """Return the exposure of a column of `totals` in all dimensions, or in these."""
    names = dimensions or ["+".join(each) for each in DIMENSIONS]
    return Exposure.of(tables.totals, column, names, tables.first, tables.periods)


def new_sdks(tables: Tables) -> dict[str, float]:
    """Return the SDK versions that appeared after the first hour, with the time in seconds."""
    first = tables.members.groupby("sdk")["first_us"].min() / 1e6
    return {str(sdk): float(time) for sdk, time in first.items() if time > tables.first * STEP + 3600}


def clusters(tables: Tables, events: pd.DataFrame, over: Exposure, limits: Limits) -> list[Cluster]:
    """Scan events; versions that appeared in the records are favoured among equals."""
    return scan(events, over, limits, {"sdk": frozenset(new_sdks(tables))})


def onset(tables: Tables, cluster: Cluster) -> tuple[int, bool]:
    """Return the period in which the deviation began, and whether it grew over hours instead of being there at once; a
    growth begins before it is plain.
    """
    if cluster.end - cluster.start < _GROWTH_PERIODS:
        return cluster.start, False
    total = _failing(tables, cluster)
    # Half of the span before it may belong to a growth already.
    outside = np.ones(total.size, dtype=bool)
    outside[max((3 * cluster.start - cluster.end) // 2, 0) : cluster.end] = False
    usual = (cluster.bad_series[outside].sum() + _PRIOR_BAD) / (total[outside].sum() + _PRIOR)
    span = slice(cluster.before, cluster.end)
    bend, gain = share_bend(cluster.bad_series[span], total[span], max(float(usual), _LEAST_USUAL))
    return (min(cluster.before + bend, cluster.start), True) if gain >= _GROWTH else (cluster.start, False)


def _failing(tables: Tables, cluster: Cluster) -> Array:
    """Return the requests of the operation that fails: only its share grows, and polls come and go."""
    sends = cluster.events.loc[cluster.events["op"] == SEND, "n"].sum()
    if sends < 0.9 * cluster.events["n"].sum():
        return cluster.total_series
    rows = rows_of(tables, cluster.scope)
    series = np.bincount(rows["t"] - tables.first, rows["sends"], tables.periods)
    # Sampled successes stand for several sends: never fewer sends than failures.
    return np.maximum(series, cluster.bad_series)


def rows_of(tables: Tables, scope: Mapping[str, str]) -> pd.DataFrame:
    """Return the totals of a scope."""
    if not scope:
        return tables.totals[tables.totals["dimension"] == "replica"]
    dimension, value = "+".join(scope), SEPARATOR.join(scope.values())
    return tables.totals[(tables.totals["dimension"] == dimension) & (tables.totals["value"] == value)]


# Expected failures of a version before the first one that is seen: fewer are no sign that it worked at first.
_UNSEEN = 4.0


def rolled_out(tables: Tables, cluster: Cluster, new: Mapping[str, float]) -> str | None:
    """Return the SDK of a version that nearly all events have, if it is a new one and their cause; several languages
    may have it.
    """
    sums = cluster.events.groupby("sdk")["n"].sum()
    known = sums[sums.index.isin(list(new))]
    if known.sum() < 0.8 * cluster.events["n"].sum() or len({version(str(sdk)) for sdk in known.index}) != 1:
        return None
    sdks = frozenset(str(sdk) for sdk in known.index)
    return min(sdks, key=lambda sdk: new[sdk]) if _is_worse(tables, cluster, sdks) else None


def _is_worse(tables: Tables, cluster: Cluster, sdks: frozenset[str]) -> bool:
    """Return whether a version fails where others of its protocol do not, or has done so since its first requests in
    the cluster's scope: after the upgrade of all clients, all trouble has the new version.
    """
    rows = _members_of(tables, cluster)
    start, end = ((tables.first + place) // COARSE for place in (cluster.start, cluster.end - 1))
    own, others = _own_and_others(rows["sdk"], sdks)
    bad_own, bad_others = _own_and_others(cluster.events["sdk"], sdks)
    inside = rows["t"].between(start, end)
    share = cluster.events[bad_own]["n"].sum() / max(rows[own & inside]["n"].sum(), 1.0)
    usual = share * rows[others & inside]["n"].sum()
    if usual >= _UNSEEN and cluster.events[bad_others]["n"].sum() <= _FINE * usual:
        return True
    return bool(share * rows[own & (rows["t"] < start)]["n"].sum() < _UNSEEN)


# Highest share of a version's failures that others have beside it.
_FINE = 0.5


def _members_of(tables: Tables, cluster: Cluster) -> pd.DataFrame:
    """Return the requests like those of a cluster by client: of its client, group or topic, or of all its topics."""
    rows = tables.members[tables.members["op"].isin(cluster.events["op"].unique())]
    for name in ("client", "grp", "topic"):
        if name in cluster.scope:
            rows = rows[rows[name] == cluster.scope[name]]
    return rows[rows["topic"].isin(cluster.events["topic"].unique())]


def _own_and_others(values: "pd.Series[str]", sdks: frozenset[str]) -> "tuple[pd.Series[bool], pd.Series[bool]]":
    """Return which SDKs are these, and which are others of their protocols."""
    own = values.isin(list(sdks))
    protocols = [sdk.partition(" ")[0] for sdk in sdks]
    return own, values.astype("string").str.split(" ", n=1).str[0].isin(protocols) & ~own


def version(sdk: str) -> str:
    """Return the version of "protocol language version"."""
    return sdk.rpartition(" ")[2]


def rollout_start(tables: Tables, cluster: Cluster, appeared: float, start: int) -> int:
    """Return the period of a version's first request, unless it worked for a while."""
    first = max(int(appeared // STEP) - tables.first, 0)
    sdks = cluster.events["sdk"].unique()
    totals = tables.totals[(tables.totals["dimension"] == "sdk") & tables.totals["value"].isin(sdks)]
    requests = np.bincount(totals["t"] - tables.first, totals["n"], tables.periods)
    share = cluster.bad / max(requests[start : cluster.end].sum(), 1.0)
    return first if share * requests[first:start].sum() < _UNSEEN else start


def slow_onset(tables: Tables, cluster: Cluster, others: Sequence[Cluster] = ()) -> tuple[int, bool]:
    """Return the period in which sends began to slow down, and whether gradually, by the mean logarithm of latency.

    others: clusters of brokers and replicas, whose spans are left out of the usual level.
    """
    scope = cluster.scope
    if "grp" in scope:
        # Groups do not send; the sends of the topic have the latency.
        scope = {"topic": narrowed(cluster, ["topic"]).get("topic", "")}
    rows = rows_of(tables, scope)
    places = rows["t"].to_numpy() - tables.first
    sends, logs = (np.bincount(places, rows[name], tables.periods) for name in ("sends", "logs"))
    return _log_onset(tables, cluster, sends, logs, others)


def size_onset(tables: Tables, cluster: Cluster) -> int:
    """Return the period in which bodies began to grow, by the logarithm of their mean size."""
    rows = rows_of(tables, cluster.scope)
    places = rows["t"].to_numpy() - tables.first
    sends, sizes = (np.bincount(places, rows[name], tables.periods) for name in ("sends", "bytes"))
    return _log_onset(tables, cluster, sends, sends * np.log(np.maximum(sizes / np.maximum(sends, 1e-9), 1.0)), ())[0]


def _log_onset(
    tables: Tables, cluster: Cluster, sends: Array, logs: Array, others: Sequence[Cluster]
) -> tuple[int, bool]:
    """Return the period from which a logarithm grows, and whether gradually. logs: its sums over the sends."""
    length = cluster.end - cluster.start
    begin = max(cluster.start - max(_LEAD * length // 2, _LEAST_LEAD), 0)
    for other in others:
        common = min(other.end, cluster.end) - max(other.start, cluster.start)
        if common < 0.6 * length:
            sends[other.start : other.end] = logs[other.start : other.end] = 0.0
    # Half of the span before it may belong to the growth already.
    hidden = slice(max(cluster.start - length // 2, 0), cluster.end)
    logs = logs - sends * daily_course(logs, sends, tables.first, hidden)
    weights, sums = sends[begin : cluster.end], logs[begin : cluster.end]
    known = weights > 0
    if known.sum() < 8:
        return cluster.start, False
    # Mean of each of at most so many blocks: the fit tries every bend.
    width = max(int(np.ceil(weights.size / _BLOCKS)), 1)
    blocks = np.arange(weights.size) // width
    total = np.bincount(blocks, weights)
    bend, gain = latency_bend(np.bincount(blocks, sums) / np.maximum(total, 1e-9), total)
    gradual = gain > 0 and length >= _GROWTH_PERIODS
    return (min(begin + bend * width, cluster.start) if gradual else cluster.start), gradual


# Values of the fit at most; periods before a cluster whose level counts: halves of its length, and the least number.
_BLOCKS, _LEAD, _LEAST_LEAD = 200, 3, 96


def goes_on(cluster: Cluster, periods: int) -> bool:
    """Return whether a cluster lasts to the end of the records: where failures are few, none may be due since the last.

    periods: of the records.
    """
    rest = float(cluster.total_series[cluster.end :].sum()) * cluster.bad / max(cluster.total, 1.0)
    pause = periods - cluster.end
    return pause <= 1 or (0 < rest < _DUE and pause <= _PAUSE * (cluster.end - cluster.start))


# Failures that may be due without one, and the time since the last one as a share of the cluster's.
_DUE, _PAUSE = 3.0, 0.25


def finding(
    tables: Tables, cluster: Cluster, kind: Kind, start: int, facts: Mapping[str, str] | None = None
) -> Finding:
    """Return a cluster as a finding."""
    about = {_NAMES.get(name, name): value for name, value in narrowed(cluster, _COLUMNS).items()}
    if "sdk" in about:
        about["version"] = version(about["sdk"])
    if facts and "version" in facts:
        about["version"] = facts["version"]
    still = goes_on(cluster, tables.periods)
    return Finding(
        kind,
        (tables.first + start) * STEP,
        (tables.first + (tables.periods if still else cluster.end)) * STEP,
        about,
        # Repetitions under sampling are an estimate.
        min(cluster.bad / max(cluster.total, 1.0), 1.0),
        cluster.expected / max(cluster.total, 1.0),
        cluster.likelihood,
        cluster.bad,
        int(cluster.events["client"].nunique()) if "client" in cluster.events else 0,
        still,
        {"scope": "+".join(_NAMES.get(name, name) for name in cluster.scope), **(facts or {})},
    )
