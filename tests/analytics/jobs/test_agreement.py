"""Records and metrics of a real replica agree to the last request; a missing request is reported."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest
from pyspark.sql import SparkSession

from proxy.observability.metrics import request_counts
from proxy.observability.metrics.label_limiter import OTHER
from tests.clients.agreement import compare
from tests.proxy.observability.metrics.samples import observation
from tests.proxy.observability.records.replica import grpc_work, remoting_work, replica

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def test_records_and_metrics_of_a_replica_agree(spark: SparkSession, tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        await remoting_work(app)
        await grpc_work(app)
    where = str(tmp_path / "traffic")
    found = compare(spark, generate_latest(app.metrics).decode(), where)
    assert found.differences == ()
    assert (found.errors, found.messages, found.topics, found.connections) == (3, 8, 2, 2)
    held = f"records: {found.requests} requests, 3 errors, 8 messages, 2 topics, 2 connections"
    assert str(found) == f"{held}, agree with the metrics"

    # An action that no record has.
    app.metrics.observe(observation(topic="orders", messages=2, bytes_in=7))
    app.metrics.observe(observation("PULL_MESSAGE", 1, topic="more", messages=1, bytes_out=9, group="g"))
    lacking = compare(spark, generate_latest(app.metrics).decode(), where)
    assert lacking.requests == found.requests
    assert lacking.differences == (
        "requests by protocol, code, response and topic: "
        "'remoting', 'PULL_MESSAGE', '1', 'more': 1 by the metrics, 0 by the records",
        "requests by protocol, code, response and topic: "
        "'remoting', 'SEND_MESSAGE_V2', '0', 'orders': 6 by the metrics, 5 by the records",
        "errors by protocol and code: 'remoting', 'pull_message': 1 by the metrics, 0 by the records",
        "messages by protocol and action: 'remoting', 'pulled': 1 by the metrics, 0 by the records",
        "messages by protocol and action: 'remoting', 'sent': 7 by the metrics, 5 by the records",
        "body bytes by protocol, code and direction: "
        "'remoting', 'PULL_MESSAGE', 'out': 9 by the metrics, 0 by the records",
        "body bytes by protocol, code and direction: "
        "'remoting', 'SEND_MESSAGE_V2', 'in': 57 by the metrics, 50 by the records",
        "messages in by topic: 'orders': 10 by the metrics, 8 by the records",
        "bytes in by topic: 'orders': 72 by the metrics, 65 by the records",
        "messages out by topic and group: 'more', 'g': 1 by the metrics, 0 by the records",
        "bytes out by topic and group: 'more', 'g': 9 by the metrics, 0 by the records",
    )
    assert str(lacking).startswith(f"{held}, DIFFER from the metrics:\nrequests by")


async def test_records_and_metrics_agree_beyond_the_row_limit_of_metrics(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_counts, "_MAX_ROWS", 4)
    async with replica(tmp_path) as app:
        await remoting_work(app)
        await grpc_work(app)
    text = generate_latest(app.metrics).decode()
    assert f'topic="{OTHER}"' in text
    assert compare(spark, text, str(tmp_path / "traffic")).differences == ()
