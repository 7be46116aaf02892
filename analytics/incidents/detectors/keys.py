"""A key that suddenly has most messages of a topic."""

import numpy as np
import pandas as pd

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.statistics import Array, best_intervals, gains, likelihood
from analytics.incidents.tables import KEY_STEPS, STEP, Tables, sampled_share

_FACTOR = 3.0
_SHARE = 0.25
_RATIO = 3.0
_BEYOND_TOP = 1.5
_LEAST_SHARE = 0.02
_LEAST = 40.0
_FEW = 4.0
_LIKELIHOOD = 40.0


def keys(tables: Tables) -> list[Finding]:
    """Return findings hot_key."""
    first = tables.first // KEY_STEPS
    periods = tables.last // KEY_STEPS - first + 1
    sends = tables.flows[tables.flows["op"] == "send"]
    found = []
    for topic, part in tables.keys.groupby("topic"):
        own = sends[sends["topic"] == topic]
        total = np.bincount(own["t"] // KEY_STEPS - first, own["n"], periods)
        sampled = sampled_share(own)
        usual_top = _usual(_leaders(part, first, periods), total)
        # A span with a large share has a period with one; topics with a new key for each message have very many keys.
        large = part.loc[part["n"] >= _SHARE * total[part["t"] - first], "mkey"].unique()
        for _, rows in part[part["mkey"].isin(large)].groupby("mkey"):
            counts = np.bincount(rows["t"] - first, rows["n"], periods)
            if counts.sum() * sampled >= _LEAST:
                found += _hot(tables, str(topic), int(rows["mkey"].iloc[0]), counts, total, usual_top, first, sampled)
    return found


def _leaders(keys: pd.DataFrame, first: int, periods: int) -> Array:
    """Return the count of the top key of every period, without the keys that many periods have: they are none of a
    series of keys, each of which is new.
    """
    seen = keys["mkey"].value_counts()
    others = keys[~keys["mkey"].isin(seen.index[seen.to_numpy() >= _ALWAYS * periods])]
    top = others.groupby("t")["n"].max()
    return np.bincount(top.index - first, top, periods)


# Least share of the periods that have a key that comes always.
_ALWAYS = 0.5


def _usual(counts: Array, total: Array) -> float:
    """Return the usual share of a key, or of the top key of every period, whichever it is; 1 without busy periods."""
    busy = total >= max(float(np.median(total)), 12.0)
    # The tables leave out keys with few messages; up to two are possible.
    shares = np.maximum(counts, 2.0)[busy] / total[busy]
    return max(float(np.median(shares)), _LEAST_SHARE) if shares.size else 1.0


def _hot(
    tables: Tables,
    topic: str,
    key: int,
    counts: Array,
    total: Array,
    usual_top: float,
    first: int,
    sampled: float,
) -> list[Finding]:
    """Return the finding about a key. sampled: as `sampled_share`, of the topic's sends."""
    usual = _usual(counts, total)
    certain = gains(counts * sampled, total * usual * sampled, _FACTOR)
    start, end, _ = (int(each[0]) for each in best_intervals(certain[None, :]))
    # Few records of a busier hour before are part of it by chance: with the share that it has, they are none.
    times = counts[start:end].sum() / max(usual * total[start:end].sum(), 1e-9)
    certain = gains(counts[start:end] * sampled, total[start:end] * usual * sampled, max(times, _FACTOR))
    start, end = (start + int(each[0]) for each in best_intervals(certain[None, :])[:2])
    seen, messages = float(counts[start:end].sum()), float(total[start:end].sum())
    expected = usual * messages
    score = likelihood(seen * sampled, expected * sampled)
    enough = seen * sampled >= _LEAST and score >= _LIKELIHOOD
    enough = enough and seen >= _SHARE * messages and seen >= _RATIO * expected
    # An import has one key after the other, each of which is new.
    if not enough or seen < _BEYOND_TOP * usual_top * messages:
        return []
    # The key may have become hot late in the period before.
    if start and counts[start - 1] >= 2 * usual * total[start - 1] and counts[start - 1] >= _FEW:
        start -= 1
    begin = (first + start) * KEY_STEPS * STEP
    # The first period is rarely hot as a whole; the onset lies within it.
    inside = counts[start + 1 : end].sum() / max(total[start + 1 : end].sum(), 1.0) if end - start > 2 else 1.0
    part = min(counts[start] / max(total[start] * inside, 1.0), 1.0)
    begin += round((1 - part) * KEY_STEPS * STEP)
    about = {"topic": topic, "key": f"{key & 0xFFFFFFFFFFFFFFFF:016x}"}
    ends = (first + end) * KEY_STEPS * STEP
    still = ends >= tables.last * STEP
    return [Finding(Kind.HOT_KEY, begin, ends, about, seen / messages, usual, score, seen, 0, bool(still))]
