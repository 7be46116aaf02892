"""A replica that records its traffic, and the work of clients of both protocols."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

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
from proxy.settings.model import Settings
from remoting.command import RemotingCommand
from tests.grpc_gateway.messages import consumer_settings, producer_settings
from tests.proxy.messages import heartbeat, request
from tests.proxy.replica import Client, running, soon


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
