"""Traffic records of a replica with an embedded broker and clients of both protocols."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Message, MessageType, Resource, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    QueryRouteRequest,
    SendMessageRequest,
    TelemetryCommand,
)
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from proxy.core import membership
from proxy.observability.records.request_columns import key_hash
from proxy.settings.model import Settings
from remoting.command import RemotingCommand
from tests.grpc_gateway.messages import consumer_settings, producer_settings
from tests.proxy.messages import heartbeat, request
from tests.proxy.observability.records.samples import column, files, read
from tests.proxy.replica import Client, running, soon

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def replica(directory: Path, transport: str = "inprocess", **more: Any) -> AsyncIterator[App]:
    """Run a replica; after the block it has drained and written all records."""
    settings = Settings(
        listen=[{"address": "127.0.0.1:0", "name": "front"}],
        embedded={"directory": directory / "broker"},
        grpc={"transport": transport},
        traffic={"directory": str(directory / "traffic")},
        replica="replica-1",
        drain_timeout=0.2,
        **more,
    )
    async with running(settings) as app:
        yield app


def send(topic: str = "orders", key: str = "", body: bytes = b"0123456789") -> RemotingCommand:
    """Return a SEND_MESSAGE_V2 request."""
    properties = f"KEYS\x01{key}\x02" if key else ""
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": properties}
    return request(310, body, **fields, j="0", k="false", l="0", m="false")


def metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", client_id), ("x-mq-language", "GOLANG"), ("x-mq-client-version", "5.0.7"))


def grpc_send(topic: str = "orders", group: str = "") -> SendMessageRequest:
    system = SystemProperties(message_id="01" + "AB" * 16, message_type=MessageType.NORMAL, keys=["order-2"])
    return SendMessageRequest(messages=[Message(topic=Resource(name=topic), system_properties=system, body=b"12345")])


async def remoting_work(app: App) -> None:
    client = await Client.connect(app)
    assert (await client.ask(heartbeat("r1", {"g": ["orders"]}, ["p"]))).code == 0
    for _ in range(5):
        assert (await client.ask(send(key="order-1"))).code == 0
    # A changed subscription adds no member.
    assert (await client.ask(heartbeat("r1", {"g": ["orders", "more"]}, ["p"]))).code == 0
    assert (await client.ask(request(99))).code == 3
    assert (await client.ask(request(105, topic="nowhere"))).code == 17
    assert (await client.ask(request(35, clientID="r1", consumerGroup="g"))).code == 0
    await client.close()


async def grpc_work(app: App) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
        stub: Any = MessagingServiceStub(channel)
        for client_id, settings in (("g1", producer_settings("orders")), ("g2", consumer_settings("g"))):
            call = stub.Telemetry(metadata=metadata(client_id))
            await call.write(TelemetryCommand(settings=settings))
            assert (await soon(call.read())).status.code == Code.OK
        for _ in range(3):
            answer = await stub.SendMessage(grpc_send(), metadata=metadata("g1"))
            assert answer.status.code == Code.OK
        await stub.QueryRoute(QueryRouteRequest(topic=Resource(name="nowhere")), metadata=metadata("g1"))
        for client_id, kind in (("g1", ClientType.PRODUCER), ("g2", ClientType.PUSH_CONSUMER)):
            request = HeartbeatRequest(group=Resource(name="g"), client_type=kind)
            assert (await stub.Heartbeat(request, metadata=metadata(client_id))).status.code == Code.OK
        termination = NotifyClientTerminationRequest(group=Resource(name="g"))
        assert (await stub.NotifyClientTermination(termination, metadata=metadata("g2"))).status.code == Code.OK


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
        membership.expire(app.core, time.monotonic() + 100)
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
