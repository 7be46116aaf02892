"""Errors: their kinds, their rates, and bursts of them."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms.findings import finding, severity_by
from analytics.transforms.outbreaks import about, culprit_phrase, outbreaks, without_repeats
from analytics.transforms.periods import keys, named
from analytics.transforms.responses import meaning
from analytics.transforms.rollup import measures, require, rollup, whole

_SUSPECTS = ("client_id", "group", "broker", "code")
# Error rates below this are never a burst.
_FLOOR = 0.002


def errors(traffic: DataFrame, every: str | None = "1 hour", zone: str = "UTC") -> DataFrame:
    """Return failed requests by response code. traffic: records, or a roll-up with protocol, code, topic and response.

    Columns: [time], protocol, code, topic, response, meaning, requests.
    """
    by = ["protocol", "code", "topic", "response"]
    require(traffic, *by)
    failed = rollup(traffic, by, every, zone, latency=False).where(f.col("errors") > 0)
    requests = f.round("errors").cast("long").alias("requests")
    return failed.select(*named(every), *by, meaning(f.col("response")).alias("meaning"), requests)


def rates(
    traffic: DataFrame, by: Sequence[str] = ("topic",), every: str | None = "5 minutes", zone: str = "UTC"
) -> DataFrame:
    """Columns: [time], *by, requests, errors, error_rate."""
    sums = rollup(traffic, by, every, zone, latency=False)
    rate = (f.col("errors") / f.col("requests")).alias("error_rate")
    return sums.select(*named(every), *by, whole("requests"), whole("errors"), rate)


def bursts(traffic: DataFrame, every: str = "5 minutes") -> DataFrame:
    """Return findings error_burst: times when far more requests than usual failed, at a broker or for a topic.

    traffic: records, or a roll-up with topic, broker, client_id, group and code. A broker is not listed if its errors
    are those of one topic, nor a topic if its errors are those of a failing broker.
    """
    require(traffic, "topic", *_SUSPECTS)
    rows = traffic.select(*keys(every), "topic", *_SUSPECTS, *measures(traffic))
    cells = rows.withColumnsRenamed({"errors": "bad", "requests": "total"})
    found = without_repeats(
        outbreaks(cells, ["broker", "topic"], ["topic", *_SUSPECTS], every, _FLOOR), "broker", "topic"
    )
    text = f.format_string(
        "%.1f %% of the requests at %s %s failed (%,.0f of %,.0f; usually %.1f %%)%s",
        f.col("observed") * 100,
        f.col("level"),
        f.col("subject"),
        f.col("bad"),
        f.col("total"),
        f.col("expected") * 100,
        culprit_phrase(["topic", *_SUSPECTS]),
    )
    named = about(found, "topic", "broker", "group", "client_id")
    return finding(named, "error_burst", severity_by(f.col("observed"), 0.05, 0.25), f.col("subject"), text)
