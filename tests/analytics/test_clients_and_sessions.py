"""Clients, sessions, tenants, idle topics, end-to-end traces."""

from datetime import timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analytics.facts import Prices
from analytics.transforms.costs import costs
from analytics.transforms.end_to_end import end_to_end, traces
from analytics.transforms.idle import idle
from analytics.transforms.inventory import clients, migration, versions
from analytics.transforms.sessions import churn, sessions, takeovers
from analytics.transforms.tenants import tenant
from analytics.transforms.versions import numbers
from tests.analytics import frames as kit


def test_tenant_is_the_namespace(spark: SparkSession) -> None:
    names = {
        "shop%orders": "shop",
        "%RETRY%shop%billing": "shop",
        "%DLQ%shop%billing": "shop",
        "orders": "default",
        "%RETRY%billing": "default",
    }
    frame = spark.createDataFrame([(name,) for name in names], "name string")
    assert {row["name"]: row["tenant"] for row in frame.withColumn("tenant", tenant(f.col("name"))).collect()} == names


def test_versions_compare_as_versions(spark: SparkSession) -> None:
    texts = {"V4_9_4_SNAPSHOT": [4, 9, 4], "5.0.7": [5, 0, 7], "V10_0_0": [10, 0, 0], "unknown": None, None: None}
    frame = spark.createDataFrame([(text,) for text in texts], "version string")
    assert {
        row.version: row.numbers for row in frame.withColumn("numbers", numbers(f.col("version"))).collect()
    } == texts


def test_inventory_lists_clients_and_versions(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(0), client_id="a", version="5.0.5"),
        # Upgraded meanwhile.
        kit.send(kit.at(9), client_id="a", version="5.0.7", topic="shop%stock"),
        kit.receive(kit.at(5), client_id="b", version="5.0.5"),
        kit.failed(kit.at(6), client_id="b", version="5.0.5", group="z"),
        kit.send(kit.at(7), client_id="c", language="GOLANG", version=None),
        kit.send(kit.at(7), client_id=None),
    ]
    requests = kit.requests(spark, rows)
    known = {row["client_id"]: row for row in kit.contents(clients(requests))}
    assert set(known) == {"a", "b", "c"}
    assert (known["a"]["version"], known["a"]["topics"], known["a"]["first_seen"]) == ("5.0.7", 2, kit.at(0))
    assert (known["b"]["groups"], known["b"]["requests"], known["b"]["errors"]) == (["shop%orders-billing", "z"], 2, 1)
    answer = versions(requests, {"grpc": {"java": "5.0.6"}, "remoting": {"java": "5.3.2"}}).select(
        "language", "version", "newest", "outdated", "clients"
    )
    expected = kit.expected(
        spark,
        "language string, version string, newest string, outdated boolean, clients long",
        [("JAVA", "5.0.7", "5.0.6", False, 1), ("JAVA", "5.0.5", "5.0.6", True, 1), ("GOLANG", None, None, False, 1)],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_migration_gives_the_share_of_grpc(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(0), client_id="a", protocol="remoting", messages=3),
        kit.send(kit.at(1), client_id="a", protocol="grpc", messages=1),
        kit.send(kit.at(1), client_id="b", protocol="remoting", messages=0, topic="bank%x"),
    ]
    answer = migration(kit.requests(spark, rows), None)
    expected = kit.expected(
        spark,
        "tenant string, clients_remoting long, clients_grpc long, messages_remoting long, messages_grpc long, "
        "grpc_share double",
        [("shop", 1, 1, 3, 1, 0.25), ("bank", 1, 0, 0, 0, None)],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_sessions_join_opens_and_closes(spark: SparkSession) -> None:
    closing = {"event": "close", "cause": "reset", "client_id": "c", "age_ms": 60_000, "requests": 5}
    rows = [
        # Opened before the records began.
        kit.connection(kit.at(0.5), **closing, connection=9),
        kit.connection(kit.at(1)),
        kit.connection(kit.at(2), **closing),
        # Its process died; the number is used again.
        kit.connection(kit.at(3)),
        kit.connection(kit.at(4)),
        kit.connection(kit.at(5), **(closing | {"cause": "peer"})),
        # Still open.
        kit.connection(kit.at(6), connection=2),
    ]
    answer = sessions(kit.connections(spark, rows)).select(
        "connection", "opened", "closed", "duration_ms", "cause", "crashed", "client_id", "requests"
    )
    expected = kit.expected(
        spark,
        "connection long, opened timestamp, closed timestamp, duration_ms long, cause string, crashed boolean, "
        "client_id string, requests long",
        [
            (9, kit.at(-0.5), kit.at(0.5), 60_000, "reset", True, "c", 5),
            (1, kit.at(1), kit.at(2), 60_000, "reset", True, "c", 5),
            (1, kit.at(3), None, None, "lost", True, None, None),
            (1, kit.at(4), kit.at(5), 60_000, "peer", False, "c", 5),
            (2, kit.at(6), None, None, None, False, None, None),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)
    changes = {row["time"]: row for row in kit.contents(churn(kit.connections(spark, rows)))}
    assert [changes[kit.at(0)][name] for name in ("opened", "closed", "crashed")] == [3, 2, 2]


def test_takeovers_have_durations(spark: SparkSession) -> None:
    members = [
        kit.member(kit.at(0), client_id="told"),
        kit.member(kit.at(1), client_id="told", event="left", cause="closed"),
        kit.member(kit.at(1, 2.5), client_id="told", replica="gantry-1"),
        # Its replica died without recording the end.
        kit.member(kit.at(0), client_id="lost"),
        kit.member(kit.at(5), client_id="lost", replica="gantry-1"),
        # A day later it is a new member.
        kit.member(kit.at(0), client_id="late", event="left", cause="expired"),
        kit.member(kit.at(1440), client_id="late"),
        # A second process reports an existing member, and one report is repeated.
        kit.member(kit.at(7), client_id="lost", replica="gantry-1"),
    ]
    requests = [kit.receive(kit.at(4, 50), client_id="lost"), kit.receive(kit.at(6), client_id="lost")]
    answer = takeovers(kit.members(spark, members), kit.requests(spark, requests)).drop("group", "kind")
    expected = kit.expected(
        spark,
        "client_id string, left timestamp, joined timestamp, gap_ms long, from_replica string, to_replica string, "
        "cause string",
        [
            ("told", kit.at(1), kit.at(1, 2.5), 2500, "gantry-0", "gantry-1", "closed"),
            ("lost", kit.at(4, 50), kit.at(5), 10_000, "gantry-0", "gantry-1", "lost"),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_idle_topics_and_groups_are_listed(spark: SparkSession) -> None:
    now = kit.at(60 * 24 * 20)
    rows = [
        kit.send(kit.at(0), topic="old"),
        kit.receive(kit.at(1), topic="old", group="old-group"),
        kit.send(now - timedelta(days=1), topic="unread"),
        kit.receive(now - timedelta(hours=1), topic="unfilled", group="waiting", messages=0, attempt=None),
        kit.send(now - timedelta(days=1), topic="busy"),
        kit.receive(now - timedelta(days=1), topic="busy", group="working"),
        # After the requested time.
        kit.send(now + timedelta(days=1), topic="future"),
    ]
    members = [
        kit.member(kit.at(0), group="waiting"),
        kit.member(kit.at(0), group="old-group"),
        kit.member(kit.at(1), group="old-group", event="left"),
        kit.member(kit.at(0), group="never-polled"),
    ]
    answer = idle(kit.requests(spark, rows), kit.members(spark, members), now)
    reasons = {(row["kind"], row["name"]): (row["reason"], row["idle_days"]) for row in kit.contents(answer)}
    assert reasons == {
        ("topic", "old"): ("no traffic", pytest.approx(20, abs=0.01)),
        ("topic", "unread"): ("sent to, but nobody receives from it", 1.0),
        ("topic", "unfilled"): ("polled, but nothing is sent to it", None),
        ("group", "old-group"): ("no traffic and no members", pytest.approx(20, abs=0.01)),
        ("group", "waiting"): ("has members, but receives nothing", None),
        ("group", "never-polled"): ("has members, but receives nothing", None),
    }


def test_traced_message_has_receive_and_ack_times(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(0), trace_id="t1", latency_us=1000),
        kit.receive(kit.at(0), trace_id="t1", latency_us=501_000),
        # Delivered again later: the first delivery counts.
        kit.receive(kit.at(1), trace_id="t1", latency_us=0, attempt=2),
        kit.receive(kit.at(0, 2), code="AckMessage", trace_id="t1", latency_us=1000),
        kit.send(kit.at(3), trace_id="t2"),
        kit.receive(kit.at(4), trace_id="of a send before the records"),
        kit.send(kit.at(5)),
    ]
    requests = kit.requests(spark, rows)
    answer = traces(requests).select("trace_id", "topic", "group", "to_receive_us", "to_ack_us")
    expected = kit.expected(
        spark,
        "trace_id string, topic string, group string, to_receive_us long, to_ack_us long",
        [("t1", "shop%orders", "shop%orders-billing", 500_000, 2_000_000), ("t2", "shop%orders", None, None, None)],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)
    summary = kit.only(end_to_end(requests, None))
    assert (summary["traces"], summary["receive_p50_us"], summary["ack_p99_us"]) == (1, 500_000, 2_000_000)


def test_costs_are_shared_by_tenant(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(0), topic="shop%orders", bytes_in=10**9, broker_us=10**6),
        kit.receive(kit.at(0), topic=None, group="shop%x", bytes_out=2 * 10**9),
        kit.send(kit.at(0), topic="plain", bytes_in=10**9),
    ]
    prices = Prices(million_requests=0, million_messages=0, gigabyte_in=1.0, gigabyte_out=0.5, broker_hour=3600.0)
    answer = costs(kit.requests(spark, rows), prices).select(
        "tenant", "requests", "bytes_out", "broker_s", "cost", "share"
    )
    expected = kit.expected(
        spark,
        "tenant string, requests long, bytes_out long, broker_s double, cost double, share double",
        [("shop", 2, 2 * 10**9, 1.0, 3.0, 0.75), ("default", 1, 0, 0.0, 1.0, 0.25)],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)
