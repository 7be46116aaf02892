"""Replicas on an embedded broker with their admin API, and clients of both protocols."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from proxy.app import App
from proxy.settings.loading import Sources
from proxy.settings.model import Settings
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.cluster.client import Client, create_topic
from tests.cluster.grpc.consumer import Consumer
from tests.grpc_gateway.messages import consumer_settings

READ, WRITE = "a-token-for-readers", "a-token-for-writers"
GROUP, PUSH_GROUP, PRODUCERS = "billing", "shipping", "shop"
UNIQUE_ID = "7F000001000018B4AAC2000000000001"
# Seconds.
_NEVER = 36_000.0


@dataclass
class Replica:
    """A replica under test: `read` has no token, `write` has one."""

    app: App
    read: httpx.AsyncClient
    write: httpx.AsyncClient

    @property
    def address(self) -> str:
        """The address of the clients' port."""
        return str(self.app.addresses[0])

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a GET that must succeed."""
        answer = await self.read.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None) -> Any:
        """Return the JSON of a POST that must succeed."""
        answer = await self.write.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def replica(directory: Path, sources: Sources | None = None, **more: Any) -> AsyncIterator[Replica]:
    """Run a replica on free ports; it drains at the end."""
    admin = {"listen": "127.0.0.1:0", "read_token": READ, "write_token": WRITE, **more.pop("admin", {})}
    settings = Settings(
        **{
            "listen": ["127.0.0.1:0"],
            "embedded": {"directory": directory},
            "drain_timeout": 0.2,
            **more,
            "admin": admin,
        }
    )
    app = App(settings, sources)
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    async with AsyncExitStack() as stack:

        async def end() -> None:
            stop.set()
            async with asyncio.timeout(30):
                await serving

        stack.push_async_callback(end)
        async with asyncio.timeout(30):
            await ready.wait()
        url = app.admin.url
        assert url is not None
        read = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30))
        headers = {"Authorization": f"Bearer {WRITE}"}
        write = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30, headers=headers))
        yield Replica(app, read, write)


@dataclass
class Stage:
    """A replica with a remoting consumer that is also a producer, and a gRPC consumer."""

    replica: Replica
    topic: str
    remoting: Client
    grpc: Consumer
    message_id: str


@asynccontextmanager
async def stage(directory: Path, **more: Any) -> AsyncIterator[Stage]:
    """Run a replica with clients, messages, a dead letter and a delivery in progress.

    Its clients send no more heartbeats, and a module of tests may take longer than the 90 s after which silent clients
    expire. Therefore the sweeps for expired clients do not run.
    """
    more = {"limits": {"idle_timeout": 2 * _NEVER}, **more}
    async with AsyncExitStack() as stack:
        patches = stack.enter_context(pytest.MonkeyPatch.context())
        patches.setattr("proxy.frontends.remoting_frontend._SWEEP_INTERVAL", _NEVER)
        patches.setattr("proxy.frontends.grpc_frontend._SWEEP_INTERVAL", _NEVER)
        replica_ = await stack.enter_async_context(replica(directory, **more))
        topic = await create_topic(replica_.address, "orders", 2)
        remoting = await stack.enter_async_context(Client(replica_.address, "192.0.2.7@4711"))
        remoting.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda command: _running_info(command, topic)
        remoting.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = _consumed
        await remoting.route(topic)
        await remoting.heartbeat({GROUP: [topic]}, [PRODUCERS])
        sent = await remoting.send(topic, b"secret body", {"UNIQ_KEY": UNIQUE_ID, "KEYS": "secret-key", "TAGS": "A"})
        (stored,) = await remoting.pull(topic, GROUP)
        await remoting.get(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            remoting.named(
                {"offset": stored.commit_log_offset, "group": GROUP, "delayLevel": -1, "originTopic": topic}
            ),
        )
        grpc = await stack.enter_async_context(Consumer(replica_.address, PUSH_GROUP, topic, "grpc@1"))
        telemetry = grpc.stub.Telemetry(metadata=grpc.metadata)
        stack.callback(telemetry.cancel)
        await telemetry.write(TelemetryCommand(settings=consumer_settings(PUSH_GROUP, [topic])))
        await eventually_a_member(replica_.app, PUSH_GROUP)
        # Kept invisible, because its consumer does not acknowledge it.
        (_,) = await grpc.receive_all(1, auto_renew=True)
        yield Stage(replica_, topic, remoting, grpc, sent.fields["msgId"])


async def eventually_a_member(app: App, group: str) -> None:
    """Wait until a consumer group has a member."""
    async with asyncio.timeout(30):
        while not app.registry.consumer_ids(group):
            await asyncio.sleep(0.01)


def _running_info(command: RemotingCommand, topic: str) -> RemotingCommand:
    """Return a ConsumerRunningInfo as Java clients write it, with objects for keys."""
    queue = orjson.dumps({"brokerName": "broker-a", "queueId": 1, "topic": topic})
    rest = {
        "properties": {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        "subscriptionSet": [{"topic": topic}],
        "statusTable": {
            topic: {"consumeRT": 1.5, "consumeOKTPS": 2.0, "consumeFailedTPS": 0.0, "consumeFailedMsgs": 3}
        },
    }
    if command.fields.get("jstackEnable") == "true":
        rest["jstack"] = "main at work"
    return commands.success(body=b'{"mqTable":{' + queue + b':{"commitOffset":1}},' + orjson.dumps(rest)[1:])


def _consumed(command: RemotingCommand) -> RemotingCommand:
    body = {"consumeResult": "CR_SUCCESS", "remark": None, "spentTimeMills": 7, "order": False, "autoCommit": True}
    return commands.success(body=orjson.dumps(body))


def unique_id(text: str) -> str | None:
    """Return the unique id in a message's properties."""
    return properties.get(text, properties.UNIQ_CLIENT_MESSAGE_ID)
