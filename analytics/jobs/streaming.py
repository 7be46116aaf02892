"""Streaming: windows of the traffic, and alerts, while records are written, by Spark's Structured Streaming.

A window is complete when a record arrives that is later by the allowed lateness; then it is written once. Each batch
writes files named by its number; a batch repeated after a crash replaces them with the same contents: no loss, no
duplicates. Webhooks are called at least once, with a key that identifies repetitions. Beside the batches, incidents are
found as `detect` finds them.
"""

import http.client
import io
import json
import logging
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from analytics import records
from analytics.jobs import partitions
from analytics.jobs.incidents import find
from analytics.jobs.place import Place, place
from analytics.jobs.report import Order as Span
from analytics.record_errors import NoRecords, Skipped, cause
from analytics.transforms.operations import RECEIVE, SEND, is_operation
from analytics.transforms.rollup import measures

_log = logging.getLogger("gantry.analytics")

_CHECKPOINT = "_checkpoint"
_OPEN = "_open.json"
INCIDENTS = "incidents.jsonl"
_AHEAD = "ahead"
# Seconds between two calls of a failing webhook.
_PAUSES = (1.0, 2.0, 4.0, 8.0)
_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a topic's window: shares of requests and of deliveries, ms of its sends; and the minimum number of
    requests.
    """

    error_rate: float = 0.05
    p99_ms: float = 1000.0
    redelivery_rate: float = 0.2
    least: int = 20


@dataclass(frozen=True, slots=True)
class Order:
    """Parameters of the stream: durations in Spark's form. files_per_batch bounds the work of one batch."""

    window: str = "1 minute"
    lateness: str = "5 minutes"
    limits: Limits = field(default_factory=Limits)
    webhook: str | None = None
    interval: str = "10 seconds"
    files_per_batch: int = 1000
    # Seconds between two detections of incidents, and days of records that they compare.
    detect_every: float = 30.0
    history_days: int = 7


@dataclass(frozen=True, slots=True)
class Alert:
    """A limit that a topic has begun to exceed (firing), or no longer exceeds (resolved)."""

    state: str
    measure: str
    topic: str | None
    time: datetime
    value: float | None
    limit: float

    def json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "measure": self.measure,
            "topic": self.topic,
            "time": self.time.isoformat(),
            "value": self.value,
            "limit": self.limit,
        }


def windows(requests: DataFrame, window: str, lateness: str) -> DataFrame:
    """Return the requests of each window and topic, as a stream or not.

    Columns: time, topic, requests, errors, messages, answers (that contained messages), repeats (of these, with a
    redelivered message), error_rate, redelivery_rate (of the answers), p99_us (of sends).
    """
    counted = ("requests", "errors", "messages", "repeats")
    moving = f.when(is_operation(RECEIVE), f.col("moving")).otherwise(0.0)
    sends = f.when(is_operation(SEND), f.col("latency_us"))
    sums = (
        requests.withWatermark("time", lateness)
        .select("time", "topic", "code", "latency_us", *measures(requests))
        .groupBy(f.window("time", window).alias("window"), "topic")
        .agg(
            *(f.round(f.sum(name)).cast("long").alias(name) for name in counted),
            f.round(f.sum(moving)).cast("long").alias("answers"),
            f.percentile_approx(sends, 0.99).alias("p99_us"),
        )
    )
    return sums.select(
        f.col("window.start").alias("time"),
        "topic",
        *counted,
        "answers",
        f.try_divide("errors", "requests").alias("error_rate"),
        f.try_divide("repeats", "answers").alias("redelivery_rate"),
        "p99_us",
    )


def without_future(requests: DataFrame, lateness: str) -> DataFrame:
    """Return a stream without the records of clocks that are ahead by more than the lateness.

    The first of them would complete all windows before its time, so that other records count in none. Their number is
    the observed metric `_AHEAD` of each batch.
    """
    ahead = f.col("time") > f.current_timestamp() + f.lit(lateness).cast("interval")
    return requests.observe(_AHEAD, f.count_if(ahead).alias(_AHEAD)).where(~ahead)


def stream(
    spark: SparkSession, root: str, out: str, order: Order | None = None, *, once: bool = False
) -> Sequence[Skipped]:
    """Write windows and alerts to `out` until SIGTERM; with `once`, until all existing records are read, and return the
    files that could not be read.

    Files in `out`: windows/NUMBER.parquet, alerts/NUMBER.jsonl, incidents.jsonl, _checkpoint. A restart continues from
    the checkpoint. Raises NoRecords if there is no directory of requests yet, ValueError if `out` has windows but no
    checkpoint.
    """
    order = Order() if order is None else order
    target = place(spark, out)
    _check_begin(target, out)
    requests = records.stream(spark, root, options={"maxFilesPerTrigger": str(order.files_per_batch)})
    if once and not partitions.hours(spark, root, "requests"):
        raise NoRecords(f"there are no files of requests in {root}: nothing was read")
    detection = Detection(spark, root, target, order)
    write = sink(target, order.limits, order.webhook)

    def both(batch: DataFrame, number: int) -> None:
        write(batch, number)
        detection.pending = True

    writer = (
        windows(without_future(requests, order.lateness), order.window, order.lateness)
        .writeStream.outputMode("append")
        .option("checkpointLocation", f"{target.uri}/{_CHECKPOINT}")
        .foreachBatch(both)
    )
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=order.interval)).start()
    _until_stopped(query, detection)
    return records.read(spark, root).skipped if once else ()


def _check_begin(target: Place, out: str) -> None:
    """Raise ValueError for windows without a checkpoint; remove the checkpoint of a stream that had no batch yet.

    Spark refuses a directory of offsets that has no batch but a temporary file, as a process leaves it that dies while
    it writes the first one.
    """
    if any(name.isdigit() for name in target.names(f"{_CHECKPOINT}/offsets")):
        return
    if target.names("windows"):
        raise ValueError(f"{out} has windows but no checkpoint, so they would be counted anew: name another directory")
    target.remove(_CHECKPOINT)


class Detection:
    """Incidents of the growing records, written to `out`/incidents.jsonl: all that are known, one in each line."""

    def __init__(self, spark: SparkSession, root: str, target: Place, order: Order) -> None:
        self._spark = spark
        self._root = root
        self._target = target
        self._order = order
        self._next = 0.0
        # Whether records came after the last detection.
        self.pending = True

    def run_if_due(self) -> None:
        """Find incidents if records came, unless that was done a moment ago. A failure does not end the stream."""
        if not self.pending or time.monotonic() < self._next:
            return
        self.pending = False
        try:
            self.run()
        except (PySparkException, Py4JError, OSError) as error:
            _log.error("incidents were not looked for: %s", cause(error))
        self._next = time.monotonic() + self._order.detect_every

    def run(self) -> None:
        """Find incidents and replace the file."""
        since = datetime.now(UTC) - timedelta(days=self._order.history_days)
        try:
            found = find(lambda: nullcontext(self._spark), self._root, Span(since=self._since(since)))
        except NoRecords:
            return
        lines = "".join(each.line() + "\n" for each in found.incidents)
        self._target.write(INCIDENTS, lines.encode())
        _log.info("%d incidents", len(found.incidents))

    def _since(self, recent: datetime) -> datetime | None:
        """Return the beginning of the history; None for records of another time, which are read whole."""
        newest = max(map(partitions.begin, partitions.hours(self._spark, self._root, "requests")), default=None)
        return recent if newest is not None and newest > recent else None


def _until_stopped(query: StreamingQuery, detection: Detection) -> None:
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in _SIGNALS}
    clocks = _Clocks()
    try:
        # In steps, so that signals are handled in between.
        while not query.awaitTermination(1):
            clocks.check(query)
            if received:
                query.stop()
            else:
                detection.run_if_due()
        clocks.check(query)
        if not received and detection.pending:
            detection.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Clocks:
    """Logs the records that `without_future` left out."""

    def __init__(self) -> None:
        self._next_batch = 0

    def check(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress.batchId < self._next_batch:
                continue
            self._next_batch = progress.batchId + 1
            observed = progress.observedMetrics.get(_AHEAD)
            if observed is not None and observed[_AHEAD]:
                _log.warning(
                    "batch %d: %d requests are left out, since their times are in the future: check the clocks of the "
                    "replicas",
                    progress.batchId,
                    observed[_AHEAD],
                )


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def sink(target: Place, limits: Limits, webhook: str | None) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch."""

    def write(batch: DataFrame, number: int) -> None:
        rows: pa.Table = batch.toArrow().sort_by([("time", "ascending"), ("topic", "ascending")])
        known = json.loads(target.read(_OPEN) or b"{}")
        # Alerts that were firing before this batch, also when it is repeated.
        before = known.get("before" if known.get("batch") == number else "open", [])
        firing = {(measure, topic) for measure, topic in before}
        alerts = list(evaluate_windows(rows.to_pylist(), limits, firing))
        if len(rows):
            content = io.BytesIO()
            pq.write_table(rows, content, compression="zstd")
            target.write(f"windows/{number:010}.parquet", content.getvalue())
        if alerts:
            lines = "".join(json.dumps(alert.json()) + "\n" for alert in alerts)
            target.write(f"alerts/{number:010}.jsonl", lines.encode())
        state = {"batch": number, "before": before, "open": sorted(firing, key=str)}
        target.write(_OPEN, json.dumps(state).encode())
        _log.info("batch %d: %d windows, %d alerts", number, len(rows), len(alerts))
        if alerts and webhook:
            post(webhook, {"batch": number, "alerts": [alert.json() for alert in alerts]}, f"{number}")

    return write


def evaluate_windows(
    rows: Sequence[dict[str, Any]], limits: Limits, firing: set[tuple[str, str | None]]
) -> Iterator[Alert]:
    """Return alerts that begin and end, window by window, ordered by time. firing: (measure, topic), updated."""
    bounds = {"error_rate": limits.error_rate, "p99_ms": limits.p99_ms, "redelivery_rate": limits.redelivery_rate}
    for when in sorted({row["time"] for row in rows}):
        values = {
            (measure, row["topic"]): value
            for row in rows
            if row["time"] == when and row["requests"] >= limits.least
            for measure, value in _values(row).items()
        }
        above = {key for key, value in values.items() if value is not None and value > bounds[key[0]]}
        for state, keys in (("firing", above - firing), ("resolved", firing - above)):
            for measure, topic in sorted(keys, key=str):
                yield Alert(state, measure, topic, when, values.get((measure, topic)), bounds[measure])
        firing.clear()
        firing.update(above)


def _values(row: dict[str, Any]) -> dict[str, float | None]:
    p99 = row["p99_us"]
    return {
        "error_rate": row["error_rate"],
        "p99_ms": None if p99 is None else p99 / 1000,
        "redelivery_rate": row["redelivery_rate"],
    }


def post(url: str, content: dict[str, Any], key: str, pauses: Sequence[float] = _PAUSES) -> bool:
    """POST JSON, retry once after a pause; return whether it was accepted. A rejected alert stays in the file, and is
    logged.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    body = json.dumps(content).encode()
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  # the operator's URL
    for pause in (*pauses, None):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310  # the operator's URL
                return True
        except urllib.error.HTTPError as error:
            # An HTTPError is the response too, and holds its socket.
            error.close()
            failure = str(error)
        except (OSError, http.client.HTTPException) as error:
            # The latter: the answer is not HTTP.
            failure = str(error) or type(error).__name__
        if pause is not None:
            time.sleep(pause)
    _log.error("the webhook did not take alerts of batch %s: %s", key, failure)
    return False
