"""`/stats` as Envoy has it: text and JSON, `filter`, `usedonly`, `type`, `format`, `histogram_buckets`.

Written from the documentation of Envoy's admin interface (operations/admin.rst), held to what its server answers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

import orjson
import re2  # type: ignore[import-untyped]

from proxy.observability.metrics.envoy import REQUEST_TIME, STATS, Envoy, Type
from proxy.observability.metrics.family import Distribution
from proxy.observability.metrics.requests import BOUNDS

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)
_MILLISECONDS = tuple(bound * 1000 for bound in BOUNDS)
_LONGEST_FILTER = 1000
_USAGE = "usage: /stats?format=(json|prometheus|text)"
_BUCKETS_USAGE = "usage: /stats?histogram_buckets=(cumulative|disjoint|none)"


class BadQuery(Exception):
    """A parameter of the query cannot be; the text says which (HTTP: 400)."""


class Format(StrEnum):
    """What an answer looks like."""

    TEXT = "text"
    JSON = "json"
    PROMETHEUS = "prometheus"


class Buckets(StrEnum):
    """How a histogram is shown: as quantiles, or by bucket."""

    NONE = "none"
    CUMULATIVE = "cumulative"
    DISJOINT = "disjoint"


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of `/stats`. type: None for all; filter: RE2, found anywhere in the name."""

    filter: Any = None
    usedonly: bool = False
    type: Type | None = None
    format: Format = Format.TEXT
    buckets: Buckets = Buckets.NONE

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> "Query":
        """From what stands behind the question mark; what is unknown is left aside. Raises BadQuery."""
        kind = parameters.get("type", "All")
        if kind not in ("All", *Type):
            raise BadQuery("invalid &type= param")
        shape = parameters.get("format", Format.TEXT)
        if shape not in list(Format):
            raise BadQuery(_USAGE)
        buckets = parameters.get("histogram_buckets", Buckets.NONE)
        if buckets not in list(Buckets):
            raise BadQuery(_BUCKETS_USAGE)
        return cls(
            _compiled(parameters.get("filter")),
            "usedonly" in parameters,
            None if kind == "All" else Type(kind),
            Format(shape),
            Buckets(buckets),
        )

    def wants(self, name: str, kind: Type, used: bool) -> bool:
        """Whether a statistic is to be shown."""
        return (
            (used or not self.usedonly)
            and (self.type is None or self.type is kind)
            and (self.filter is None or self.filter.search(name) is not None)
        )


def _compiled(pattern: str | None) -> Any:
    # RE2, as in Envoy: whatever is asked for takes time in proportion to the names.
    if pattern is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        if len(pattern) <= _LONGEST_FILTER:
            return re2.compile(pattern, options)
    except re2.error:
        pass
    raise BadQuery("Invalid re2 regex")


def render_text(envoy: Envoy, prefix: str, query: Query) -> str:
    """The text form: a line for each statistic, sorted, histograms last. prefix: `stat_prefix`."""
    lines = [f"{name}: {value}\n" for name, value in _numbers(envoy, prefix, query)]
    for name, interval, total in _histograms(envoy, prefix, query):
        lines.append(f"{name}: {_summary(interval, total, query.buckets)}\n")
    return "".join(lines)


def render_json(envoy: Envoy, prefix: str, query: Query) -> bytes:
    """The JSON form: `{"stats": […]}`; histograms are one element behind the others."""
    stats: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in _numbers(envoy, prefix, query)]
    found = list(_histograms(envoy, prefix, query))
    if found and query.buckets is Buckets.NONE:
        shown = {
            "supported_quantiles": [_percent(quantile) for quantile in _QUANTILES],
            "computed_quantiles": [
                {"name": name, "values": _quantile_values(interval, total)} for name, interval, total in found
            ],
        }
        stats.append({"histograms": shown})
    elif found:
        stats.append(
            {
                "histograms": [
                    {"name": name, "buckets": _bucket_values(interval, total, query.buckets)}
                    for name, interval, total in found
                ]
            }
        )
    return orjson.dumps({"stats": stats})


def _root(prefix: str) -> str:
    return f"rocketmq.{prefix}."


def _numbers(envoy: Envoy, prefix: str, query: Query) -> Iterator[tuple[str, int]]:
    values = envoy.values()
    for stat in sorted(STATS, key=lambda stat: stat.name):
        name = _root(prefix) + stat.name
        if query.wants(name, stat.type, max(values[stat.used], values[stat.name]) > 0):
            yield name, values[stat.name]


def _histograms(envoy: Envoy, prefix: str, query: Query) -> Iterator[tuple[str, Distribution, Distribution]]:
    interval, total = envoy.request_time()
    name = _root(prefix) + REQUEST_TIME
    if query.wants(name, Type.HISTOGRAMS, any(total.counts)):
        yield name, interval, total


def _summary(interval: Distribution, total: Distribution, buckets: Buckets) -> str:
    if not any(total.counts):
        return "No recorded values"
    if buckets is Buckets.NONE:
        return " ".join(
            f"P{_percent(quantile):g}({_number(_quantile(interval, quantile))},{_number(_quantile(total, quantile))})"
            for quantile in _QUANTILES
        )
    return " ".join(
        f"B{bound:g}({now},{ever})"
        for bound, now, ever in zip(_MILLISECONDS, *_counts(interval, total, buckets), strict=True)
    )


def _quantile_values(interval: Distribution, total: Distribution) -> list[dict[str, float | None]]:
    # orjson writes a value that is no number as null, as Envoy does.
    return [
        {"cumulative": _quantile(total, quantile), "interval": _quantile(interval, quantile)} for quantile in _QUANTILES
    ]


def _bucket_values(interval: Distribution, total: Distribution, buckets: Buckets) -> list[dict[str, float]]:
    return [
        {"upper_bound": bound, "interval": now, "cumulative": ever}
        for bound, now, ever in zip(_MILLISECONDS, *_counts(interval, total, buckets), strict=True)
    ]


def _counts(interval: Distribution, total: Distribution, buckets: Buckets) -> tuple[list[int], list[int]]:
    """Of the buckets that have an upper bound."""
    both = (interval.counts[:-1], total.counts[:-1])
    if buckets is Buckets.CUMULATIVE:
        return list(accumulate(both[0])), list(accumulate(both[1]))
    return both


def _quantile(distribution: Distribution, quantile: float) -> float:
    """Milliseconds, by interpolation within the bucket; beyond the last bound it is that bound."""
    count = sum(distribution.counts)
    if not count:
        return math.nan
    rank, below = quantile * count, 0
    lower = 0.0
    for upper, found in zip(_MILLISECONDS, distribution.counts, strict=False):
        if found and below + found >= rank:
            return lower + (upper - lower) * max(rank - below, 0.0) / found
        below, lower = below + found, upper
    return lower


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.6g}"


def _percent(quantile: float) -> float:
    return round(quantile * 100, 1)
