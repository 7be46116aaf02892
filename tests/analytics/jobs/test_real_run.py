"""Records of a real replica with clients of both protocols: the counts equal those of its metrics."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.report import report
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from tests.proxy.observability.records.replica import grpc_work, remoting_work, replica

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

Counts = Counter[tuple[str, ...]]


def metric(app: App, family: str, *labels: str) -> Counts:
    """Sum a counter's series with these labels."""
    counts: Counts = Counter()
    for each in app.metrics.collect():
        for sample in each.samples:
            if each.name == family and sample.name == f"{family}_total":
                counts[tuple(sample.labels[label] for label in labels)] += int(sample.value)
    return +counts


def counted(out: Path, table: str, measure: str, *by: str) -> Counts:
    """Sum a report table by these columns."""
    counts: Counts = Counter()
    for row in pq.read_table(out / "tables" / f"{table}.parquet").to_pylist():
        counts[tuple(str(row[name]) for name in by)] += row[measure]
    return +counts


def quotas(out: Path) -> bool:
    """Return whether the page or its tables mention a rules file."""
    page = (out / "report.html").read_text()
    return "Effect of the rules file" in page or (out / "tables" / "quotas.parquet").exists()


async def test_report_counts_equal_metrics(spark: SparkSession, tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        await remoting_work(app)
        await grpc_work(app)
    out = tmp_path / "out"
    made = report(spark, str(tmp_path / "traffic"), str(out))
    assert not made.skipped
    # Without a rules file the report does not mention one.
    assert not quotas(out)
    requests = metric(app, "gantry_requests", "protocol", "code", "response")
    assert made.requests == requests.total() > 10
    assert counted(out, "load", "requests", "protocol") == metric(app, "gantry_requests", "protocol")
    assert counted(out, "load", "messages", "protocol") == metric(app, "gantry_messages", "protocol")
    assert counted(out, "latency", "requests", "code") == metric(app, "gantry_requests", "code")
    # Each answer is a success, or a provoked error.
    wrong = {"3", "17", str(int(Code.ILLEGAL_ACCESS_POINT))}
    failed = Counter({key: count for key, count in requests.items() if key[2] in wrong})
    assert failed.total() == 3
    assert counted(out, "errors", "requests", "protocol", "code", "response") == failed
    assert counted(out, "load", "errors", "protocol").total() == failed.total()
    topics = metric(app, "gantry_requests", "topic")
    del topics["",]
    # Metrics fold topics that brokers do not know; records keep the requested name.
    topics["nowhere",] += 1
    assert counted(out, "topics", "requests", "topic") == topics == {("orders",): 8, ("nowhere",): 2}
