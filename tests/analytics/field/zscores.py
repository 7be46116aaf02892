"""A simple baseline for comparison: z-scores of requests, errors and latency by topic and hour of the day."""

import numpy as np
import pandas as pd

from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import Kind
from analytics.incidents.tables import STEP, Tables

_HOUR = 3600 // STEP
_Z = 4.0
_KINDS = {"n": ("traffic_surge", "traffic_drop"), "failed": ("error_burst", ""), "slow": ("latency_spike", "")}


def detect(tables: Tables) -> list[Incident]:
    """Return one incident for each run of hours in which a topic's measure is four deviations from its hour's mean."""
    topics = tables.totals[tables.totals["dimension"] == "topic"]
    values = [topics.assign(topic=topics["value"], measure="n")[["t", "topic", "measure", "n"]]]
    for event in ("failed", "slow"):
        part = tables.events[tables.events["event"] == event]
        values.append(part.assign(measure=event)[["t", "topic", "measure", "n"]])
    hourly = pd.concat(values).dropna()
    hourly["hour"] = hourly["t"] // _HOUR
    found: list[Incident] = []
    for (topic, measure), part in hourly.groupby(["topic", "measure"]):
        first, last = tables.first // _HOUR, tables.last // _HOUR
        series = np.bincount(part["hour"] - first, part["n"], last - first + 1)
        found += _runs(str(topic), str(measure), series, first)
    return found


def _runs(topic: str, measure: str, series: np.ndarray, first: int) -> list[Incident]:
    clock = (np.arange(series.size) + first) % 24
    mean = np.array([series[clock == hour].mean() for hour in clock])
    deviation = np.array([series[clock == hour].std() for hour in clock])
    # With few days a value is never four deviations from a mean that contains it: Poisson noise is the least one.
    score = (series - mean) / np.maximum(np.minimum(deviation, np.sqrt(mean + 1)), 1.0)
    found: list[Incident] = []
    for sign, kind in zip((1, -1), _KINDS[measure], strict=True):
        far = sign * score >= _Z
        edges = np.flatnonzero(np.diff(np.concatenate([[0], far.astype(int), [0]])))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if kind:
                begin, until = ((first + edge) * 3600.0 for edge in (start, end))
                finding = Finding(Kind(kind), begin, until, {"topic": topic}, 0.0, 0.0, float(score[start:end].max()))
                found.append(
                    Incident(finding.kind, "info", begin, until, False, finding.about, "", "", 0.0, 0, (finding,))
                )
    return found
