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

# Times are instants, shown in UTC; local days take the zone by name (transforms/periods.py).
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Verify page checksums where a file has them: silent damage becomes an error, and the file is skipped.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # The timestamp form that all other readers use; Spark's default is deprecated in Parquet.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# Lines of Spark's JVM at every start that no Java setting suppresses.
_LOGGING = Path(__file__).with_name("log4j2.properties")
_NOISE = b"WARNING: Using incubator modules"


def _local(memory: str) -> dict[str, str]:
    """Return settings for one machine: the 200 shuffle partitions of a cluster cost more than they save."""
    cores = os.cpu_count() or 1
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.default.parallelism": str(cores),
        # Parallel listing of directories, a job with one task per directory, is for object stores.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }


def session(
    name: str = "gantry-analytics",
    master: str | None = "local[*]",
    *,
    memory: str = "2g",
    options: Mapping[str, str] | None = None,
    quiet: bool = False,
    brief: bool = False,
) -> SparkSession:
    """Create or return the session.

    master: any Spark master; None: as spark-submit sets it. memory: of the driver, for a local master; it has no effect
    once a JVM runs. options: further Spark settings, which win. quiet: show only errors of Spark, from the first line
    on if this call starts the JVM. brief: for a job of a minute or two on one machine, whose JVM should compile quickly
    rather than thoroughly; a user's extraJavaOptions turn it off. Raises OSError, if quiet, where Java is missing.
    """
    settings = dict(_ALWAYS)
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            settings |= _local(memory)
    java = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"] if quiet and _LOGGING.is_file() else []
    if brief:
        java += brief_options(master, options or {})
    if java:
        # They come before a user's extraJavaOptions.
        settings["spark.driver.defaultJavaOptions"] = " ".join(java)
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


def brief_options(master: str | None, options: Mapping[str, str]) -> list[str]:
    """Return the JVM's options for a brief job: none on a cluster, or beside a user's own, of which some conflict."""
    local = master is not None and master.startswith("local")
    if not local or "spark.driver.extraJavaOptions" in options or "JAVA_TOOL_OPTIONS" in os.environ:
        return []
    # Each method is compiled once: a report of a million requests spends most of its time in code that runs briefly.
    return ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def _launch(conf: SparkConf) -> Any:
    """Start a JVM whose stderr is this process's, without the known noise."""
    reader, writer = os.pipe()
    thread = Thread(target=copy_filtered, args=(reader,), name="spark-stderr", daemon=True)
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


def copy_filtered(reader: int) -> None:
    """Copy lines from the end of a pipe to stderr until it closes, without the known noise."""
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(2, line)
