"""Traffic records of a replica with an embedded broker and clients of both protocols."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from proxy.core import membership
from proxy.observability.records.request_columns import key_hash
from proxy.settings.model import Settings
from tests.proxy.messages import heartbeat
from tests.proxy.observability.records.replica import grpc_work, remoting_work, replica, send
from tests.proxy.observability.records.samples import column, files, read
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio


def requests_by_metrics(app: App) -> Counter[tuple[str, ...]]:
    """Return the number of requests in the metrics by protocol, code and response code."""
    (family,) = [family for family in app.metrics.collect() if family.name == "gantry_requests"]
    counts: Counter[tuple[str, ...]] = Counter()
    for sample in family.samples:
        if sample.name == "gantry_requests_total":
            counts[tuple(sample.labels[name] for name in ("protocol", "code", "response"))] += int(sample.value)
    return counts


@pytest.mark.parametrize("transport", ["inprocess", "grpcio"])
async def test_the_request_records_agree_with_the_metrics(tmp_path: Path, transport: str) -> None:
    began = time.time()
    async with replica(tmp_path, transport) as app:
        await remoting_work(app)
        await grpc_work(app)
    ended = time.time()
    where = tmp_path / "traffic"
    rows = read(where, "requests")
    assert app.traffic is not None
    counts = app.traffic.counts
    recorded = Counter((row["protocol"], row["code"], str(row["response"])) for row in rows)
    assert recorded == requests_by_metrics(app)
    assert recorded["remoting", "SEND_MESSAGE_V2", "0"] == 5
    assert recorded["grpc", "SendMessage", str(Code.OK.real)] == 3
    assert counts.written["requests"] == len(rows)
    assert not counts.dropped
    assert not counts.left_out
    assert counts.files == Counter(path.relative_to(where).parts[0] for path in files(where))
    assert counts.bytes.total() == sum(path.stat().st_size for path in files(where))
    assert all(began - 1 < row["time"].timestamp() < ended + 1 for row in rows)
    assert {(row["schema"], row["replica"], row["worker"], row["address"]) for row in rows} == {
        (1, "replica-1", 0, "127.0.0.1")
    }

    sends = [row for row in rows if row["code"] == "SEND_MESSAGE_V2"]
    assert column(sends, "key_hash") == [key_hash("order-1")] * 5
    assert {(row["client_id"], row["topic"], row["messages"], row["bytes_in"]) for row in sends} == {
        ("r1", "orders", 1, 10)
    }
    assert all(0 < row["broker_us"] <= row["latency_us"] for row in sends)
    (row, *_) = [row for row in rows if row["code"] == "SendMessage"]
    assert (row["client_id"], row["language"], row["version"]) == ("g1", "GOLANG", "5.0.7")
    assert (row["topic"], row["bytes_in"], row["key_hash"]) == ("orders", 5, key_hash("order-2"))
    failed = [row["response"] for row in rows if not row["ok"]]
    assert sorted(failed) == [3, 17, Code.ILLEGAL_ACCESS_POINT]
    # g1 was still a member when the replica closed.
    (left,) = [row for row in read(where, "members") if row["client_id"] == "g1" and row["event"] == "left"]
    assert left["cause"] == "closed"


@pytest.mark.parametrize("transport", ["inprocess", "grpcio"])
async def test_connection_records_have_cause_requests_and_bytes(tmp_path: Path, transport: str) -> None:
    async with replica(tmp_path, transport) as app:
        await remoting_work(app)
        await grpc_work(app)
        idle = await Client.connect(app)
        await idle.ask(heartbeat("r2"))
    rows = read(tmp_path / "traffic", "connections")
    pairs = {number: [row for row in rows if row["connection"] == number] for number in set(column(rows, "connection"))}
    assert len(pairs) == 3
    assert {row["listener"] for row in rows} == {"front"}
    for opened, closed in pairs.values():
        assert (opened["event"], closed["event"]) == ("open", "close")
        assert opened["protocol"] == closed["protocol"]
        assert opened["port"] == closed["port"] > 0
        assert [opened[name] for name in ("cause", "age_ms", "requests", "bytes_in", "bytes_out")] == [None] * 5
        elapsed = (closed["time"] - opened["time"]).total_seconds() * 1000
        # The loop's clock has a resolution of milliseconds, and the two times are not read at once.
        assert abs(closed["age_ms"] - elapsed) < 5_000
        assert closed["bytes_in"] > 0
        assert closed["bytes_out"] > 0
    first, second, third = (closed for _, (_, closed) in sorted(pairs.items()))
    assert (first["protocol"], first["client_id"], first["requests"], first["cause"]) == ("remoting", "r1", 10, "peer")
    assert (second["protocol"], second["requests"]) == ("grpc", 9)
    # One of the two clients of this connection has terminated.
    assert (second["client_id"], second["language"]) == ("g1", "GOLANG")
    assert (third["client_id"], third["cause"]) == ("r2", "drain")
    carried = Counter(row["protocol"] for row in read(tmp_path / "traffic", "requests"))
    assert carried == {"remoting": first["requests"] + third["requests"], "grpc": second["requests"]}


async def test_member_records_have_the_cause_of_each_leave(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        await remoting_work(app)
        await grpc_work(app)
        silent = await Client.connect(app)
        await silent.ask(heartbeat("r3", {"g3": ["orders"]}))
        await membership.expire(app.core, time.monotonic() + 100)
        async with asyncio.timeout(30):
            while app.registry.consumer_ids("g3"):
                await asyncio.sleep(0.01)
        await silent.close()
    rows = read(tmp_path / "traffic", "members")
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    recorded = [
        tuple(row[name] for name in ("protocol", "client_id", "event", "kind", "group", "cause")) for row in rows
    ]
    assert [each for each in recorded if each[0] == "remoting"] == [
        ("remoting", "r1", "joined", "producer", "p", None),
        ("remoting", "r1", "joined", "consumer", "g", None),
        ("remoting", "r1", "left", "consumer", "g", "unregistered"),
        ("remoting", "r1", "left", "producer", "p", "closed"),
        ("remoting", "r3", "joined", "consumer", "g3", None),
        ("remoting", "r3", "left", "consumer", "g3", "expired"),
    ]
    assert sorted(each for each in recorded if each[0] == "grpc") == sorted(
        [
            ("grpc", "g1", "joined", "producer", "orders", None),
            ("grpc", "g2", "joined", "consumer", "g", None),
            ("grpc", "g2", "left", "consumer", "g", "unregistered"),
            ("grpc", "g1", "left", "producer", "orders", "expired"),
        ]
    )


async def test_records_contain_no_keys_bodies_or_credentials(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        client = await Client.connect(app)
        command = send(key="key-that-is-secret", body=b"body-that-is-secret")
        command.fields["AccessKey"] = "user"
        command.fields["Signature"] = "signature-that-is-secret"
        assert (await client.ask(command)).code == 0
        await client.close()
    assert len(read(tmp_path / "traffic", "requests")) == 1
    assert not [
        row
        for table in ("requests", "connections", "members")
        for row in read(tmp_path / "traffic", table)
        if "is-secret" in str(row)
    ]


async def test_without_a_directory_there_is_no_recorder(tmp_path: Path) -> None:
    app = App(Settings(embedded={"directory": tmp_path}))
    app.backend.close()
    assert app.traffic is None
    assert not app.registry.listeners
