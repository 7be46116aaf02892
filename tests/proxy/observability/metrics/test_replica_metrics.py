"""Metrics of a replica that clients and brokers use."""

import asyncio
import ssl
from collections.abc import AsyncIterator
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
from tests.proxy.observability.metrics.samples import read, samples_of
from tests.proxy.replica import Client, certify, serving, soon
from tests.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def replica(cluster: Cluster, answer: Any = None, **more: Any) -> AsyncIterator[tuple[App, Server]]:
    broker = await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, **more) as app:
        yield app, broker


def leave_messages_unanswered(command: RemotingCommand) -> RemotingCommand | None:
    """Answer all requests of a broker but sends and pulls."""
    unanswered = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE)
    return None if command.code in unanswered else commands.success()


def connection_counts(app: App) -> tuple[int, int, int]:
    """Return the numbers of connections opened, open and closed, of all protocols and listeners."""
    connections = app.metrics.connections
    opened, closed = connections.opened.total(), connections.closed.total()
    families = list(connections.read())
    assert sum(read(families, OPENED).values()) == opened
    assert sum(read(families, CLOSED).values()) == closed
    return opened, connections.open.total(), closed


# Connections.


@pytest.mark.parametrize("transport", ["inprocess", "grpcio"])
async def test_opened_connections_equal_open_plus_closed_by_cause(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, grpc={"transport": transport}) as (app, _):
        port = app.addresses[0].port
        clients = [await Client.connect(app) for _ in range(3)]
        for client in clients:
            await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        async with insecure_channel(f"127.0.0.1:{port}") as channel:
            await MessagingServiceStub(channel).QueryRoute(QueryRouteRequest(topic=Resource(name="orders")))
            await until(lambda: connection_counts(app) == (4, 4, 0))
            assert app.metrics.connections.open == {("remoting", "127.0.0.1:0"): 3, ("grpc", "127.0.0.1:0"): 1}
        await until(lambda: connection_counts(app) == (4, 3, 1))
        await clients[0].close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x06\x00\x00\x00\x02{}")
        await until(lambda: connection_counts(app) == (5, 2, 3))
        assert not await soon(reader.read())
        writer.close()
        # A connection of an unknown protocol is not counted as opened.
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff" * 20)
        await until(lambda: app.metrics.negotiations.outcomes["127.0.0.1:0", "unknown"] == 1)
        writer.close()
        assert connection_counts(app) == (5, 2, 3)
        assert app.metrics.connections.causes("remoting") == {"peer": 1, "protocol": 1}
    assert connection_counts(app) == (5, 0, 5)
    assert app.metrics.connections.causes("remoting") == {"peer": 1, "protocol": 1, "drain": 2}


async def test_bytes_of_closed_connections_remain(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        sent, received = client.connection.sent_bytes, client.connection.received_bytes
        expected = {("out", "remoting"): received, ("in", "remoting"): sent}
        assert samples_of(app.metrics, "gantry_connection_bytes_total") == expected
        await client.close()
        await until(lambda: not app.channels)
        assert set(samples_of(app.metrics, "gantry_connection_bytes_total").values()) == {sent, received}
        upstream = samples_of(app.metrics, "gantry_upstream_bytes_total")
        assert min(upstream.values()) > 100


async def test_a_client_with_too_many_in_flight_requests_causes_a_read_pause(cluster: Cluster) -> None:
    async with replica(cluster, answer=lambda _: None, limits={"requests": 2}) as (app, _):
        client = await Client.connect(app)
        replies = [client.connection.request(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]), 30.0) for _ in range(3)]
        await until(lambda: samples_of(app.metrics, "gantry_read_pauses_total").get(("remoting",), 0) >= 1)
        await client.close()
        for reply in replies:
            with suppress(ServiceUnavailable):
                await reply


# Negotiation.


async def test_tls_handshakes_are_counted_by_version_and_failure(cluster: Cluster, tmp_path: Path) -> None:
    files, context = certify(tmp_path)
    async with replica(cluster, tls=files, limits={"negotiation_timeout": 2.0}) as (app, _):
        client = await Client.connect(app, context)
        await client.ask(heartbeat("c1"))
        assert samples_of(app.metrics, "gantry_tls_handshakes_total") == {("TLSv1.3",): 1}
        # A client that trusts another authority.
        with pytest.raises(ssl.SSLError):
            await Client.connect(app, ssl.create_default_context())
        await until(lambda: samples_of(app.metrics, "gantry_tls_failures_total"))
        ((reason,),) = samples_of(app.metrics, "gantry_tls_failures_total")
        assert reason in ("tlsv1_alert_unknown_ca", "lost")
        # A client that disconnects during the handshake, and one that stops sending.
        leaving = await _begin_handshake(app)
        leaving.close()
        await until(lambda: ("lost",) in samples_of(app.metrics, "gantry_tls_failures_total"))
        silent = await _begin_handshake(app)
        await until(lambda: ("timeout",) in samples_of(app.metrics, "gantry_tls_failures_total"))
        silent.close()
        outcomes = app.metrics.negotiations.outcomes
        assert outcomes["127.0.0.1:0", "tls_failed"] == sum(
            samples_of(app.metrics, "gantry_tls_failures_total").values()
        )
        await client.close()


async def _begin_handshake(app: App) -> asyncio.StreamWriter:
    """Send the first bytes of a ClientHello and wait until the replica has read them."""
    _, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
    writer.write(bytes.fromhex("1603010200010001fc0303"))
    await writer.drain()
    await asyncio.sleep(0.1)
    await settle()
    return writer


# Upstream.


async def test_upstream_connections_and_errors_are_counted(cluster: Cluster) -> None:
    async with replica(cluster) as (app, broker):
        client = await Client.connect(app)
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        before = samples_of(app.metrics, "gantry_upstream_connections")[()]
        broker.stop()
        await until(lambda: samples_of(app.metrics, "gantry_upstream_connections")[()] < before)
        assert (
            await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        ).code == ResponseCode.SERVICE_NOT_AVAILABLE
        opened = samples_of(app.metrics, "gantry_upstream_connections_opened_total")[()]
        closed = sum(samples_of(app.metrics, "gantry_upstream_connections_closed_total").values())
        assert opened == closed + samples_of(app.metrics, "gantry_upstream_connections")[()]
        assert samples_of(app.metrics, "gantry_upstream_dial_failures_total")[()] >= 1
        assert samples_of(app.metrics, "gantry_upstream_errors_total") == {("broker-a",): 1}
        assert samples_of(app.metrics, "gantry_upstream_seconds_count") == {("broker-a",): 2}
        await client.close()


async def test_in_flight_requests_are_gauged_by_protocol_and_broker(cluster: Cluster) -> None:
    async with replica(cluster, answer=leave_messages_unanswered) as (app, broker):
        client = await Client.connect(app)
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE)
        replies = [client.connection.request(complete(REQUESTS[code]), 30.0) for code in codes]
        # A command that a gRPC call translates to.
        grpc_reply = app.core.handle(GrpcChannel("c1", peer()), complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        assert grpc_reply is not None
        await until(lambda: samples_of(app.metrics, "gantry_requests_in_flight") == {("remoting",): 2, ("grpc",): 1})
        assert samples_of(app.metrics, "gantry_long_polls") == {("remoting",): 1, ("grpc",): 0}
        assert samples_of(app.metrics, "gantry_upstream_requests_in_flight") == {("broker-a",): 3}
        await broker.until(
            lambda server: (
                server.codes.count(RequestCode.SEND_MESSAGE_V2) == 2 and RequestCode.PULL_MESSAGE in server.codes
            )
        )
        broker.stop()
        await soon(asyncio.gather(*replies, grpc_reply, return_exceptions=True))
        assert not app.core.in_flight
        await client.close()


@pytest.mark.parametrize(
    ("acting", "number", "target"), [(False, 0, "master"), (True, 1, "acting_master"), (False, 1, "none")]
)
async def test_messages_sent_back_are_counted_by_target(
    cluster: Cluster, acting: bool, number: int, target: str
) -> None:
    await cluster.broker(number=number)
    cluster.acting = acting
    async with serving(cluster) as app:
        client = await Client.connect(app)
        answer = await client.ask(complete(REQUESTS[RequestCode.CONSUMER_SEND_MSG_BACK]))
        assert (answer.code == 0) == (target != "none")
        assert samples_of(app.metrics, "gantry_send_back_total") == {(target,): 1}
        assert samples_of(app.metrics, "gantry_diverted_total").get(("no_master",), 0) == (target == "none")
        await client.close()


async def test_dead_letters_that_clients_request_are_counted_by_group(cluster: Cluster) -> None:
    refused = commands.response(ResponseCode.SYSTEM_ERROR, remark="no message at this offset")
    row = REQUESTS[RequestCode.CONSUMER_SEND_MSG_BACK]

    def answer(command: RemotingCommand) -> RemotingCommand:
        return refused if command.fields.get("offset") == "404" else commands.success()

    async with replica(cluster, answer=answer) as (app, _):
        client = await Client.connect(app)
        named = {"group": "g", "originTopic": "orders", "bname": "broker-a"}
        for more in (
            {"delayLevel": "-1"},
            {"delayLevel": "0", "maxReconsumeTimes": "0"},
            {"delayLevel": "-1", "offset": "404"},
            {"delayLevel": "0", "maxReconsumeTimes": "16"},
            {"delayLevel": "3"},
        ):
            await client.ask(complete(row, **named, **more))
        # As of a gRPC consumer without attempts left.
        from_grpc = complete(row, **{**named, "originTopic": "%RETRY%g_orders"}, delayLevel="-1")
        reply = app.core.handle(GrpcChannel("c1", peer()), from_grpc)
        assert reply is not None
        await reply
        ((labels, count),) = samples_of(app.metrics, "rocketmq_send_to_dlq_messages_total").items()
        assert {"orders", "g", "false"} <= set(labels)
        assert count == 3
        messages = samples_of(app.metrics, "gantry_messages_total")
        assert (messages["dead_letter", "remoting"], messages["dead_letter", "grpc"]) == (2, 1)
        assert messages["sent_back", "remoting"] == 4
        await client.close()


async def test_the_route_cache_counts_hits_misses_refreshes_and_errors() -> None:
    failures: list[Exception] = []
    clock = Clock()

    async def load(topic: str) -> Any:
        if failures:
            raise failures.pop()
        return route(topic)

    cache = RouteCache(load, clock, 10.0, 300.0)
    assert cache.cached("orders") is None
    await cache.get("orders")
    await cache.get("orders")
    cache.cached("orders")
    assert cache.counts == {"hit": 2, "miss": 1, "listed": 0, "refresh": 0, "error": 0}
    clock.now += 20
    failures.append(ServiceUnavailable("no name server"))
    await cache.refresh()
    assert cache.counts == {"hit": 2, "miss": 1, "listed": 0, "refresh": 1, "error": 1}
    failures.append(TopicNotExist("nowhere"))
    with pytest.raises(TopicNotExist):
        await cache.get("nowhere")
    # A missing topic is no error.
    assert cache.counts == {"hit": 2, "miss": 2, "listed": 0, "refresh": 1, "error": 1}


# Members and transactions.


async def test_group_members_are_gauged_and_their_changes_counted(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        command = heartbeat("c1", {"g": ["orders"]}, ["p"])
        command.header.update(language="GO", version=317)
        await client.ask(command)
        metrics = app.metrics
        assert samples_of(metrics, "rocketmq_producer_connections").popitem()[1] == 1
        ((labels, count),) = samples_of(metrics, "rocketmq_consumer_connections").items()
        assert count == 1
        assert {"g", "GO", "push"} <= set(labels)
        assert samples_of(metrics, "gantry_group_changes_total") == {("joined",): 1, ("left",): 0}
        await client.close()
        await until(lambda: samples_of(metrics, "gantry_group_changes_total")["left",] == 1)
        assert samples_of(metrics, "rocketmq_consumer_connections") == {}


async def test_ended_transactions_are_counted_by_outcome(cluster: Cluster) -> None:
    async with replica(cluster) as (app, _):
        client = await Client.connect(app)
        for outcome in ("8", "12", "12", "0"):
            await client.ask(complete(REQUESTS[RequestCode.END_TRANSACTION], commitOrRollback=outcome))
        assert samples_of(app.metrics, "gantry_transactions_total") == {
            ("commit", "remoting"): 1,
            ("rollback", "remoting"): 2,
            ("unknown", "remoting"): 1,
        }
        async with insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
            stub: Any = MessagingServiceStub(channel)
            response = await stub.EndTransaction(EndTransactionRequest(), metadata=(("x-mq-client-id", "c1"),))
            # Rejected before it reaches a broker, so it has no outcome.
            assert response.status.code
        assert sum(samples_of(app.metrics, "gantry_transactions_total").values()) == 4
        await client.close()


async def test_pushes_to_clients_are_counted_by_code(cluster: Cluster) -> None:
    async with replica(cluster) as (app, broker):
        client = await Client.connect(app)
        await client.ask(heartbeat("c1", {"g": ["orders"]}))
        (connection,) = broker.connections
        notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
        connection.oneway(notice)
        await until(lambda: client.pushed)
        assert set(samples_of(app.metrics, "gantry_pushes_total").values()) == {1}
        ((labels, _),) = samples_of(app.metrics, "gantry_pushes_total").items()
        assert set(labels) == {"remoting", "NOTIFY_CONSUMER_IDS_CHANGED"}
        await client.close()
