"""Latency: percentiles that can be merged, and spikes."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.findings import finding, graded
from analytics.transforms.operations import ACK, SEND, doing
from analytics.transforms.outbreaks import about, blame, outbreaks, told_once
from analytics.transforms.periods import keys, named
from analytics.transforms.rollup import is_rollup, require, rollup, weight, whole

PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9}


def latency(
    traffic: DataFrame,
    by: Sequence[str] = ("code", "topic", "broker"),
    every: str | None = "5 minutes",
    zone: str = "UTC",
) -> DataFrame:
    """Percentiles of the time until the answer, in µs and within 2 %, by the columns `by`; `latency` is for merging.

    A receive's time includes waiting for messages: ask by code.

    [time], *by, requests, p50_us, p90_us, p99_us, p999_us, latency
    """
    percentiles = [histogram.percentile(f.col("latency"), percent).alias(name) for name, percent in PERCENTILES.items()]
    return rollup(traffic, by, every, zone).select(*named(every), *by, whole("requests"), *percentiles, "latency")


# Slow is what takes thrice as long as all but a twentieth usually do.
_USUAL = 0.95
_SLOWER = 3.0
_FLOOR = 0.02


def spikes(traffic: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Findings latency_spike: times when far more sends and acks than usual were slow, at a broker or for a topic.

    traffic: records, or a roll-up with code, topic and broker. Polls are left out, because they wait on purpose.
    """
    suspects = ["topic", "broker", "code"]
    require(traffic, *suspects)
    rows = traffic.where(doing(SEND, ACK) & f.col("topic").isNotNull())
    usual = rollup(rows, ["code", "topic"], None).select(
        "code", "topic", (histogram.quantile(f.col("latency"), _USUAL) * _SLOWER).alias("slow_us")
    )
    slow = (
        histogram.above(f.col("latency"), f.col("slow_us"))
        if is_rollup(traffic)
        else f.when(f.col("latency_us") > f.col("slow_us"), weight(traffic)).otherwise(0.0)
    )
    requests = f.col("requests") if is_rollup(traffic) else weight(traffic)
    # Few rows: as many as there are codes and topics.
    judged = rows.join(f.broadcast(usual), ["code", "topic"], "inner")
    cells = judged.select(*keys(every), *suspects, slow.alias("bad"), requests.alias("total"))
    found = told_once(outbreaks(cells, ["broker", "topic"], suspects, every, _FLOOR), "broker", "topic")
    text = f.format_string(
        f"%.1f %% of the sends and acks at %s %s took more than {_SLOWER:.0f} times what is usual (else %.1f %%)%s",
        f.col("observed") * 100,
        f.col("level"),
        f.col("subject"),
        f.col("expected") * 100,
        blame(suspects),
    )
    severity = graded(f.col("observed"), 0.1, 0.5)
    return finding(about(found, "topic", "broker"), "latency_spike", severity, f.col("subject"), text)
