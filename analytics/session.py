"""The Spark session: local by default, any master by one option."""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

# Times are instants, shown in UTC; local days are asked for by name (transforms/periods.py).
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Page checksums, where a file has them: silent damage becomes an error, and the file is skipped.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}


def _local(memory: str) -> dict[str, str]:
    """Settings for one machine: a cluster's 200 shuffle partitions cost more than they do."""
    cores = os.cpu_count() or 1
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.default.parallelism": str(cores),
    }


def session(
    name: str = "gantry-analytics",
    master: str | None = "local[*]",
    *,
    memory: str = "2g",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, made or found.

    master: any Spark master; None: what spark-submit says. memory: the driver's, where the master is local; it is too
    late for it once a JVM runs. options: further Spark settings, which win.
    """
    builder = SparkSession.Builder().appName(name)
    settings = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings |= _local(memory)
    for key, value in (settings | dict(options or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
