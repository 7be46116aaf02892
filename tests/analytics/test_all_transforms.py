"""Properties of every transform: empty input, nulls, plans that scale, no UDF."""

import ast
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics.schema import CONNECTIONS, MEMBERS, REQUESTS
from analytics.transforms import (
    balance,
    capacity,
    costs,
    end_to_end,
    errors,
    hot_keys,
    hot_topics,
    idle,
    inventory,
    latency,
    load,
    neighbours,
    queues,
    quotas,
    redelivery,
    sessions,
)
from analytics.transforms.rollup import CELL, rollup
from proxy.traffic_rules.parsing import parse
from tests.analytics import frames as kit

_RULES = parse('[[rule]]\nname = "few"\nkind = "limit"\nmessages = 1\nper = ["client"]\n')

_Transform = Callable[[DataFrame, DataFrame, DataFrame], DataFrame]

TRANSFORMS: dict[str, tuple[str, _Transform]] = {
    "load": (
        "time protocol requests errors messages bytes_in bytes_out error_rate",
        lambda requests, connections, members: load.load(requests),
    ),
    "latency": (
        "time code topic broker requests p50_us p90_us p99_us p999_us latency",
        lambda requests, connections, members: latency.latency(requests),
    ),
    "errors": (
        "time protocol code topic response meaning requests",
        lambda requests, connections, members: errors.errors(requests),
    ),
    "rates": ("time topic requests errors error_rate", lambda requests, connections, members: errors.rates(requests)),
    "redelivery": (
        "time group topic delivered redelivered send_backs nacks dead_letters highest_attempt redelivery_rate",
        lambda requests, connections, members: redelivery.redelivery(requests),
    ),
    "hot_topics": (
        "time rank topic requests messages bytes_in bytes_out share",
        lambda requests, connections, members: hot_topics.hot_topics(requests, "1 day"),
    ),
    "hot_keys": (
        "time topic rank key_hash messages share expected_share",
        lambda requests, connections, members: hot_keys.hot_keys(requests),
    ),
    "queues": (
        "time topic broker queue messages share fair_share",
        lambda requests, connections, members: queues.queues(requests),
    ),
    "balance": (
        "time topic group sent received redelivered acked backlog wait_s",
        lambda requests, connections, members: balance.balance(requests),
    ),
    "traces": (
        "trace_id topic group sent received acked to_receive_us to_ack_us",
        lambda requests, connections, members: end_to_end.traces(requests),
    ),
    "end_to_end": (
        "time topic group traces receive_p50_us receive_p99_us ack_p50_us ack_p99_us",
        lambda requests, connections, members: end_to_end.end_to_end(requests),
    ),
    "clients": (
        "client_id protocol language version address groups topics first_seen last_seen requests errors",
        lambda requests, connections, members: inventory.clients(requests),
    ),
    "versions": (
        "protocol language version newest outdated clients requests last_seen",
        lambda requests, connections, members: inventory.versions(requests),
    ),
    "migration": (
        "time tenant clients_remoting clients_grpc messages_remoting messages_grpc grpc_share",
        lambda requests, connections, members: inventory.migration(requests),
    ),
    "sessions": (
        "replica worker connection protocol client_id address language version listener tls opened closed duration_ms "
        "cause crashed requests bytes_in bytes_out",
        lambda requests, connections, members: sessions.sessions(connections),
    ),
    "churn": (
        "time replica protocol opened closed crashed",
        lambda requests, connections, members: sessions.churn(connections),
    ),
    "takeovers": (
        "client_id group kind left joined gap_ms from_replica to_replica cause",
        lambda requests, connections, members: sessions.takeovers(members, requests),
    ),
    "idle": (
        "kind name tenant last_sent last_received idle_days reason",
        lambda requests, connections, members: idle.idle(requests, members, kit.DAY, timedelta(days=1)),
    ),
    "neighbours": (
        "time client_id tenant requests messages share usual ratio",
        lambda requests, connections, members: neighbours.neighbours(requests),
    ),
    "what_if": (
        "rule unit subject limit peak seconds_over refused held over_share first last",
        lambda requests, connections, members: quotas.what_if(requests, _RULES),
    ),
    "costs": (
        "time tenant requests messages bytes_in bytes_out broker_s cost share",
        lambda requests, connections, members: costs.costs(requests, every="1 day"),
    ),
    "daily": (
        "time requests_per_s messages_per_s bytes_per_s busy_hour hours",
        lambda requests, connections, members: capacity.daily(requests),
    ),
    "forecast": (
        "measure busy_hour peak per_day fit limit days_until_limit replicas_needed replicas_ahead",
        lambda requests, connections, members: capacity.forecast(requests),
    ),
}
Tables = tuple[DataFrame, DataFrame, DataFrame]


def _tables(spark: SparkSession, rows: list[kit.Row]) -> Tables:
    """Return records of each kind, built from these rows."""
    return kit.requests(spark, rows), kit.connections(spark, rows), kit.members(spark, rows)


@pytest.fixture(scope="module")
def nothing(spark: SparkSession) -> Tables:
    return _tables(spark, [])


@pytest.mark.parametrize("name", TRANSFORMS)
def test_empty_input_gives_empty_output(nothing: Tables, name: str) -> None:
    answer = TRANSFORMS[name][1](*nothing)
    assert answer.columns == TRANSFORMS[name][0].split()
    assert answer.collect() == []


def test_nulls_break_nothing(spark: SparkSession) -> None:
    nulls = {"schema": 1, "time": kit.DAY, "code": "ReceiveMessage", "ok": True, "event": "open"}
    rows = [
        nulls,
        nulls | {"code": "SendMessage", "ok": None},
        kit.send(kit.DAY),
        kit.failed(kit.DAY) | {"event": "close"},
    ]
    tables = _tables(spark, rows)
    for name, (_, transform) in TRANSFORMS.items():
        found = transform(*tables).collect()
        assert len(found) <= len(rows), name


# Operators that do not scale: products of two frames, comparisons of all with all, sorts over all partitions.
_DREADED = (
    "CartesianProduct",
    "BroadcastNestedLoopJoin",
    "rangepartitioning",
    "PythonUDF",
    "BatchEvalPython",
    "ArrowEval",
)


@pytest.fixture(scope="module")
def scans(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Yield records in files: frames in memory are planned differently."""
    root = tmp_path_factory.mktemp("records")
    for table in (REQUESTS, CONNECTIONS, MEMBERS):
        frame = {"requests": kit.requests, "connections": kit.connections, "members": kit.members}[table.name]
        frame(spark, [kit.send(kit.DAY) | {"event": "open", "kind": "consumer"}]).write.parquet(str(root / table.name))
    requests, connections, members = (
        spark.read.parquet(str(root / table.name)) for table in (REQUESTS, CONNECTIONS, MEMBERS)
    )
    return requests, connections, members


@pytest.mark.parametrize("name", TRANSFORMS)
def test_plans_have_no_product_no_global_sort_and_no_udf(spark: SparkSession, scans: Tables, name: str) -> None:
    # As with large tables: no broadcast unless the transform asks for one.
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        answer = TRANSFORMS[name][1](*scans)
        # The text that PySpark's explain() prints.
        plan = str(answer._jdf.queryExecution().executedPlan().toString())
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert "Scan parquet" in plan
    assert [word for word in _DREADED if word in plan] == []
    # A sort over one partition is a global sort too.
    assert "Exchange SinglePartition" not in plan


@pytest.mark.parametrize(
    "name",
    [
        "latency",
        "redelivery",
        "costs",
        "forecast",
    ],
)
def test_a_rollup_gives_the_same_answer_as_the_records(busy: tuple[DataFrame, DataFrame], name: str) -> None:
    of_records, of_cells = (kit.contents(TRANSFORMS[name][1](frame, frame, frame)) for frame in busy)
    assert of_records
    assert _rounded(of_cells) == _rounded(of_records)


@pytest.fixture(scope="module")
def busy(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Yield records of four days with something for every detector that takes roll-ups, and their roll-up."""
    rows = []
    for minute in range(0, 240, 2):
        when = kit.at(minute)
        bad = 100 <= minute < 108
        slow = {"latency_us": 90_000 if bad else 1000 + minute}
        rows += [kit.send(when, client_id=f"p{n}", broker=f"broker-{n % 2}", **slow) for n in range(16 if bad else 8)]
        rows += [kit.failed(when, client_id="p1", broker="broker-1") for _ in range(12 if bad else 0)]
        rows += [kit.send(when, client_id="loud") for _ in range(60 if bad else 1)]
        if not 180 <= minute < 236:
            rows += [kit.receive(when, client_id="c1", messages=5, attempt=3 if bad else 1)]
            rows += [kit.receive(when, client_id="c1", messages=0, attempt=None)]
        rows += [kit.receive(when, code="ChangeInvisibleDuration", client_id="c1") for _ in range(8 if bad else 0)]
    for day in range(1, 4):
        rows += [
            kit.send(kit.at(60 * 24 * day + minute), topic="shop%stock", broker=None) for minute in range(0, 240, 10)
        ]
    records = kit.requests(spark, rows).persist()
    return records, rollup(records, CELL, "5 minutes").persist()


def _rounded(rows: list[kit.Row]) -> list[str]:
    """Return rows without an order, and numbers without the last digits: sums of doubles depend on their order."""
    return sorted(
        str(
            {
                name: f"{value:.6g}" if isinstance(value, float) else value
                for name, value in row.items()
                if name != "latency"
            }
        )
        for row in rows
    )


def test_the_package_imports_no_more_of_the_project_than_it_says() -> None:
    ours = {"proxy", "grpc_gateway", "remoting", "protocol_negotiation", "protos"}
    imported = set()
    for path in Path("analytics").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported |= {name for name in names if name.split(".")[0] in ours}
    assert imported <= {
        "proxy.observability.records.arrow",
        "proxy.observability.records.schema",
        "proxy.traffic_rules.match_criteria",
        "proxy.traffic_rules.model",
        "proxy.traffic_rules.parsing",
        "remoting.names",
    }
