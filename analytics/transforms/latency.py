"""Latency: mergeable percentiles, and spikes."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.findings import finding, severity_by
from analytics.transforms.operations import ACK, SEND, is_operation
from analytics.transforms.outbreaks import about, culprit_phrase, outbreaks, without_repeats
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import is_rollup, require, rollup, weight, whole

PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9}


def latency(
    traffic: DataFrame,
    by: Sequence[str] = ("code", "topic", "broker"),
    every: str | None = "5 minutes",
    zone: str = "UTC",
) -> DataFrame:
    """Return percentiles of the response time, in µs and within 2 %, by the columns `by`; `latency` is the mergeable
    histogram.

    A receive's time includes waiting for messages: group by code.

    Columns: [time], *by, requests, p50_us, p90_us, p99_us, p999_us, latency.
    """
    percentiles = [histogram.percentile(f.col("latency"), percent).alias(name) for name, percent in PERCENTILES.items()]
    return rollup(traffic, by, every, zone).select(*named(every), *by, whole("requests"), *percentiles, "latency")


# Slow means three times the usual 95th percentile.
_USUAL = 0.95
_SLOWER = 3.0
_FLOOR = 0.02


def spikes(traffic: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Return findings latency_spike: times when far more sends and acknowledgements than usual were slow, at a broker
    or for a topic.

    traffic: records, or a roll-up with code, topic and broker. Polls are left out, because they wait on purpose.
    """
    suspects = ["topic", "broker", "code"]
    require(traffic, *suspects)
    rows = traffic.where(is_operation(SEND, ACK) & f.col("topic").isNotNull())
    usual = rollup(rows, ["code", "topic"], None).select(
        "code", "topic", (histogram.quantile(f.col("latency"), _USUAL) * _SLOWER).alias("slow_us")
    )
    slow = (
        histogram.above(f.col("latency"), f.col("slow_us"))
        if is_rollup(traffic)
        else f.when(f.col("latency_us") > f.col("slow_us"), weight(traffic)).otherwise(0.0)
    )
    requests = f.col("requests") if is_rollup(traffic) else weight(traffic)
    # Few rows: one per code and topic.
    judged = rows.join(f.broadcast(usual), ["code", "topic"], "inner")
    cells = judged.select(*keys(every), *suspects, slow.alias("bad"), requests.alias("total"))
    found = without_repeats(outbreaks(cells, ["broker", "topic"], suspects, every, _FLOOR), "broker", "topic")
    text = f.format_string(
        f"%.1f %% of the sends and acks at %s %s took more than {_SLOWER:.0f} times what is usual (else %.1f %%)%s",
        f.col("observed") * 100,
        f.col("level"),
        f.col("subject"),
        f.col("expected") * 100,
        culprit_phrase(suspects),
    )
    severity = severity_by(f.col("observed"), 0.1, 0.5)
    return finding(about(found, "topic", "broker"), "latency_spike", severity, f.col("subject"), text)
