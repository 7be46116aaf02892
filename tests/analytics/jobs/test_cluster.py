"""A real cluster: a master and two workers of pyspark's own classes, and spark-submit with the shipped files."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.package import package
from analytics.jobs.rollups import DAILY, HOURLY, roll
from tests.analytics.frames import at, failed, receive, send
from tests.analytics.jobs.record_files import LIGHT, TIMEOUT, kill, rows, until, write

HOME = Path(pyspark.__file__).parent


@contextmanager
def daemon(name: str, *arguments: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """One process of the cluster."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
        "SPARK_WORKER_DIR": str(log.parent / "work"),
    }
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def await_part(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the process has joined the cluster."""
    words = "I have been elected leader|Successfully registered with master"
    until(lambda: re.search(words, log.read_text()), process, log)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a master with two workers of one core."""
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        await_part(stack.enter_context(daemon("master.Master", "--port", "0", "--webui-port", "0", log=log)), log)
        match = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert match is not None
        options = ("--cores", "1", "--memory", "512m", "--webui-port", "0", match[1])
        logs = [tmp_path / f"worker-{number}.log" for number in range(2)]
        # Both start at the same time.
        workers = [stack.enter_context(daemon("worker.Worker", *options, log=each)) for each in logs]
        for worker, each in zip(workers, logs, strict=True):
            await_part(worker, each)
        yield match[1]


@pytest.mark.timeout(1500)
def test_shipped_archive_gives_the_same_result_on_a_cluster(spark: SparkSession, cluster: str, tmp_path: Path) -> None:
    root = tmp_path / "records"
    write(root, [send(at(minute), latency_us=1000 + minute) for minute in range(0, 120, 5)])
    write(root, [receive(at(minute), group="g") for minute in range(0, 120, 7)], "replica-1-0-0")
    write(root, [failed(at(30))], "replica-2-0-0")
    program, archive = package(tmp_path / "dist")
    out = tmp_path / "cluster"
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": LIGHT,
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
    }
    command = [
        *(str(HOME / "bin" / "spark-submit"), "--master", cluster, "--py-files", str(archive)),
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        *(str(program), "rollup", str(root), "--out", str(out)),
    ]
    # Away from the checkout and without its path: only the shipped files.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "2 hours and 1 days rolled up anew" in done.stdout
    # Both workers took part, and nothing ran elsewhere.
    assert all((tmp_path / f"worker-{number}.log").read_text().count("Asked to launch executor") for number in range(2))
    local = tmp_path / "local"
    roll(spark, str(root), str(local))
    for name in (HOURLY, DAILY):
        assert rows(out / name) == rows(local / name)
        assert rows(out / name)
