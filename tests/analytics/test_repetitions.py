"""Kinds found by single messages: large bodies, keys sent again, messages that always fail or are taken twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.incidents.detection import detect
from analytics.incidents.detectors.retries import retries
from analytics.incidents.detectors.sizes import words
from analytics.incidents.engines import by_duckdb
from analytics.incidents.incident import Incident
from analytics.incidents.tables import Tables
from proxy.observability.records import arrow
from proxy.observability.records.schema import REQUESTS

Row = dict[str, Any]
# Wednesday 3 June 2026, 00:00 UTC, in seconds; length in minutes, and the minutes of each incident.
_BEGIN, _MINUTES, _TROUBLE = 1780444800, 1440, (600, 720)


def _row(seconds: float, **changes: Any) -> Row:
    base = dict.fromkeys(arrow.schema(REQUESTS).names)
    fixed = {"schema": 1, "replica": "r", "worker": 0, "protocol": "grpc", "code": "SendMessage", "client_id": "p-1"}
    rest = {"address": "10.0.0.1", "language": "GOLANG", "version": "5.1", "topic": "orders", "broker": "a", "queue": 0}
    numbers = {"messages": 1, "bytes_in": 0, "bytes_out": 0, "latency_us": 900, "response": 20000, "ok": True}
    time = int((_BEGIN + seconds) * 1e6)
    return base | fixed | rest | numbers | {"tls": False, "time": time} | changes


def _traffic(random: np.random.Generator) -> list[Row]:
    """Ten messages a minute by two producers, and a group that takes each of them."""
    rows = []
    for place, second in enumerate(np.sort(random.uniform(0, _MINUTES * 60, 10 * _MINUTES))):
        queue, body = int(random.integers(4)), int(900 * np.exp(0.4 * random.standard_normal()))
        rows.append(_row(second, client_id=f"p-{place % 2}", bytes_in=body, key_hash=place, queue=queue))
        rows.append(_received(second + 1, queue))
    return rows


def _received(second: float, queue: int, **changes: Any) -> Row:
    row = _row(second, code="ReceiveMessage", group="billing", client_id="c-1", attempt=1, queue=queue)
    return row | changes


def _in_trouble(row: Row, code: str) -> bool:
    minute: float = (row["time"] / 1e6 - _BEGIN) / 60
    return bool(row["code"] == code) and _TROUBLE[0] <= minute < _TROUBLE[1]


def _large(rows: list[Row]) -> list[Row]:
    for row in rows:
        if _in_trouble(row, "SendMessage") and row["client_id"] == "p-1":
            row["bytes_in"] *= 300
    return rows


def _sent_again(rows: list[Row]) -> list[Row]:
    again = [row | {"time": row["time"] + 2_000_000} for row in rows if _in_trouble(row, "SendMessage")]
    return [*rows, *again, *(_received(row["time"] / 1e6 - _BEGIN + 1, row["queue"]) for row in again)]


def _poison(rows: list[Row]) -> list[Row]:
    seconds = np.arange(_TROUBLE[0] * 60, _TROUBLE[1] * 60, 20.0)
    return [*rows, *(_received(second, 2, attempt=place + 2) for place, second in enumerate(seconds))]


def _taken_twice(rows: list[Row]) -> list[Row]:
    return [*rows, *(row | {"client_id": "c-2"} for row in rows if _in_trouble(row, "ReceiveMessage"))]


def _found(rows: list[Row], folder: Path) -> list[Incident]:
    return detect(_tables(rows, folder))


def _tables(rows: list[Row], folder: Path) -> Tables:
    path = folder / "records.parquet"
    schema = arrow.schema(REQUESTS)
    table = pa.Table.from_pylist(rows, pa.schema([field.with_nullable(True) for field in schema]))
    pq.write_table(table, path)
    return by_duckdb([str(path)], [])


@pytest.mark.parametrize(
    ("trouble", "kind", "subject", "sentence"),
    [
        (_large, "large_messages", ("client", "p-1"), "KiB on average (usually"),
        (_sent_again, "duplicate_sends", ("topic", "orders"), "repeat one of the same minute"),
        (_poison, "poison_message", ("group", "billing"), "sixth time or later"),
        (_taken_twice, "duplicate_deliveries", ("group", "billing"), "took every message 2 times"),
    ],
)
def test_trouble_of_messages_is_one_incident(
    trouble: Callable[[list[Row]], list[Row]], kind: str, subject: tuple[str, str], sentence: str, tmp_path: Path
) -> None:
    (incident,) = _found(trouble(_traffic(np.random.default_rng(7))), tmp_path)
    assert incident.kind == kind
    assert incident.about[subject[0]] == subject[1]
    assert abs(incident.start - (_BEGIN + _TROUBLE[0] * 60)) <= 900
    assert sentence in incident.happened


def test_ordinary_messages_are_no_incident(tmp_path: Path) -> None:
    assert _found(_traffic(np.random.default_rng(7)), tmp_path) == []


def test_a_key_that_most_messages_have_is_not_sent_again(tmp_path: Path) -> None:
    rows = _traffic(np.random.default_rng(7))
    for row in rows:
        if _in_trouble(row, "SendMessage") and row["key_hash"] % 3:
            row["key_hash"] = 8
    (incident,) = _found(rows, tmp_path)
    assert incident.kind == "hot_key"


def test_a_topic_whose_messages_have_one_key_after_the_other_has_no_hot_key_or_queue(tmp_path: Path) -> None:
    rows = _traffic(np.random.default_rng(7))
    for place, row in enumerate(rows):
        # An import of two hours.
        key = int((row["time"] / 1e6 - _BEGIN) // 7200)
        row["queue"] = key % 4
        if row["code"] == "SendMessage":
            row.update(key_hash=key, bytes_in=900 + place % 97)
    assert _found(rows, tmp_path) == []


def test_a_send_that_was_not_stored_is_rightly_sent_again(tmp_path: Path) -> None:
    refused = [row | {"ok": False, "response": 50001, "messages": 0} for row in _traffic(np.random.default_rng(7))]
    refused = [row | {"time": row["time"] - 2_000_000} for row in refused if _in_trouble(row, "SendMessage")]
    found = _found([*_traffic(np.random.default_rng(7)), *refused], tmp_path)
    assert {each.kind for incident in found for each in incident.findings} == {"error_burst"}


def test_messages_that_are_stored_and_not_replicated_are_due(tmp_path: Path) -> None:
    rows = _traffic(np.random.default_rng(7))
    for row in rows:
        if _in_trouble(row, "SendMessage"):
            row.update(ok=False, response=50402)
    (incident,) = _found(rows, tmp_path)
    assert {each.kind for each in incident.findings} == {"error_burst"}


@pytest.mark.parametrize(("size", "text"), [(900, "900 B"), (1536, "1.5 KiB"), (270_000, "264 KiB"), (3e6, "2.9 MiB")])
def test_sizes_have_units(size: float, text: str) -> None:
    assert words(size) == text


def test_one_message_that_no_consumer_can_take_is_a_poison_message(tmp_path: Path) -> None:
    again = [_received(_TROUBLE[0] * 60 + 200 * place, 2, attempt=place + 2) for place in range(11)]
    (incident,) = _found([*_traffic(np.random.default_rng(7)), *again], tmp_path)
    assert incident.kind == "poison_message"


@pytest.mark.parametrize(("count", "share"), [(36, 1.0), (900, 0.3)])
def test_a_nightly_batch_that_runs_twice_is_found(count: int, share: float, tmp_path: Path) -> None:
    """Around a batch nothing is sent; its repetition is a minute late, and under sampling often not recorded."""
    random = np.random.default_rng(3)
    rows = _traffic(random)
    for night, minute in enumerate((120, 660, 1260)):
        for place, second in enumerate(np.linspace(minute * 60, minute * 60 + 1500, count)):
            key, body = 10_000 + night * count + place, 400_000 + place
            made = {"topic": "documents", "client_id": "job", "key_hash": key, "bytes_in": body, "weight": 1 / share}
            late = float(random.uniform(2, 45))
            again = [_row(second + late, **made)] if night == 1 else []
            rows += [row for row in (_row(second, **made), *again) if random.random() < share]
    (finding,) = retries(_tables(rows, tmp_path))
    assert (finding.kind, finding.about["topic"], finding.about["client"]) == ("duplicate_sends", "documents", "job")
    assert abs(finding.start - (_BEGIN + 660 * 60)) <= 600
    assert 0.3 < finding.observed <= 1.0


def test_a_nightly_batch_of_few_keys_repeats_them_by_chance(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = _traffic(random)
    for minute in (120, 660, 1260):
        for second in np.linspace(minute * 60, minute * 60 + 1500, 600):
            key = int(random.integers(20))
            rows.append(_row(second, topic="documents", client_id="job", key_hash=key, bytes_in=400_000 + key))
    assert retries(_tables(rows, tmp_path)) == []
