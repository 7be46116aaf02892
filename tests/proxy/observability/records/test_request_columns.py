"""Rows made from observations."""

from datetime import UTC, datetime, timedelta
from itertools import product
from struct import error as StructError
from typing import Any

import pytest

from proxy.core.channel import Identity
from proxy.core.events import Observation
from proxy.observability.records import arrow
from proxy.observability.records.origin import Origin
from proxy.observability.records.request_columns import RequestColumns, key_hash
from tests.proxy.observability.records.samples import batch, client, column, observation

NOW = 1_795_000_000.0


def rows(*observed: Observation) -> list[dict[str, Any]]:
    rows_read: list[dict[str, Any]] = batch(*observed, origin=Origin("replica-1", 2, 7), offset=NOW).to_pylist()
    return rows_read


def test_a_row_has_the_observations_values() -> None:
    observed = observation(
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


def test_unknown_values_are_null() -> None:
    (row,) = rows(observation(None, group=None, broker=None, queue=None, broker_seconds=None))
    unknown = ("client_id", "language", "version", "topic", "group", "broker", "queue", "broker_us", "attempt")
    assert [row[name] for name in (*unknown, "delay_ms", "trace_id", "key_hash")] == [None] * 12


def test_key_hash_is_stable() -> None:
    # blake2b("order-1", digest_size=8), big-endian, signed. Readers compute the same.
    assert key_hash("order-1") == 2_709_196_713_320_186_429
    assert -(2**63) <= key_hash("\ud800") < 2**63


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("topic", "half \ud800 of a pair", "half \ufffd of a pair"),
        ("topic", "t" * 10_000, "t" * 512),
        ("delay_ms", 2**64, None),
        ("queue", 2**31, None),
        ("response", 2**31, 0),
        ("code", "half \udfff", "half \ufffd"),
    ],
)
def test_an_invalid_value_does_not_affect_other_rows(name: str, value: Any, kept: object) -> None:
    first, odd, last = rows(
        observation(), observation(**dict[str, Any]({"topic": "orders", name: value})), observation()
    )
    assert odd[name] == kept
    assert first == last
    assert {**odd, name: first[name]} == first


def test_a_sampled_row_has_a_weight() -> None:
    columns = RequestColumns()
    for weight in (1.0, 4.0):
        columns.add(observation(), weight)
    assert columns.batch(Origin("r", 0, 1), NOW).column("weight").to_pylist() == [None, 4.0]


def test_rows_of_different_clients_and_operations_are_not_mixed_up() -> None:
    """Distinct clients and operations are looked up by the indexes in each row."""
    first, second = client("c1"), client("c2")
    observations = [
        observation(f"t{number % 3}", channel=channel, tls=tls, ok=ok, queue=number, key=key)
        for number, (channel, tls, ok, key) in enumerate(
            product((first, second, None), (False, True), (True, False), (None, "k"))
        )
    ]
    recorded = rows(*observations, *observations)
    assert recorded[: len(observations)] == recorded[len(observations) :]
    for row, observed in zip(recorded, observations, strict=False):
        assert row["topic"] == observed.topic
        assert row["queue"] == observed.queue
        assert row["ok"] is observed.ok
        assert row["tls"] is (observed.peer.tls is not None)
        assert row["client_id"] == (None if observed.channel is None else observed.channel.identity.client_id)
        assert row["key_hash"] == (None if observed.key is None else key_hash(observed.key))


def test_an_observation_that_cannot_be_packed_leaves_the_other_rows_intact() -> None:
    columns = RequestColumns()
    columns.add(observation("a"))
    with pytest.raises(StructError):
        columns.add(observation("b", bytes_in=10**400))
    columns.add(observation("c"))
    assert columns.batch(Origin("r", 0, 1), NOW).column("topic").to_pylist() == ["a", "c"]


def test_a_client_that_identifies_itself_later_is_recorded() -> None:
    channel = client(None)
    observed = observation(channel=channel)
    channel.identity = Identity("c1", "JAVA", "5.3.2")
    assert column(rows(observed, observation(channel=channel)), "client_id") == ["c1", "c1"]


def test_by_hour_splits_rows_by_their_time() -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    moments = [midnight + timedelta(microseconds=each) for each in (-1, 0, 1, 3_600_000_000, -2)]
    of_both_hours = batch(
        *(observation(str(number), started=moment.timestamp()) for number, moment in enumerate(moments))
    )
    hour = int(midnight.timestamp()) // 3600
    parts = {each: column(part.to_pylist(), "topic") for each, part in arrow.by_hour(of_both_hours)}
    assert parts == {hour - 1: ["0", "4"], hour: ["1", "2"], hour + 1: ["3"]}
