"""The Spark session: local by default, any master by one option."""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

# Times are instants, shown in UTC; local days are asked for by name (transforms/periods.py).
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Page checksums, where a file has them: silent damage becomes an error, and the file is skipped.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # As all other readers want it; Spark's default is a form that Parquet has given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# What Spark's JVM writes to the terminal, and what no setting of Java's keeps it from saying at each start.
_LOGGING = Path(__file__).with_name("log4j2.properties")
_NOISE = b"WARNING: Using incubator modules"


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
        # Listing directories by a job of a task each is for object stores.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }


def session(
    name: str = "gantry-analytics",
    master: str | None = "local[*]",
    *,
    memory: str = "2g",
    options: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """The session, made or found.

    master: any Spark master; None: what spark-submit says. memory: the driver's, where the master is local; it is too
    late for it once a JVM runs. options: further Spark settings, which win. quiet: of Spark only errors are seen, from
    the first line on if it is this that starts the JVM. Raises OSError, if quiet, where there is no Java.
    """
    settings = dict(_ALWAYS)
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            settings |= _local(memory)
    if quiet and _LOGGING.is_file():
        # Those of defaultJavaOptions come before what anybody gives as extraJavaOptions.
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings |= {"spark.app.name": name, **dict(options or {})}
    if quiet and SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = SparkConf().setAll(list(settings.items()))
        SparkContext(conf=conf, gateway=_launch(conf))
    builder = SparkSession.Builder()
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if quiet:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _launch(conf: SparkConf) -> Any:
    """A JVM whose stderr is this process's, but for the noise."""
    reader, writer = os.pipe()
    thread = Thread(target=pass_on, args=(reader,), name="spark-stderr", daemon=True)
    thread.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writer})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        gateway = None
    finally:
        os.close(writer)
    if gateway is None:
        thread.join()
        raise OSError("Java did not start: Spark needs Java 17 or later, in JAVA_HOME or on the path")
    return gateway


def pass_on(reader: int) -> None:
    """Write to stderr what comes from that end of a pipe, until it ends; all but the noise, line by line."""
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(2, line)
