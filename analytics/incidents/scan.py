"""Scan of bad events over time and over all dimensions at once: which value of which dimension explains them best.

The scope with the largest likelihood ratio is the narrowest one that covers the events: a client whose requests all
fail beats its topic, a broker beats its topics. It is taken, its events are removed, and the scan is repeated on the
rest: one cause is found once.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from analytics.incidents.candidates import FINE, Candidates, Cluster, multiples
from analytics.incidents.exposure import CONTRASTED, WHOLE, Exposure
from analytics.incidents.spans import Limits
from analytics.incidents.statistics import Array
from analytics.incidents.tables import joined


def scan(
    events: pd.DataFrame, exposure: Exposure, limits: Limits, favoured: Mapping[str, frozenset[str]] | None = None
) -> list[Cluster]:
    """Return the clusters of bad events, each event in one at most. events: t, n and the columns of the dimensions.

    favoured: values of a dimension that win against equally likely scopes, such as versions that are new.
    """
    rest = events[(events["t"] >= exposure.first) & (events["t"] < exposure.first + exposure.periods)]
    rest = rest.reset_index(drop=True)
    codes = {
        name: values.get_indexer(pd.Index(joined(rest, tuple(name.split("+")))))
        for name, values in exposure.values.items()
        if name != WHOLE
    }
    codes[WHOLE] = np.zeros(len(rest), dtype=int)
    kept = np.ones(len(rest), dtype=bool)
    found: list[Cluster] = []

    def best_of(name: str, events: Array) -> Cluster | None:
        candidates = Candidates.of(name, exposure, rest, codes[name], events, limits, found)
        return None if candidates is None else candidates.best(limits)

    while len(found) < limits.most:
        clusters = {name: cluster for name in exposure.values if (cluster := best_of(name, kept)) is not None}
        whole = clusters.get(WHOLE)
        if whole is not None and not _is_everywhere(whole, rest, codes, kept, exposure):
            del clusters[WHOLE]
        if not clusters:
            break
        weights = {name: _weight(name, cluster, favoured or {}) for name, cluster in clusters.items()}
        likeliest = max(weights, key=weights.__getitem__)

        def again(narrow: Cluster, name: str = likeliest, wide: Cluster = clusters[likeliest]) -> Cluster | None:
            others = kept.copy()
            others[narrow.events.index] = False
            with exposure.without(wide.scope, narrow.scope) as left_out:
                if left_out:
                    others &= ~_matches(rest, narrow.scope)
                return best_of(name, others)

        best = _widened(clusters[likeliest], clusters.get("topic"), limits)
        if likeliest in {WHOLE, *CONTRASTED}:
            wide = {WHOLE} if likeliest == WHOLE else {WHOLE, *CONTRASTED}
            narrow = [each for name, each in clusters.items() if name not in wide]
            best = _part(best, narrow, again)
        kept[best.events.index] = False
        found.append(best)
    return found


def _is_everywhere(
    whole: Cluster, rest: pd.DataFrame, codes: Mapping[str, Array], kept: Array, exposure: Exposure
) -> bool:
    """Return whether all replicas and brokers are concerned, most tenants, and topics, networks and SDKs with most
    requests. A tenant or topic that fails at the time on its own account too is concerned.
    """
    periods = rest["t"].to_numpy() - exposure.first
    meanwhile = (periods >= whole.start) & (periods < whole.end)
    amount = rest["n"].to_numpy(float)
    usual = whole.expected / max(whole.total, 1.0)
    for name in exposure.values.keys() & {*CONTRASTED, "topic"}:
        during = meanwhile & kept if name in {"replica", "broker"} else meanwhile
        known = during & (codes[name] >= 0)
        if amount[known].sum() < _KNOWN * amount[during].sum():
            continue
        counts = exposure.counts[name]
        bad = np.bincount(codes[name][known], amount[known], len(counts))
        total = counts[:, whole.start : whole.end].sum(axis=1)
        levels = multiples(whole.bad / max(whole.total, 1.0) - usual, bad - usual * total, total)
        telling = ~np.isnan(levels)
        alike = name in _ALIKE
        weights = np.ones(total.size) if alike else total
        concerned = weights[telling & (levels > (FINE if alike else _TOUCHED))].sum()
        if concerned < (1.0 if name in {"replica", "broker"} else _MOST) * weights[telling].sum():
            return False
    return True


# Least share of values, or of requests, that are concerned if all are, and of events whose value is known.
_MOST, _KNOWN = 0.8, 0.5
# Dimensions whose values have the same mix of operations, more or less; of others, a value that rarely uses the
# operation that fails is concerned from this multiple on.
_ALIKE, _TOUCHED = frozenset({"replica", "broker", "tenant"}), 0.1


def _matches(events: pd.DataFrame, scope: Mapping[str, str]) -> Array:
    """Return which events are of a scope."""
    return np.asarray(np.logical_and.reduce([events[name].to_numpy() == value for name, value in scope.items()]))


def _weight(name: str, cluster: Cluster, favoured: Mapping[str, frozenset[str]]) -> float:
    bonus = 1.02 if cluster.scope.get(name) in favoured.get(name, ()) else 1.0
    return cluster.likelihood * bonus * _PREFERENCE.get(name, 1.0)


def _part(wide: Cluster, narrow: Sequence[Cluster], again: Callable[[Cluster], Cluster | None]) -> Cluster:
    """Return the narrow cluster that is taken before a wide one, or the wide one.

    Several incidents of single topics at one replica are none of the replica: without the events of such a topic, the
    replica's own are at other times. So are a broker's incident and a later one of the whole service. again: the wide
    dimension's best cluster without the events of a narrow one.
    """
    for each in sorted(narrow, key=lambda each: -each.likelihood):
        if each.likelihood < _LEAST_PART * wide.likelihood or not len(
            each.events.index.intersection(wide.events.index)
        ):
            continue
        rest = again(each)
        if rest is None or rest.scope != wide.scope:
            if each.likelihood >= _MOST_PART * wide.likelihood:
                return each
            continue
        common = min(rest.end, wide.end) - max(rest.start, wide.start)
        shorter = rest.end - rest.start < wide.end - wide.start
        if shorter and common < _SAME_TIME * (max(rest.end, wide.end) - min(rest.start, wide.start)):
            return each
    return wide


# Least share of the wide scope's likelihood that a narrow one has, also if nothing is left of the wide one; least
# common time of the wide scope with and without the narrow one's events.
_LEAST_PART, _MOST_PART, _SAME_TIME = 0.2, 0.8, 0.6


def _widened(narrow: Cluster, topic: Cluster | None, limits: Limits) -> Cluster:
    """Return the topic's cluster in place of one broker's part of it, if the topic has it at other brokers too.

    A topic's requests include polls, which name no broker and rarely fail: the same events look likelier at a broker.
    """
    if topic is None or "broker" not in narrow.scope or narrow.scope.get("topic") != topic.scope["topic"]:
        return narrow
    periods = narrow.events["t"]
    others = topic.events.drop(narrow.events.index, errors="ignore")
    common = others[others["t"].between(periods.min(), periods.max())]
    return topic if common["n"].sum() >= max(limits.events, _ELSEWHERE * narrow.bad) else narrow


# Least events at other brokers, as a share of those at one broker, of an incident of the whole topic.
_ELSEWHERE = 0.25


# Factors that choose, among equally likely scopes, the one that an operator would name.
_PREFERENCE = {"broker": 1.01, "replica": 1.01, "topic": 1.008, "grp": 1.006, "topic+broker": 1.004, "client": 1.002}
