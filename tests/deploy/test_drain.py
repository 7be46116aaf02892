"""The order of events between SIGTERM and the end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType, MessageQueue, Resource
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from proxy.app import App
from proxy.settings.model import Settings
from proxy.tools.doctor import rpc, wire
from proxy.tools.doctor.connection import Target, Unreachable
from proxy.tools.remoting_client import RemotingClient, Speaker
from remoting.codes import GO_AWAY_VERSION, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.deploy.drain_delay import DELAY
from tests.proxy.tools.doctor.servers import create_topic

pytestmark = pytest.mark.anyio

NEW = Speaker("JAVA", GO_AWAY_VERSION + 2)


async def poll(client: RemotingClient, seconds: int) -> RemotingCommand:
    """Pull from an empty topic."""
    fields = {
        "consumerGroup": "workers",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(1000 * seconds),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return await wire.ask(client, RequestCode.PULL_MESSAGE, fields, speaker=NEW)


async def receive(rpcs: rpc.Rpcs, seconds: int) -> list[Any]:
    """Receive from an empty topic; return the statuses."""
    request = ReceiveMessageRequest(
        group=Resource(name="workers"),
        message_queue=MessageQueue(topic=Resource(name="orders"), id=-1),
        filter_expression=FilterExpression(type=FilterType.TAG, expression="*"),
        batch_size=1,
        invisible_duration=Duration(seconds=30),
        long_polling_timeout=Duration(seconds=seconds),
    )
    call = rpcs.stub.ReceiveMessage(request, timeout=seconds + 5, metadata=rpcs.metadata)
    return [answer.status.code async for answer in call if answer.HasField("status")]


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await check():
            await asyncio.sleep(0.02)


async def test_drain_runs_in_order(tmp_path: Path, delayed: asyncio.Event) -> None:
    app = App(
        Settings(
            listen=[{"address": "127.0.0.1:0"}],
            embedded={"directory": tmp_path, "sync": "os"},
            admin={"listen": "off"},
            drain_delay=DELAY,
            # Longer than any wait of this test.
            drain_timeout=120.0,
        )
    )
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    async with asyncio.timeout(30):
        await ready.wait()
    create_topic(app, "orders")
    (address,) = app.addresses
    line = Target(address, "127.0.0.1", 30.0)
    async with line.client() as polling, line.client() as asking, rpc.calling(address, address, None, 30.0) as rpcs:
        assert (await wire.get(line, "/readyz")).status == 200
        assert await rpcs.health("") == "SERVING"
        remoting_poll = asyncio.ensure_future(poll(polling, 100))
        grpc_poll = asyncio.ensure_future(receive(rpcs, 100))
        async with asyncio.timeout(30):
            while len(app.core.in_flight) < 2:
                await asyncio.sleep(0.02)
        stop.set()

        # First only health changes; clients are served as before.
        async def unready() -> bool:
            return (await wire.get(line, "/readyz")).status == 503

        await until(unready)
        assert "clients are being sent elsewhere" in (await wire.get(line, "/readyz")).reason
        assert (await wire.get(line, "/healthz")).status == 200
        assert await rpcs.health("") == "NOT_SERVING"
        assert (await wire.ask_route(line, "orders", NEW)).code == ResponseCode.SUCCESS
        assert (await rpcs.send("orders-nobody", b"m")).status.code != Code.OK
        assert not remoting_poll.done()
        assert not grpc_poll.done()

        # Then new connections are refused, and long polls return at once, long before their timeout.
        delayed.set()
        assert (await remoting_poll).code == ResponseCode.GO_AWAY
        assert await grpc_poll in ([Code.MESSAGE_NOT_FOUND], [])
        assert (await wire.ask_route(asking, "orders", NEW)).code == ResponseCode.GO_AWAY
        with pytest.raises(Unreachable):
            await wire.ask_route(line, "orders", NEW)
        # Without requests in flight the end does not wait for the deadline.
        async with asyncio.timeout(30):
            await serving


async def test_drain_ends_at_its_deadline(tmp_path: Path) -> None:
    """A waiting client that does not know GO_AWAY is disconnected at the end of drain_timeout."""
    app = App(
        Settings(
            listen=[{"address": "127.0.0.1:0"}],
            embedded={"directory": tmp_path, "sync": "os"},
            admin={"listen": "off"},
            drain_timeout=0.3,
        )
    )
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    async with asyncio.timeout(30):
        await ready.wait()
    create_topic(app, "orders")
    endpoint: HostPort = app.addresses[0]
    async with Target(endpoint, "", 30.0).opened() as opened:
        polling = asyncio.ensure_future(opened.exchange(b"", lambda _: False))
        stop.set()
        async with asyncio.timeout(30):
            await serving
        assert (await polling).received == b""
