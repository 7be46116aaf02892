"""Load by any columns."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.transforms.periods import named
from analytics.transforms.rollup import rollup, whole


def load(
    traffic: DataFrame, by: Sequence[str] = ("protocol",), every: str | None = "1 hour", zone: str = "UTC"
) -> DataFrame:
    """Return requests, errors, messages and bytes by the columns `by` of the records (protocol, topic, group,
    client_id, language, version, …); error_rate is of the requests.

    Columns: [time], *by, requests, errors, messages, bytes_in, bytes_out, error_rate.
    """
    sums = rollup(traffic, by, every, zone, latency=False)
    counts = [whole(name) for name in ("requests", "errors", "messages", "bytes_in", "bytes_out")]
    return sums.select(*named(every), *by, *counts, (f.col("errors") / f.col("requests")).alias("error_rate"))
