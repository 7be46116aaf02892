"""Envoy's `/stats`: text and JSON, with `filter`, `usedonly`, `type`, `format` and `histogram_buckets`.

Follows the documentation of Envoy's admin interface (operations/admin.rst); tests compare it with Envoy's responses.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

import orjson
import re2  # type: ignore[import-untyped]

from proxy.observability.metrics.envoy import REQUEST_TIME, STATS, EnvoyStatistics, StatType
from proxy.observability.metrics.family import Distribution
from proxy.observability.metrics.request_families import BOUNDS

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)
_MILLISECONDS = tuple(bound * 1000 for bound in BOUNDS)
_MAX_FILTER_LENGTH = 1000
_USAGE = "usage: /stats?format=(json|prometheus|text)"
_BUCKETS_USAGE = "usage: /stats?histogram_buckets=(cumulative|disjoint|none)"


class BadQuery(Exception):
    """An invalid query parameter (HTTP 400); the message names it, in Envoy's words."""


class Format(StrEnum):
    """Format of the response."""

    TEXT = "text"
    JSON = "json"
    PROMETHEUS = "prometheus"


class Buckets(StrEnum):
    """Representation of histograms: quantiles (NONE), or counts by bucket."""

    NONE = "none"
    CUMULATIVE = "cumulative"
    DISJOINT = "disjoint"


@dataclass(frozen=True, slots=True)
class Query:
    """Parameters of `/stats`. filter: RE2 expression, searched for in the name; type: None for all types."""

    filter: Any = None
    usedonly: bool = False
    type: StatType | None = None
    format: Format = Format.TEXT
    buckets: Buckets = Buckets.NONE

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> "Query":
        """Parse the query parameters, ignoring unknown ones. Raises BadQuery if a value is invalid."""
        kind = parameters.get("type", "All")
        if kind not in ("All", *StatType):
            raise BadQuery("invalid &type= param")
        response_format = parameters.get("format", Format.TEXT)
        if response_format not in list(Format):
            raise BadQuery(_USAGE)
        buckets = parameters.get("histogram_buckets", Buckets.NONE)
        if buckets not in list(Buckets):
            raise BadQuery(_BUCKETS_USAGE)
        return cls(
            _compiled(parameters.get("filter")),
            "usedonly" in parameters,
            None if kind == "All" else StatType(kind),
            Format(response_format),
            Buckets(buckets),
        )

    def selects(self, name: str, kind: StatType, used: bool) -> bool:
        """Return whether a statistic is part of the response."""
        return (
            (used or not self.usedonly)
            and (self.type is None or self.type is kind)
            and (self.filter is None or self.filter.search(name) is not None)
        )


def _compiled(pattern: str | None) -> Any:
    # RE2, as in Envoy: every expression is searched for in linear time.
    if pattern is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        if len(pattern) <= _MAX_FILTER_LENGTH:
            return re2.compile(pattern, options)
    except re2.error:
        pass
    raise BadQuery("Invalid re2 regex")


def render_text(envoy: EnvoyStatistics, prefix: str, query: Query) -> str:
    """Return one line per statistic, sorted, with the histograms last. `prefix` is `stat_prefix`."""
    lines = [f"{name}: {value}\n" for name, value in _numbers(envoy, prefix, query)]
    for name, interval, total in _histograms(envoy, prefix, query):
        lines.append(f"{name}: {_summary(interval, total, query.buckets)}\n")
    return "".join(lines)


def render_json(envoy: EnvoyStatistics, prefix: str, query: Query) -> bytes:
    """Return `{"stats": […]}`, whose last element has the histograms."""
    stats: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in _numbers(envoy, prefix, query)]
    histograms = list(_histograms(envoy, prefix, query))
    if histograms and query.buckets is Buckets.NONE:
        quantiles = {
            "supported_quantiles": [_percent(quantile) for quantile in _QUANTILES],
            "computed_quantiles": [
                {"name": name, "values": _quantile_values(interval, total)} for name, interval, total in histograms
            ],
        }
        stats.append({"histograms": quantiles})
    elif histograms:
        stats.append(
            {
                "histograms": [
                    {"name": name, "buckets": _bucket_values(interval, total, query.buckets)}
                    for name, interval, total in histograms
                ]
            }
        )
    return orjson.dumps({"stats": stats})


def _root(prefix: str) -> str:
    return f"rocketmq.{prefix}."


def _numbers(envoy: EnvoyStatistics, prefix: str, query: Query) -> Iterator[tuple[str, int]]:
    values = envoy.values()
    for stat in sorted(STATS, key=lambda stat: stat.name):
        name = _root(prefix) + stat.name
        if query.selects(name, stat.type, max(values[stat.used_with], values[stat.name]) > 0):
            yield name, values[stat.name]


def _histograms(envoy: EnvoyStatistics, prefix: str, query: Query) -> Iterator[tuple[str, Distribution, Distribution]]:
    interval, total = envoy.request_time()
    name = _root(prefix) + REQUEST_TIME
    if query.selects(name, StatType.HISTOGRAMS, any(total.counts)):
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
        f"B{bound:g}({in_interval},{in_total})"
        for bound, in_interval, in_total in zip(_MILLISECONDS, *_counts(interval, total, buckets), strict=True)
    )


def _quantile_values(interval: Distribution, total: Distribution) -> list[dict[str, float | None]]:
    # orjson encodes NaN as null, as Envoy does.
    return [
        {"cumulative": _quantile(total, quantile), "interval": _quantile(interval, quantile)} for quantile in _QUANTILES
    ]


def _bucket_values(interval: Distribution, total: Distribution, buckets: Buckets) -> list[dict[str, float]]:
    return [
        {"upper_bound": bound, "interval": in_interval, "cumulative": in_total}
        for bound, in_interval, in_total in zip(_MILLISECONDS, *_counts(interval, total, buckets), strict=True)
    ]


def _counts(interval: Distribution, total: Distribution, buckets: Buckets) -> tuple[list[int], list[int]]:
    """Return the counts of the buckets that have an upper bound, of the interval and in total."""
    bounded = (interval.counts[:-1], total.counts[:-1])
    if buckets is Buckets.CUMULATIVE:
        return list(accumulate(bounded[0])), list(accumulate(bounded[1]))
    return bounded


def _quantile(distribution: Distribution, quantile: float) -> float:
    """Return a quantile in milliseconds, interpolated within its bucket; at most the last bound."""
    count = sum(distribution.counts)
    if not count:
        return math.nan
    rank, below = quantile * count, 0
    lower = 0.0
    for upper, in_bucket in zip(_MILLISECONDS, distribution.counts, strict=False):
        if in_bucket and below + in_bucket >= rank:
            return lower + (upper - lower) * max(rank - below, 0.0) / in_bucket
        below, lower = below + in_bucket, upper
    return lower


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.6g}"


def _percent(quantile: float) -> float:
    return round(quantile * 100, 1)
