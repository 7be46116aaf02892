"""Streaming: the same windows as a batch, alerts that begin and end, and a killed job."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.generator import Plan, generate
from analytics.jobs.incidents import find
from analytics.jobs.report import Order as Span
from analytics.jobs.streaming import INCIDENTS, Limits, Order, evaluate_windows, post, stream, windows
from analytics.record_errors import NoRecords
from tests.analytics.frames import Row, at, contents, failed, receive, requests, send
from tests.analytics.jobs.record_files import TIMEOUT, job, kill, rows, until, write

# Files for several batches of four.
MINUTES = 16
HOUR = [
    row
    for minute in range(MINUTES)
    for row in (
        *(send(at(minute, number), latency_us=1000) for number in range(20)),
        *((failed(at(minute, 30 + number)) for number in range(10)) if minute in (6, 7) else ()),
        receive(at(minute, 50), topic="shop%paid", attempt=2, messages=3),
    )
]
# A record later than any window's end plus the lateness, which completes all earlier windows.
LATER = [send(at(60))]


def table(out: Path) -> list[Row]:
    found: list[Row] = []
    for path in sorted((out / "windows").iterdir()):
        found += pq.read_table(path).to_pylist()
    return sorted(found, key=lambda row: (row["time"], row["topic"]))


def alerts(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((out / "alerts").iterdir()) for line in path.read_text().splitlines()]


def test_stream_windows_equal_batch_windows(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "out"
    write(root, HOUR + LATER)
    stream(spark, str(root), str(out), once=True)
    whole = contents(windows(requests(spark, HOUR), "1 minute", "5 minutes"))
    assert table(out) == sorted(whole, key=lambda row: (row["time"], row["topic"]))
    assert [(each["state"], each["measure"], each["topic"], each["time"]) for each in alerts(out)] == [
        ("firing", "error_rate", "shop%orders", at(6).isoformat()),
        ("resolved", "error_rate", "shop%orders", at(8).isoformat()),
    ]
    # A restart continues: nothing new, nothing twice.
    before = sorted(path.name for path in (out / "windows").iterdir())
    stream(spark, str(root), str(out), once=True)
    assert sorted(path.name for path in (out / "windows").iterdir()) == before


def test_a_clock_in_the_future_ends_no_windows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, out = tmp_path / "records", tmp_path / "out"
    early, late = ([row for row in HOUR if (row["time"].minute < 8) is first] for first in (True, False))
    write(root, [*early, *(send(datetime(2140, 1, 1, tzinfo=UTC)) for _ in range(3))], "replica-0-00-0")
    stream(spark, str(root), str(out), once=True)
    write(root, [*late, *LATER], "replica-0-01-0")
    stream(spark, str(root), str(out), once=True)
    assert sum(row["requests"] for row in table(out)) == len(HOUR)
    lines = [record.getMessage() for record in caplog.records if "in the future" in record.getMessage()]
    assert [line.split(":")[1] for line in lines] == [" 3 requests are left out, since their times are in the future"]


@pytest.mark.timeout(900)
def test_stream_killed_in_a_batch_loses_and_repeats_nothing(tmp_path: Path) -> None:
    root, out, log = tmp_path / "records", tmp_path / "out", tmp_path / "log"
    for minute in range(MINUTES):
        write(root, [row for row in HOUR if row["time"].minute == minute], f"replica-0-{minute:02}-0")
    arguments = ("stream", str(root), "--out", str(out), "--files-per-batch", "4", "--lateness", "1 minute")
    batches = out / "_checkpoint"

    def in_flight() -> bool:
        """Return whether a batch has begun and not ended, after an earlier one has."""
        begun, ended = ({path.name for path in (batches / name).glob("[0-9]*")} for name in ("offsets", "commits"))
        return bool(ended) and bool(begun - ended)

    with job(*arguments, "--interval", "1 second", log=log) as process:
        until(in_flight, process, log)
        kill(process)
    write(root, LATER, "replica-0-99-0")
    with job(*arguments, "--once", log=log) as process:
        assert process.wait(TIMEOUT) == 0, log.read_text()
    counted = table(out)
    assert sum(row["requests"] for row in counted) == len(HOUR)
    assert len({(row["time"], row["topic"]) for row in counted}) == len(counted) == 2 * MINUTES
    assert [each["state"] for each in alerts(out)] == ["firing", "resolved"]
    # The terminal shows nothing of two starts of Spark and all its work.
    assert log.read_text() == ""


def window(minute: int, topic: str = "orders", **more: Any) -> Row:
    values = {"requests": 100, "error_rate": 0.0, "redelivery_rate": None, "p99_us": 1000}
    return {"time": at(minute), "topic": topic} | values | more


def test_alerts_fire_and_resolve_once() -> None:
    firing: set[tuple[str, str | None]] = set()
    rows = [window(0), window(1, error_rate=0.5), window(2, error_rate=0.6), window(3)]
    told = [(each.state, each.measure, each.time) for each in evaluate_windows(rows, Limits(), firing)]
    assert told == [("firing", "error_rate", at(1)), ("resolved", "error_rate", at(3))]
    # The next batch ends alerts that an earlier one left open; few requests do not fire.
    list(
        evaluate_windows([window(4, p99_us=2_000_000), window(4, "few", requests=3, error_rate=1.0)], Limits(), firing)
    )
    assert firing == {("p99_ms", "orders")}
    (last,) = evaluate_windows([window(5, "other")], Limits(), firing)
    assert (last.state, last.topic, last.value) == ("resolved", "orders", None)
    assert not list(evaluate_windows([], Limits(), firing))


@contextmanager
def webhook(*answers: int) -> Iterator[tuple[str, list[tuple[str | None, Any]]]]:
    """Serve these answers, one after the other; yield the received requests."""
    told: list[tuple[str | None, Any]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((self.headers["Idempotency-Key"], json.loads(content)))
            self.send_response(left.pop(0))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_webhook_is_retried_until_it_accepts() -> None:
    with webhook(503, 500, 204) as (url, told):
        assert post(url, {"alerts": []}, "7", (0.0, 0.0, 0.0))
    assert told == [("7", {"alerts": []})] * 3


def test_webhook_that_always_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with webhook(500, 500) as (url, told):
        assert not post(url, {}, "8", (0.0,))
    assert len(told) == 2
    assert "did not take alerts of batch 8" in caplog.text


def test_alerts_reach_the_webhook(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "out"
    write(root, [row for row in HOUR if 4 <= row["time"].minute < 10] + LATER)
    with webhook(*[200] * 9) as (url, told):
        stream(spark, str(root), str(out), Order(webhook=url), once=True)
    assert [alert for _, content in told for alert in content["alerts"]] == alerts(out)
    assert len(alerts(out)) == 2


def test_stream_that_died_before_its_first_batch_begins_again(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "out"
    write(root, HOUR + LATER)
    offsets = out / "_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (out / "_checkpoint" / "metadata").write_text('{"id":"dec3dd58-62be-4701-906d-7150c4831562"}')
    (offsets / ".0.27755a2a-a875-4cb9-9332-5351b490bd90.tmp").write_bytes(b"v1")
    stream(spark, str(root), str(out), once=True)
    assert list((out / "windows").iterdir())


def test_stream_without_its_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="let the proxy write there first"):
        stream(spark, str(tmp_path / "none"), str(tmp_path / "out"), once=True)
    (tmp_path / "out" / "windows").mkdir(parents=True)
    (tmp_path / "out" / "windows" / "0000000001.parquet").touch()
    with pytest.raises(ValueError, match="no checkpoint"):
        stream(spark, str(tmp_path), str(tmp_path / "out"), once=True)


def test_repeated_batch_replaces_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """foreachBatch repeats a number if a crash fell between the files and the commit."""
    from analytics.jobs.place import Directory
    from analytics.jobs.streaming import sink

    write_batch = sink(Directory(tmp_path), Limits(), None)
    first = windows(requests(spark, [row for row in HOUR if row["time"].minute == 6]), "1 minute", "1 minute")
    write_batch(first, 3)
    before = rows(tmp_path), alerts(tmp_path)
    write_batch(first, 3)
    assert (rows(tmp_path), alerts(tmp_path)) == before
    assert [each["state"] for each in alerts(tmp_path)] == ["firing"]


@pytest.mark.timeout(900)
def test_stream_finds_the_incidents_of_the_batch_within_a_minute(spark: SparkSession, tmp_path: Path) -> None:
    """The demonstration's records arrive; the last hours, in which an incident ends, while the stream runs."""
    root, out = tmp_path / "records", tmp_path / "out"
    generate(root, Plan(records=60_000, days=3, tenants=2, seed=2))
    hours = sorted(root.glob("requests/*/*"))
    later = [(path, tmp_path / "later" / str(number)) for number, path in enumerate(hours[-24:])]
    (tmp_path / "later").mkdir()
    for path, place in later:
        path.rename(place)
    expected = {each.line() for each in find(lambda: nullcontext(spark), str(root), Span()).incidents}
    begun: list[float] = []

    def arrive() -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and not (out / INCIDENTS).exists():
            time.sleep(0.2)
        first.update((out / INCIDENTS).read_text(encoding="utf-8").splitlines())
        for path, place in later:
            place.rename(path)
        begun.append(time.monotonic())
        whole.update(each.line() for each in find(lambda: nullcontext(spark), str(root), Span()).incidents)
        while time.monotonic() < deadline and set((out / INCIDENTS).read_text(encoding="utf-8").splitlines()) != whole:
            time.sleep(0.2)
        begun.append(time.monotonic())
        for query in spark.streams.active:
            query.stop()

    first: set[str] = set()
    whole: set[str] = set()
    thread = threading.Thread(target=arrive)
    thread.start()
    order = Order(interval="1 second", files_per_batch=1000, detect_every=1.0)
    stream(spark, str(root), str(out), order)
    thread.join()
    assert first == expected
    assert set((out / INCIDENTS).read_text(encoding="utf-8").splitlines()) == whole != expected
    assert begun[1] - begun[0] < 60


def test_webhook_that_does_not_speak_http_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(bytes((21, 3, 3, 0, 2, 2, 70)))

        thread = threading.Thread(target=answer)
        thread.start()
        assert not post(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, "9", ())
        thread.join()
    assert "did not take alerts of batch 9" in caplog.text
