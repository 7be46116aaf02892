"""A scrape of a replica that clients of both protocols use."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.proxy.workers.processes import Process, total
from tests.tools import promtool


@pytest.fixture(params=[1, 2], ids=["alone", "two-workers"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, request.param)
    try:
        yield process
        process.end()
    finally:
        process.process.kill()
        process.process.wait()


@pytest.mark.external
def test_promtool_accepts_the_served_metrics(process: Process) -> None:
    process.gantry("topics", "create", "orders")
    for _ in range(8):
        process.send("orders")
    process.gantry("receive", "orders", "--group", "g", "--max", "8", "--wait", "10s")
    process.wait(lambda: process.sum("rocketmq_messages_out_total", consumer_group="g") == 8)
    text = process.text()
    # Checks names, help texts, types and labels against Prometheus' conventions.
    done = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    parse: Any = open_metrics.text_string_to_metric_families
    assert list(parse(process.text("application/openmetrics-text; version=1.0.0")))
    protocols = {
        sample.labels["protocol"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "gantry_requests_total"
    }
    assert protocols == {"grpc", "remoting"}
    assert total(text, "rocketmq_messages_in_total", topic="orders") == 8
    assert total(text, "rocketmq_messages_out_total", consumer_group="g") == 8
    assert total(text, "gantry_requests_total", code="SendMessage", response=str(Code.OK)) == 8
    open_or_closed = total(text, "gantry_connections") + total(text, "gantry_connections_closed_total")
    assert total(text, "gantry_connections_opened_total") == open_or_closed
