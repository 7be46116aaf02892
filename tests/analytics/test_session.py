"""What an operator sees of Spark: errors, and nothing else. That a job is quiet from its start on is seen in
jobs/test_streaming.py, which has a JVM of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import session


def test_only_the_noise_is_kept_back(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as lines:
        lines.write(b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: another\nOutOfMemoryError")
    session.copy_filtered(reader)
    assert capfd.readouterr().err == "WARNING: another\nOutOfMemoryError"


def test_a_java_that_does_not_start_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analytics", "detect", str(tmp_path)]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    # Why, in the words of who knows; then what to do about it.
    *why, last = done.stderr.splitlines()
    assert any(f"{tmp_path}/bin/java: No such file or directory" in line for line in why)
    assert last.startswith("gantry analytics: Java did not start")
    assert "Traceback" not in done.stderr


def test_where_jobs_write_and_list_is_the_sessions_business(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "100000"
