"""Metrics by their exposed names, each moved by the action of a client or server that it counts."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from grpc.aio import insecure_channel

from protos.apache.rocketmq.v2.definition_pb2 import Resource
from protos.apache.rocketmq.v2.service_pb2 import QueryRouteRequest, TelemetryCommand
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.requests import REQUESTS
from tests.cluster.client import Client as RealClient
from tests.cluster.client import create_topic, queue_fields, send_fields, v2
from tests.cluster.grpc.consumer import Consumer
from tests.grpc_gateway.messages import producer_settings
from tests.proxy.admin.http.replicas import Replica, replica
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import complete, request
from tests.proxy.observability.metrics.samples import SampleValues, samples_of
from tests.proxy.replica import Client, ask_route, certify, running, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio

# Returns the requests that get no reply before the client closes.
Act = Callable[[App, Client], Awaitable[Sequence[Awaitable[None]]]]
Answer = Callable[[RemotingCommand], RemotingCommand | None]
LISTENER = "127.0.0.1:0"
BODY = b"x" * 1000
DENY = """
[[rule]]
name = "closed"
kind = "deny"
match.topics = ["orders"]
"""


@dataclass(frozen=True)
class Case:
    """moves: the difference that the action makes to each series of the metric. answer: the broker's replies."""

    metric: str
    act: Act
    moves: dict[tuple[str, ...], float]
    settings: dict[str, Any] = field(default_factory=dict)
    answer: Answer | None = None


async def send(_: App, client: Client) -> Sequence[Awaitable[None]]:
    await client.ask(send_of("orders"))
    return ()


def send_of(topic: str) -> RemotingCommand:
    return complete(REQUESTS[RequestCode.SEND_MESSAGE_V2], b=topic)


async def pull_three_times(_: App, client: Client) -> Sequence[Awaitable[None]]:
    pull = complete(REQUESTS[RequestCode.PULL_MESSAGE], sysFlag="2", suspendTimeoutMillis="20000")
    return [asyncio.ensure_future(suppressed(client, pull)) for _number in range(3)]


async def suppressed(client: Client, command: RemotingCommand) -> None:
    """Send a request that gets no reply before the client closes."""
    with suppress(RemotingError):
        await client.connection.request(command, 30.0)


async def ask_for_a_new_topic(_: App, client: Client) -> Sequence[Awaitable[None]]:
    await client.ask(ask_route("invoices"))
    return ()


async def send_to_two_topics(_: App, client: Client) -> Sequence[Awaitable[None]]:
    for topic in ("orders", "invoices"):
        await client.ask(send_of(topic))
    return ()


async def connect_twice(app: App, _: Client) -> Sequence[Awaitable[None]]:
    for _number in range(2):
        other = await Client.connect(app)
        await other.ask(ask_route())
        await other.close()
    return ()


async def query_route(app: App, _: Client) -> Sequence[Awaitable[None]]:
    async with insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
        stub: Any = MessagingServiceStub(channel)
        await stub.QueryRoute(QueryRouteRequest(topic=Resource(name="orders")), metadata=(("x-mq-client-id", "c1"),))
    return ()


def leave_unanswered(command: RemotingCommand) -> RemotingCommand | None:
    """Answer a broker's requests but sends and pulls."""
    return None if command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE) else commands.success()


CASES = (
    Case("gantry_broker_seconds_count", send, {("SEND_MESSAGE_V2", "remoting"): 1}),
    Case("gantry_queueing_seconds_count", send, {("SEND_MESSAGE_V2", "remoting"): 1}),
    Case("gantry_negotiations_total", connect_twice, {(LISTENER, "remoting"): 2}),
    Case(
        "gantry_upstream_polls_waiting",
        pull_three_times,
        {(): 2},
        {"limits": {"broker_polls": 1}},
        leave_unanswered,
    ),
    Case(
        "gantry_upstream_polls_waited_total",
        pull_three_times,
        {(): 2},
        {"limits": {"broker_polls": 1}},
        leave_unanswered,
    ),
    Case("gantry_routes", ask_for_a_new_topic, {(): 1}),
    Case("gantry_route_cache_total", ask_for_a_new_topic, {("miss",): 1}),
    Case("gantry_creations_total", send_to_two_topics, {("admitted",): 2}),
    Case("gantry_rule_matched_total", send, {("deny", "closed"): 1}),
    Case("gantry_grpc_calls_total", query_route, {("/apache.rocketmq.v2.MessagingService/QueryRoute", "OK"): 1}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.metric)
async def test_an_action_before_a_cluster_moves_its_metric(cluster: Cluster, tmp_path: Path, case: Case) -> None:
    await cluster.broker(answer=case.answer)
    cluster.topics.update(orders=["broker-a"], invoices=["broker-a"])
    more = dict(case.settings)
    if case.metric == "gantry_rule_matched_total":
        (tmp_path / "rules.toml").write_text(DENY)
        more["rules"] = {"file": tmp_path / "rules.toml"}
    async with serving(cluster, **more) as app:
        client = await Client.connect(app)
        before = samples_of(app.metrics, case.metric)
        waiting = await case.act(app, client)
        await moved(app, case, before)
        await client.close()
        await asyncio.gather(*waiting)


async def moved(app: App, case: Case, before: SampleValues) -> None:
    """Wait until the metric has moved by the case's differences, and no other series has."""

    def difference() -> SampleValues:
        now = samples_of(app.metrics, case.metric)
        both = {labels: value - before.get(labels, 0) for labels, value in now.items()}
        return {labels: value for labels, value in both.items() if value}

    with suppress(TimeoutError):
        await until(lambda: difference() == case.moves, 10)
    assert difference() == case.moves


async def test_unanswered_requests_are_counted_with_their_memory(cluster: Cluster) -> None:
    await cluster.broker(answer=leave_unanswered)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        client = await Client.connect(app)
        command = send_of("orders")
        sent = asyncio.ensure_future(suppressed(client, request(command.code, BODY, False, **command.fields)))
        await until(lambda: app.core.in_flight)
        (context,) = app.core.in_flight
        assert context.memory > len(BODY)
        assert samples_of(app.metrics, "gantry_request_bytes") == {(): context.memory}
        await client.close()
        await sent
        await until(lambda: samples_of(app.metrics, "gantry_request_bytes") == {(): 0})


async def test_denied_heartbeats_of_gantry_are_counted_with_their_signatures(cluster: Cluster) -> None:
    await cluster.broker(answer=lambda _: commands.response(ResponseCode.NO_PERMISSION, remark="no such user"))
    name_server = await cluster.name_server()
    settings = Settings(
        listen=[LISTENER],
        cluster={"namesrv": name_server.address, "access_key": "gantry", "secret_key": "not-used-anywhere"},
        sync={"enabled": False},
        admin={"listen": "off"},
        drain_timeout=0.2,
    )
    async with running(settings) as app:
        await until(lambda: samples_of(app.metrics, "gantry_brokers_denying") == {(): 1})
        assert samples_of(app.metrics, "gantry_signed_requests_total")["gantry",] >= 1


async def test_a_refused_certificate_of_a_name_server_is_counted(tmp_path: Path) -> None:
    files, _ = certify(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certificate"], files["key"])
    # The system's authorities, which did not issue the certificate, are those of cluster_tls.
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(
        listen=[LISTENER],
        cluster={"namesrv": f"127.0.0.1:{port}"},
        cluster_tls={"enabled": True, "server_name": "rocketmq.test"},
        sync={"enabled": False},
        admin={"listen": "off"},
        drain_timeout=0.2,
    )
    async with running(settings) as app:
        await until(lambda: samples_of(app.metrics, "gantry_upstream_tls_failures_total"))
        ((reason,),) = samples_of(app.metrics, "gantry_upstream_tls_failures_total")
        assert reason in ("unable_to_get_local_issuer_certificate", "self_signed_certificate_in_certificate_chain")
    server.close()


# The embedded broker.


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(tmp_path, admin={"survey_interval": 0}) as running:
        yield running


async def test_stored_and_delivered_messages_and_created_topics_are_counted(embedded: Replica) -> None:
    metrics = embedded.app.metrics
    async with RealClient(embedded.address) as client:
        await client.send("invoices", b"one")
        await client.send("invoices", b"two")
        assert samples_of(metrics, "gantry_embedded_creations_total")["admitted",] == 1
        await client.pull_all(1, "invoices", "g")
        assert samples_of(metrics, "gantry_embedded_messages_total") == {("put",): 2, ("got",): 2}


async def test_a_survey_measures_lag_and_dead_letters(embedded: Replica) -> None:
    metrics, survey = embedded.app.metrics, embedded.app.admin_services.survey
    async with RealClient(embedded.address) as client:
        topic = await create_topic(embedded.address, "orders", queues=1)
        await client.heartbeat({"g": [topic]})
        await client.send(topic, b"waits")
        offset = queue_fields(topic, consumerGroup="g", commitOffset=0)
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        await client.send("%DLQ%g", b"failed")
        await survey.refresh(0.0)
        await until(lambda: samples_of(metrics, "gantry_consumer_survey_seconds").get((), 0) > 0)
        assert 0 <= samples_of(metrics, "gantry_consumer_lag_seconds")["g", topic] < 60
        assert samples_of(metrics, "gantry_dead_letters") == {("g",): 1}


async def test_answers_with_a_message_that_was_delivered_before_are_counted(embedded: Replica) -> None:
    metrics = embedded.app.metrics
    topic = await create_topic(embedded.address, "orders", queues=1)
    async with Consumer(embedded.address, "g", topic) as consumer:
        await consumer.send(b"m")
        (message,) = await consumer.receive_all(1)
        assert samples_of(metrics, "gantry_redeliveries_total").get(("grpc",), 0) == 0
        await consumer.change(message, 0.0)
        await consumer.receive_all(1)
        assert samples_of(metrics, "gantry_redeliveries_total")["grpc",] == 1


async def test_topics_of_grpc_producers_are_gauged(embedded: Replica) -> None:
    metrics = embedded.app.metrics
    topic = await create_topic(embedded.address, "orders", queues=1)
    assert samples_of(metrics, "gantry_grpc_topics") == {(): 0}
    async with insecure_channel(embedded.address) as channel:
        stub: Any = MessagingServiceStub(channel)
        telemetry = stub.Telemetry(metadata=(("x-mq-client-id", "c1"),))
        await telemetry.write(TelemetryCommand(settings=producer_settings(topic)))
        await until(lambda: samples_of(metrics, "gantry_grpc_topics") == {(): 1})


async def test_a_request_without_a_credential_is_counted_as_denied(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.touch(0o600)
    async with replica(tmp_path, auth={"users": users}) as own, RealClient(own.address) as client:
        reply = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields("orders"))), b"m")
        assert reply.code == ResponseCode.NO_PERMISSION
        counts = samples_of(own.app.metrics, "gantry_auth_requests_total")
        assert {result: count for (_, result), count in counts.items() if count} == {"no credential": 1}
