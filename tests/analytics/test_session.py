"""The operator's view of Spark: errors only.

jobs/test_streaming.py, which has its own JVM, checks that a job is quiet from its start on.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import session


def test_session_output_drops_only_known_noise(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as lines:
        lines.write(b"WARNING: Using incubator modules: jdk.incubator.vector\nWARNING: another\nOutOfMemoryError")
    session.copy_filtered(reader)
    assert capfd.readouterr().err == "WARNING: another\nOutOfMemoryError"


def test_session_reports_a_java_that_fails_to_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analytics", "detect", str(tmp_path)]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    # Java's own reason, then the remedy.
    *why, last = done.stderr.splitlines()
    assert any(f"{tmp_path}/bin/java: No such file or directory" in line for line in why)
    assert last.startswith("gantry analytics: Java did not start")
    assert "Traceback" not in done.stderr


def test_session_sets_commit_and_listing_options(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "100000"


@pytest.mark.parametrize(
    ("master", "options", "some"),
    [
        ("local[*]", {}, True),
        ("spark://host:7077", {}, False),
        (None, {}, False),
        ("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, False),
    ],
)
def test_only_jobs_of_this_machine_compile_briefly(
    master: str | None, options: dict[str, str], some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert bool(session.brief_options(master, options)) is some
    # Java does not start with two garbage collectors.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    assert not session.brief_options(master, options)
