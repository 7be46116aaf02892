"""Metrics of a whole replica: what clients and brokers do, and which metric says so."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from grpc.aio import insecure_channel

from protos.apache.rocketmq.v2.definition_pb2 import Resource
from protos.apache.rocketmq.v2.service_pb2 import EndTransactionRequest, QueryRouteRequest
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from proxy.backends.cluster.route_cache import RouteCache
from proxy.core.grpc_channel import GrpcChannel
from proxy.observability.metrics.connections import CLOSED, OPENED
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster, Server
from tests.proxy.fakes import Clock, peer, settle
from tests.proxy.messages import complete, heartbeat, route
from tests.proxy.observability.metrics.kit import read, shown
from tests.proxy.replica import Client, certify, serving, soon

pytestmark = pytest.mark.anyio


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def replica(cluster: Cluster, answer: Any = None, **more: Any) -> AsyncIterator[tuple[App, Server]]:
    broker = await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, **more) as app:
        yield app, broker


def hold(command: RemotingCommand) -> RemotingCommand | None:
    """A broker that takes its time for messages."""
    held = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE)
    return None if command.code in held else commands.success()


def identity(app: App) -> tuple[int, int, int]:
    """Connections that opened, are open, and closed by some cause, of all protocols and listeners."""
    connections = app.metrics.connections
    opened, closed = connections.opened.total(), connections.closed.total()
    families = list(connections.read())
    assert sum(read(families, OPENED).values()) == opened
    assert sum(read(families, CLOSED).values()) == closed
    return opened, connections.open.total(), closed


# Connections.


@pytest.mark.parametrize("transport", ["inprocess", "grpcio"])
async def test_opened_is_open_and_closed_by_cause(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, grpc={"transport": transport}) as (app, _):
        port = app.addresses[0].port
        clients = [await Client.connect(app) for _ in range(3)]
        for client in clients:
            await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        async with insecure_channel(f"127.0.0.1:{port}") as channel:
            await MessagingServiceStub(channel).QueryRoute(QueryRouteRequest(topic=Resource(name="orders")))
            await until(lambda: identity(app) == (4, 4, 0))
            assert app.metrics.connections.open == {("remoting", "127.0.0.1:0"): 3, ("grpc", "127.0.0.1:0"): 1}
        await until(lambda: identity(app) == (4, 3, 1))
        await clients[0].close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x06\x00\x00\x00\x02{}")
        await until(lambda: identity(app) == (5, 2, 3))
        assert not await soon(reader.read())
        writer.close()
        # What is no remoting and no gRPC was never opened.
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff" * 20)
        await until(lambda: app.metrics.negotiations.outcomes["127.0.0.1:0", "unknown"] == 1)
        writer.close()
        assert identity(app) == (5, 2, 3)
        assert app.metrics.connections.causes("remoting") == {"peer": 1, "protocol": 1}
    opened, still, closed = identity(app)
    assert (opened, still, closed) == (5, 0, 5)
    assert app.metrics.connections.causes("remoting") == {"peer": 1, "protocol": 1, "drain": 2}


async def test_bytes_outlive_their_connection(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        sent, received = client.connection.sent_bytes, client.connection.received_bytes
        wanted = {("out", "remoting"): received, ("in", "remoting"): sent}
        assert shown(app.metrics, "gantry_connection_bytes_total") == wanted
        await client.close()
        await until(lambda: not app.channels)
        assert set(shown(app.metrics, "gantry_connection_bytes_total").values()) == {sent, received}
        upstream = shown(app.metrics, "gantry_upstream_bytes_total")
        assert min(upstream.values()) > 100


async def test_a_client_with_too_much_under_way_is_read_no_further(cluster: Cluster) -> None:
    async with replica(cluster, answer=lambda _: None, limits={"requests": 2}) as (app, _):
        client = await Client.connect(app)
        asked = [client.connection.request(complete(REQUESTS[310]), 30.0) for _ in range(3)]
        await until(lambda: shown(app.metrics, "gantry_read_pauses_total").get(("remoting",), 0) >= 1)
        await client.close()
        for one in asked:
            with suppress(ServiceUnavailable):
                await one


# Negotiation.


async def test_handshakes(cluster: Cluster, tmp_path: Path) -> None:
    files, context = certify(tmp_path)
    async with replica(cluster, tls=files, limits={"negotiation_timeout": 2.0}) as (app, _):
        client = await Client.connect(app, context)
        await client.ask(heartbeat("c1"))
        assert shown(app.metrics, "gantry_tls_handshakes_total") == {("TLSv1.3",): 1}
        # A client that trusts somebody else.
        with pytest.raises(ssl.SSLError):
            await Client.connect(app, ssl.create_default_context())
        await until(lambda: shown(app.metrics, "gantry_tls_failures_total"))
        ((reason,),) = shown(app.metrics, "gantry_tls_failures_total")
        assert reason in ("tlsv1_alert_unknown_ca", "lost")
        # One that leaves in the middle, one that says nothing more.
        leaving = await _begin_handshake(app)
        leaving.close()
        await until(lambda: ("lost",) in shown(app.metrics, "gantry_tls_failures_total"))
        silent = await _begin_handshake(app)
        await until(lambda: ("timeout",) in shown(app.metrics, "gantry_tls_failures_total"))
        silent.close()
        outcomes = app.metrics.negotiations.outcomes
        assert outcomes["127.0.0.1:0", "tls_failed"] == sum(shown(app.metrics, "gantry_tls_failures_total").values())
        await client.close()


async def _begin_handshake(app: App) -> asyncio.StreamWriter:
    """The first bytes of a ClientHello, read by the replica."""
    _, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
    writer.write(bytes.fromhex("1603010200010001fc0303"))
    await writer.drain()
    await asyncio.sleep(0.1)
    await settle()
    return writer


# Upstream.


async def test_brokers_come_and_go(cluster: Cluster) -> None:
    async with replica(cluster) as (app, broker):
        client = await Client.connect(app)
        await client.ask(complete(REQUESTS[310]))
        before = shown(app.metrics, "gantry_upstream_connections")[()]
        broker.stop()
        await until(lambda: shown(app.metrics, "gantry_upstream_connections")[()] < before)
        assert (await client.ask(complete(REQUESTS[310]))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        made = shown(app.metrics, "gantry_upstream_connections_opened_total")[()]
        closed = sum(shown(app.metrics, "gantry_upstream_connections_closed_total").values())
        assert made == closed + shown(app.metrics, "gantry_upstream_connections")[()]
        assert shown(app.metrics, "gantry_upstream_dial_failures_total")[()] >= 1
        assert shown(app.metrics, "gantry_upstream_errors_total") == {("broker-a",): 1}
        assert shown(app.metrics, "gantry_upstream_seconds_count") == {("broker-a",): 2}
        await client.close()


async def test_what_is_under_way(cluster: Cluster) -> None:
    async with replica(cluster, answer=hold) as (app, broker):
        client = await Client.connect(app)
        asked = [client.connection.request(complete(REQUESTS[code]), 30.0) for code in (310, RequestCode.PULL_MESSAGE)]
        # What an rpc does in the core.
        inner = app.core.handle(GrpcChannel("c1", peer()), complete(REQUESTS[310]))
        assert inner is not None
        await until(lambda: shown(app.metrics, "gantry_requests_under_way") == {("remoting",): 2, ("grpc",): 1})
        assert shown(app.metrics, "gantry_long_polls") == {("remoting",): 1, ("grpc",): 0}
        assert shown(app.metrics, "gantry_upstream_requests_under_way") == {("broker-a",): 3}
        await broker.until(lambda server: server.codes.count(310) == 2 and RequestCode.PULL_MESSAGE in server.codes)
        broker.stop()
        await soon(asyncio.gather(*asked, inner, return_exceptions=True))
        assert not app.core.in_flight
        await client.close()


@pytest.mark.parametrize(
    ("acting", "number", "way"), [(False, 0, "master"), (True, 1, "acting_master"), (False, 1, "none")]
)
async def test_where_messages_are_sent_back_to(cluster: Cluster, acting: bool, number: int, way: str) -> None:
    await cluster.broker(number=number)
    cluster.acting = acting
    async with serving(cluster) as app:
        client = await Client.connect(app)
        answer = await client.ask(complete(REQUESTS[RequestCode.CONSUMER_SEND_MSG_BACK]))
        assert (answer.code == 0) == (way != "none")
        assert shown(app.metrics, "gantry_send_back_total") == {(way,): 1}
        assert shown(app.metrics, "gantry_diverted_total").get(("no_master",), 0) == (way == "none")
        await client.close()


async def test_the_route_cache() -> None:
    trouble: list[Exception] = []
    clock = Clock()

    async def load(topic: str) -> Any:
        if trouble:
            raise trouble.pop()
        return route(topic)

    cache = RouteCache(load, clock, 10.0, 300.0)
    assert cache.cached("orders") is None
    await cache.get("orders")
    await cache.get("orders")
    cache.cached("orders")
    assert cache.counts == {"hit": 2, "miss": 1, "refresh": 0, "error": 0}
    clock.now += 20
    trouble.append(ServiceUnavailable("no name server"))
    await cache.refresh()
    assert cache.counts == {"hit": 2, "miss": 1, "refresh": 1, "error": 1}
    trouble.append(TopicNotExist("nowhere"))
    with pytest.raises(TopicNotExist):
        await cache.get("nowhere")
    # That there is none is an answer.
    assert cache.counts == {"hit": 2, "miss": 2, "refresh": 1, "error": 1}


# Members and transactions.


async def test_members(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        command = heartbeat("c1", {"g": ["orders"]}, ["p"])
        command.header.update(language="GO", version=317)
        await client.ask(command)
        text = app.metrics
        assert shown(text, "rocketmq_producer_connections").popitem()[1] == 1
        ((labels, count),) = shown(text, "rocketmq_consumer_connections").items()
        assert count == 1
        assert {"g", "GO", "push"} <= set(labels)
        assert shown(text, "gantry_group_changes_total") == {("joined",): 1, ("left",): 0}
        await client.close()
        await until(lambda: shown(text, "gantry_group_changes_total")["left",] == 1)
        assert shown(text, "rocketmq_consumer_connections") == {}


async def test_transactions(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        for outcome in ("8", "12", "12", "0"):
            await client.ask(complete(REQUESTS[RequestCode.END_TRANSACTION], commitOrRollback=outcome))
        assert shown(app.metrics, "gantry_transactions_total") == {
            ("commit", "remoting"): 1,
            ("rollback", "remoting"): 2,
            ("unknown", "remoting"): 1,
        }
        async with insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
            stub: Any = MessagingServiceStub(channel)
            refused = await stub.EndTransaction(EndTransactionRequest(), metadata=(("x-mq-client-id", "c1"),))
            # Refused before it is anything to a broker, so nothing became of it.
            assert refused.status.code
        assert sum(shown(app.metrics, "gantry_transactions_total").values()) == 4
        await client.close()


async def test_a_broker_asks_clients(cluster: Cluster) -> None:
    async with replica(cluster) as (app, broker):
        client = await Client.connect(app)
        await client.ask(heartbeat("c1", {"g": ["orders"]}))
        (lane,) = broker.connections
        notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
        lane.oneway(notice)
        await until(lambda: client.pushed)
        assert set(shown(app.metrics, "gantry_pushes_total").values()) == {1}
        ((labels, _),) = shown(app.metrics, "gantry_pushes_total").items()
        assert set(labels) == {"remoting", "NOTIFY_CONSUMER_IDS_CHANGED"}
        await client.close()
