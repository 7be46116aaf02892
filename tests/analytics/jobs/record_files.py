"""Record files as the proxy leaves them, their contents, and jobs as processes."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from analytics.generator import files
from analytics.schema import table
from proxy.observability.records import arrow
from tests.analytics.frames import Row, contents

# Seconds that a busy machine may take.
TIMEOUT = 300.0


def write(root: Path, rows: Sequence[Row], name: str = "replica-0-1-0", of: str = "requests") -> None:
    """Write one file in each hour of the rows."""
    definition = table(of)
    schema = arrow.schema(definition)
    ordered = sorted(rows, key=lambda row: row["time"])
    for hour, part in groupby(ordered, key=lambda row: row["time"].replace(minute=0, second=0, microsecond=0)):
        complete = [{field: row.get(field) for field in schema.names} for row in part]
        files.write(root, definition, hour, pa.Table.from_pylist(complete, schema), name)


def rows(folder: Path) -> Counter[tuple[Any, ...]]:
    """Count every row of the Parquet files that a reader sees."""
    found: Counter[tuple[Any, ...]] = Counter()
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            found.update(_row(row) for row in pq.read_table(path, partitioning=None).to_pylist())
    return found


def _row(row: Row) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in row.values())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(tuple(entry.values()) for entry in value)
    return round(value, 6) if isinstance(value, float) else value


@contextmanager
def job(*arguments: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `python -m analytics …` as a process; at the end kill it with its Spark, if it still runs."""
    command = [sys.executable, "-m", "analytics", *arguments, *QUICK]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


# Small work: the least compilation is fastest.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = (
    "--memory=512m",
    "--master=local[1]",
    "--option=spark.sql.shuffle.partitions=1",
    "--option=spark.sql.codegen.wholeStage=false",
    "--option=spark.sql.adaptive.enabled=false",
    f"--option=spark.driver.extraJavaOptions={LIGHT}",
)


def kill(process: "subprocess.Popen[Any]") -> None:
    """Send SIGKILL to the process and its JVM, which share a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT)


def until(true: Callable[[], object], process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the process fulfils a condition."""
    end = time.monotonic() + TIMEOUT
    while not true():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.005)


def plain(rolled: DataFrame) -> list[str]:
    """Return the rows with the number of clients in place of their sketch: the bytes depend on the order of merging."""
    counted = rolled.withColumn("clients", f.hll_sketch_estimate("clients"))
    return sorted(map(str, contents(counted.select(*sorted(counted.columns)))))
