"""Observations become rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proxy.channel import Identity
from proxy.observation import Observation
from proxy.traffic import arrow, requests
from proxy.traffic.origin import Origin
from proxy.traffic.requests import key_hash
from proxy.traffic.schema import REQUESTS
from tests.proxy.traffic.kit import client, column, seen

NOW = 1_795_000_000.0


def rows(*batch: Observation, offset: float = NOW) -> list[dict[str, Any]]:
    made, _ = requests.columns(batch, [None] * len(batch), Origin("replica-1", 2, 7), offset, lambda: None)
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def test_a_row_says_what_was_observed() -> None:
    observed = seen(
        started=1.25,
        channel=client("c1", "GO", "5.1.3"),
        attempt=2,
        delay_ms=5_000,
        trace_id="0af7651916cd43dd8448eb211c80319c",
        key="order-1",
        tls=True,
    )
    (row,) = rows(observed)
    assert row == {
        "schema": 1,
        "time": datetime.fromtimestamp(NOW + 1.25, UTC),
        "replica": "replica-1",
        "worker": 2,
        "protocol": "remoting",
        "code": "SEND_MESSAGE_V2",
        "client_id": "c1",
        "address": "192.0.2.7",
        "language": "GO",
        "version": "5.1.3",
        "topic": "orders",
        "group": "p",
        "broker": "broker-a",
        "queue": 3,
        "messages": 1,
        "bytes_in": 300,
        "bytes_out": 0,
        "latency_us": 1_500,
        "broker_us": 1_000,
        "response": 0,
        "ok": True,
        "attempt": 2,
        "delay_ms": 5_000,
        "tls": True,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "key_hash": key_hash("order-1"),
        "weight": None,
    }
    assert row["time"].utcoffset() == timedelta(0)


def test_what_is_not_known_is_null() -> None:
    (row,) = rows(seen(None, group=None, broker=None, queue=None, broker_seconds=None))
    unknown = ("client_id", "language", "version", "topic", "group", "broker", "queue", "broker_us", "attempt")
    assert [row[name] for name in (*unknown, "delay_ms", "trace_id", "key_hash")] == [None] * 12


def test_a_key_is_hashed_the_same_everywhere() -> None:
    # blake2b("order-1", digest_size=8), big-endian, signed: what readers may compute.
    assert key_hash("order-1") == 2_709_196_713_320_186_429
    assert -(2**63) <= key_hash("\ud800") < 2**63


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("topic", "half \ud800 of a pair", "half \ufffd of a pair"),
        ("topic", "t" * 10_000, "t" * 512),
        ("delay_ms", 2**64, None),
        ("queue", 2**31, None),
        ("response", "text", 0),
        ("code", "half \udfff", "half \ufffd"),
    ],
)
def test_a_value_that_does_not_fit_costs_no_other_row(name: str, value: Any, kept: object) -> None:
    first, odd, last = rows(seen(), seen(**dict[str, Any]({"topic": "orders", name: value})), seen())
    assert odd[name] == kept
    assert first == last
    assert {**odd, name: first[name]} == first


def test_who_a_client_is_may_become_known_later() -> None:
    channel = client(None)
    observed = seen(channel=channel)
    channel.identity = Identity("c1", "JAVA", "5.3.2")
    assert column(rows(observed, seen(channel=channel)), "client_id") == ["c1", "c1"]


def test_rows_are_parted_by_the_hours_of_their_own_time() -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    moments = [midnight + timedelta(microseconds=each) for each in (-1, 0, 1, 3_600_000_000, -2)]
    batch = [seen(str(number), started=moment.timestamp()) for number, moment in enumerate(moments)]
    columns, times = requests.columns(batch, [None] * 5, Origin("r", 0, 1), 0.0, lambda: None)
    hour = int(midnight.timestamp()) // 3600
    parts = {each: column(part.to_pylist(), "topic") for each, part in arrow.by_hour(columns, times)}
    assert parts == {hour - 1: ["0", "4"], hour: ["1", "2"], hour + 1: ["3"]}


def test_the_loop_gets_its_turn_between_columns() -> None:
    breaths = 0

    def breathe() -> None:
        nonlocal breaths
        breaths += 1

    requests.columns([seen(key=str(each)) for each in range(1_000)], [None] * 1_000, Origin("r", 0, 1), NOW, breathe)
    # After every column that is made here, and among the keys.
    assert breaths >= len(REQUESTS.columns) - len(("schema", "replica", "worker", "weight")) + 1_000 // 512
