"""gRPC through the whole replica; both transports return the same responses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Resource
from protos.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    TelemetryCommand,
    ThreadStackTrace,
)
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.grpc_gateway.messages import consumer_settings, producer_settings, stored
from tests.proxy.backends.cluster.servers import Cluster, Server
from tests.proxy.messages import complete, request
from tests.proxy.replica import Client, certify, serving, soon, stops
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("transport", ["inprocess", "grpcio"])]

_SERVICE = "apache.rocketmq.v2.MessagingService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def answer(command: RemotingCommand) -> RemotingCommand:
    if command.code == RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG:
        return commands.success(body=orjson.dumps({"groupName": command.fields["group"], "retryMaxTimes": 4}))
    if command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
        return commands.response(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
    return commands.success()


@asynccontextmanager
async def replica(cluster: Cluster, transport: str, **more: Any) -> AsyncIterator[tuple[App, Server]]:
    """Serve the whole proxy in front of one broker with the topic orders."""
    broker = await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    wanted = {"transport": transport, **more.pop("grpc", {})}
    async with serving(cluster, grpc=wanted, **more) as app:
        yield app, broker


@asynccontextmanager
async def channel(app: App, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[grpc.aio.Channel]:
    where = f"127.0.0.1:{app.addresses[0].port}"
    options = [("grpc.ssl_target_name_override", "rocketmq.test"), ("grpc.use_local_subchannel_pool", 1)]
    made = (
        grpc.aio.insecure_channel(where, options)
        if credentials is None
        else grpc.aio.secure_channel(where, credentials, options)
    )
    async with made as channel:
        yield channel


def metadata(client_id: str = "c1", language: str = "JAVA") -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", client_id), ("x-mq-language", language), ("x-mq-client-version", "5.0.7"))


async def talk(stub: Any, settings: Any, client_id: str = "c1") -> Any:
    """Open a telemetry stream and receive the response to its first settings."""
    call = stub.Telemetry(metadata=metadata(client_id))
    await call.write(TelemetryCommand(settings=settings))
    told = await soon(call.read())
    assert told.status.code == Code.OK
    return call


PUSH = HeartbeatRequest(group=Resource(name="g"), client_type=ClientType.PUSH_CONSUMER)


async def test_client_registers_sends_heartbeats_and_terminates(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, broker), channel(app) as open_channel:
        stub: Any = MessagingServiceStub(open_channel)
        call = stub.Telemetry(metadata=metadata())
        await call.write(TelemetryCommand(settings=consumer_settings()))
        told = await soon(call.read())
        assert told.settings.backoff_policy.max_attempts == 5
        assert (await stub.Heartbeat(PUSH, metadata=metadata())).status.code == Code.OK
        await broker.until(lambda server: RequestCode.HEART_BEAT in server.codes)
        assert app.registry.consumer_ids("g") == {"c1"}
        (member,) = app.registry.local()
        # The peer is the client itself on both transports.
        assert member.address.startswith("127.0.0.1:")
        assert not member.address.endswith(f":{app.addresses[0].port}")
        assert (member.language, member.channel and member.channel.session.client_id) == ("JAVA", "c1")
        farewell = NotifyClientTerminationRequest(group=Resource(name="g"))
        assert (await stub.NotifyClientTermination(farewell, metadata=metadata())).status.code == Code.OK
        assert app.registry.consumer_ids("g") == set()
        await broker.until(lambda server: RequestCode.UNREGISTER_CLIENT in server.codes)
        assert await soon(call.read()) is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_heartbeat_without_metadata_is_answered(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _), channel(app) as open_channel:
        stub: Any = MessagingServiceStub(open_channel)
        assert (await stub.Heartbeat(HeartbeatRequest())).status.code == Code.OK
        assert (await stub.Heartbeat(PUSH)).status.code == Code.CLIENT_ID_REQUIRED


async def test_invalid_settings_end_the_stream_with_the_reason(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _), channel(app) as open_channel:
        stub: Any = MessagingServiceStub(open_channel)
        call = stub.Telemetry(metadata=metadata())
        await call.write(TelemetryCommand(settings=producer_settings("no such topic")))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await soon(call.read())
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "ILLEGAL_TOPIC" in str(failed.value.details())


async def test_routes_contain_the_advertised_address(cluster: Cluster, transport: str) -> None:
    listen = {"advertise": "mq.example.com:8443"}
    async with replica(cluster, transport, listen=listen) as (app, _), channel(app) as open_channel:
        await talk(MessagingServiceStub(open_channel), consumer_settings())
        (client,) = app.grpc.clients
        assert app.grpc.gateway.address(client.peer) == HostPort("mq.example.com", 8443)
    async with serving(cluster, grpc={"transport": transport}) as app, channel(app) as open_channel:
        await talk(MessagingServiceStub(open_channel), consumer_settings())
        (client,) = app.grpc.clients
        # The address that the client connected to.
        assert app.grpc.gateway.address(client.peer) is None


async def test_broken_telemetry_stream_is_detected_and_the_client_stays(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _):
        async with channel(app) as open_channel, channel(app) as other:
            await talk(MessagingServiceStub(open_channel), consumer_settings())
            await MessagingServiceStub(other).Heartbeat(PUSH, metadata=metadata())
            assert len(app.grpc.service.telemetry.streams) == 1
            await open_channel.close()
            await until(lambda: not app.grpc.service.telemetry.streams)
            (client,) = app.grpc.clients
            assert client.stream is None
            assert client.disconnected_at is None
            assert app.registry.consumer_ids("g") == {"c1"}
        # The last connection has ended without a drain.
        await until(lambda: not app.registry.consumer_ids("g"))
        assert sum(app.grpc.service.client_lifecycle.lost.values()) == 1


async def test_client_of_a_drained_connection_may_reconnect(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _):
        async with channel(app) as open_channel:
            await talk(MessagingServiceStub(open_channel), consumer_settings())
            await until(lambda: app.registry.consumer_ids("g"))
            (client,) = app.grpc.clients
            app.drain.start()
        await until(lambda: client.disconnected_at is not None)
        lifecycle = app.grpc.service.client_lifecycle
        # Longer than a lost client has.
        await asyncio.sleep(1)
        assert app.registry.consumer_ids("g") == {"c1"}
        assert sum(lifecycle.lost.values()) == 0
        lifecycle.sweep(asyncio.get_running_loop().time() + 11)
        await until(lambda: not app.registry.consumer_ids("g"))


async def test_group_has_members_of_both_protocols(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _), channel(app) as open_channel:
        await talk(MessagingServiceStub(open_channel), consumer_settings())
        await until(lambda: app.registry.consumer_ids("g"))
        old = await Client.connect(app)
        listed = await old.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"))
        assert orjson.loads(listed.body) == {"consumerIdList": ["c1"]}
        await old.close()


async def test_tool_request_reaches_a_grpc_client(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport, tools="all") as (app, _), channel(app) as open_channel:
        call = await talk(MessagingServiceStub(open_channel), consumer_settings())
        await until(lambda: app.registry.consumer_ids("g"))
        tool = await Client.connect(app)
        fields = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
        asking = asyncio.ensure_future(tool.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)))
        asked = await soon(call.read())
        trace = ThreadStackTrace(nonce=asked.print_thread_stack_trace_command.nonce, thread_stack_trace="at rest")
        await call.write(TelemetryCommand(thread_stack_trace=trace))
        assert orjson.loads((await soon(asking)).body)["jstack"] == "at rest"
        call.cancel()
        await until(lambda: not app.grpc.service.telemetry.streams)
        reply = await soon(tool.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)))
        assert reply.code == 206
        await tool.close()


async def test_transaction_check_reaches_a_producer_of_the_topic(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, broker), channel(app) as first, channel(app) as second:
        gone = await talk(MessagingServiceStub(first), producer_settings(), "p1")
        there = await talk(MessagingServiceStub(second), producer_settings(), "p2")
        await broker.until(lambda server: RequestCode.HEART_BEAT in server.codes)
        (beat,) = [one for one in broker.received if one.code == RequestCode.HEART_BEAT]
        # Two producers are registered as one member.
        assert [part["groupName"] for part in orjson.loads(beat.body)["producerDataSet"]] == ["orders"]
        gone.cancel()
        await until(lambda: len(app.grpc.service.telemetry.streams) == 1)
        half = messages.encode_message(stored(5, TRAN_MSG="true", PGROUP="orders"))
        fields = {"tranStateTableOffset": "7", "commitLogOffset": "1005", "transactionId": "id-5"}
        check = commands.request(RequestCode.CHECK_TRANSACTION_STATE, fields, half, oneway=True)
        for connection in broker.connections:
            with contextlib.suppress(Exception):
                connection.oneway(check.copy())
        asked = await soon(there.read())
        assert asked.recover_orphaned_transaction_command.message.body == b"body"


async def test_health_follows_the_brokers_and_the_drain(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport, drain_timeout=60) as (app, _), channel(app) as open_channel:
        stub: Any = health_pb2_grpc.HealthStub(open_channel)
        for name in ("", _SERVICE):
            found = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert found.status == SERVING
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=_SERVICE))
        assert (await soon(watch.read())).status == SERVING
        stops[app].set()
        assert (await soon(watch.read())).status == NOT_SERVING
        watch.cancel()


async def test_health_without_brokers_fails_for_the_service_only(cluster: Cluster, transport: str) -> None:
    async with serving(cluster, grpc={"transport": transport}) as app, channel(app) as open_channel:
        stub: Any = health_pb2_grpc.HealthStub(open_channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest(service=_SERVICE))).status == NOT_SERVING


async def test_health_of_the_service_fails_without_a_reachable_broker(
    cluster: Cluster, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.frontends.grpc_frontend._SWEEP_INTERVAL", 0.05)
    async with replica(cluster, transport) as (app, broker), channel(app) as open_channel:
        stub: Any = health_pb2_grpc.HealthStub(open_channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=_SERVICE))
        assert (await soon(watch.read())).status == SERVING
        client = await Client.connect(app)
        await client.ask(complete(REQUESTS[310]))
        broker.stop()
        # The first request may find the connection lost, the second that it cannot be opened.
        for _ in range(2):
            assert (await client.ask(complete(REQUESTS[310]))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        # The name server still lists the broker.
        assert (await soon(watch.read())).status == NOT_SERVING
        assert not app.admin_services.health.report("/readyz").ok
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        watch.cancel()
        await client.close()


# These stubs are typed for the synchronous channel only.
_reflection: Any = reflection_pb2_grpc.ServerReflectionStub


async def reflected(app: App) -> list[str]:
    async with channel(app) as open_channel:
        stub: Any = _reflection(open_channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        found = await soon(call.read())
        await call.done_writing()
        return [one.name for one in found.list_services_response.service]


async def test_reflection_is_served_if_configured(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport, grpc={"reflection": True}) as (app, _):
        assert _SERVICE in await reflected(app)
    async with serving(cluster, grpc={"transport": transport, "health": False}) as app, channel(app) as open_channel:
        # One request at a time: rejecting a stream while its client still writes sometimes ends in INTERNAL there.
        ask: Any = open_channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await ask(b"")
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_drain_asks_clients_to_reconnect(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport, drain_timeout=60) as (app, broker), channel(app) as open_channel:
        stub: Any = MessagingServiceStub(open_channel)
        call = await talk(stub, consumer_settings())
        await broker.until(lambda server: RequestCode.HEART_BEAT in server.codes)
        stops[app].set()
        assert (await soon(call.read())).HasField("reconnect_endpoints_command")
        assert await soon(call.read()) is grpc.aio.EOF
        await broker.until(lambda server: RequestCode.UNREGISTER_CLIENT in server.codes)
        assert not app.registry.consumer_ids("g")


async def test_metrics_count_calls_clients_and_streams(cluster: Cluster, transport: str) -> None:
    async with replica(cluster, transport) as (app, _):
        async with channel(app) as open_channel:
            stub: Any = MessagingServiceStub(open_channel)
            await talk(stub, consumer_settings())
            await stub.Heartbeat(PUSH, metadata=metadata())
            await stub.Heartbeat(PUSH)
            shown = {family.name: family for family in app.metrics.collect()}
            gauges = {one.name: one.value for family in shown.values() for one in family.samples if one.labels == {}}
            assert sum(one.value for one in shown["gantry_connections"].samples) == 1
            assert gauges["gantry_grpc_streams"] == 1
            assert gauges["gantry_telemetry_streams"] == 1
            assert gauges["gantry_grpc_clients"] == 1
            rpcs = app.metrics.requests.answers()
            assert rpcs["grpc", "Heartbeat", Code.OK] == 1
            assert rpcs["grpc", "Heartbeat", Code.CLIENT_ID_REQUIRED] == 1
            assert rpcs["grpc", "Telemetry", Code.OK] == 1
            calls = {tuple(one.labels.values()): one.value for one in shown["gantry_grpc_calls"].samples}
            assert calls[f"/{_SERVICE}/Heartbeat", "OK"] == 2
        await until(lambda: not app.grpc.server.connections)
        assert app.metrics.connections.causes("grpc").total() == 1


async def test_grpc_is_served_over_tls(cluster: Cluster, transport: str, tmp_path: Path) -> None:
    files, _ = certify(tmp_path)
    async with replica(cluster, transport, tls=files) as (app, _):
        credentials = grpc.ssl_channel_credentials(root_certificates=(tmp_path / "authority.pem").read_bytes())
        async with channel(app, credentials) as encrypted, channel(app) as plain:
            for one in (encrypted, plain):
                assert (await MessagingServiceStub(one).Heartbeat(HeartbeatRequest())).status.code == Code.OK


async def test_failing_periodic_task_is_logged_and_continues(
    cluster: Cluster, transport: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.frontends.grpc_frontend._RENEWAL_INTERVAL", 0.01)
    turns: list[float] = []

    def fail(now: float) -> None:
        turns.append(now)
        raise ValueError("a mistake")

    async with replica(cluster, transport) as (app, _), channel(app) as open_channel:
        monkeypatch.setattr(app.grpc.renewal, "sweep", fail)
        await until(lambda: len(turns) > 1)
        stub: Any = MessagingServiceStub(open_channel)
        assert (await stub.Heartbeat(PUSH, metadata=metadata())).status.code == Code.OK
    assert "the background task 'renewals' failed" in caplog.text
