"""A whole replica on an embedded broker of its own, with traffic rules."""

import asyncio
import os
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from proxy.app import App
from proxy.settings.model import Settings
from proxy.traffic_rules.effects import Counts
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.cluster.client import Client, ok, send_fields, strings, unique, v2
from tests.cluster.grpc.kit import Consumer


class Replica:
    """The replica, its rules file, and where it listens."""

    def __init__(self, app: App, file: Path) -> None:
        self.app = app
        self.file = file

    def address(self, number: int = 0) -> str:
        """Of a listener."""
        return f"127.0.0.1:{self.app.addresses[number].port}"

    def remoting(self, number: int = 0, **more: Any) -> Client:
        """A remoting client."""
        return Client(self.address(number), **more)

    def grpc(self, topic: str, group: str = "g", number: int = 0, client_id: str = "") -> Consumer:
        """A gRPC client."""
        return Consumer(self.address(number), group, topic, client_id)

    def counts(self, rule: str) -> Counts:
        """What a rule has counted."""
        return next(active.counts for active in self.app.rules.active if active.name == rule)

    async def create(self, *topics: str, queues: int = 1, kind: str = "NORMAL") -> None:
        """Create topics, by the brokers' names, as gRPC clients need them."""
        fields = {
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "attributes": f"+message.type={kind}",
        }
        for topic in topics:
            command = commands.request(RequestCode.UPDATE_AND_CREATE_TOPIC, strings({**fields, "topic": topic}))
            ok(await self.app.backend.request("broker-a", REQUESTS[command.code], command, 5, None))

    async def apply(self, text: str) -> None:
        """Let other rules be in force."""
        write(self.file, text)
        await self.app.rules.reload()

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series."""
        for family in self.app.metrics.collect():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        raise AssertionError(f"no series {name}{labels}")


def write(file: Path, text: str) -> None:
    """Write the file, by a rename as careful editors do."""
    other = file.with_suffix(".new")
    other.write_text(textwrap.dedent(text))
    os.replace(other, file)


@asynccontextmanager
async def replica(directory: Path, text: str, interval: float = 3600, **more: Any) -> AsyncIterator[Replica]:
    """Serve by these rules until the block ends. interval: seconds between looks at the file."""
    file = directory / "rules.toml"
    write(file, text)
    more.setdefault("listen", [{"address": "127.0.0.1:0", "name": "main"}])
    more.setdefault("admin", {"listen": "off"})
    more["rules"] = {"file": file, "reload_interval": interval}
    broker = {"directory": directory / "store", "sync": "os", **more.pop("embedded", {})}
    app = App(Settings(embedded=broker, drain_timeout=0.2, **more))
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    try:
        async with asyncio.timeout(30):
            done, _ = await asyncio.wait(
                (serving, asyncio.ensure_future(ready.wait())), return_when=asyncio.FIRST_COMPLETED
            )
            assert serving not in done, serving.exception()
        yield Replica(app, file)
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await serving


async def send(
    client: Client, topic: str, body: bytes = b"x", pairs: Mapping[str, str] | None = None
) -> RemotingCommand:
    """What SEND_MESSAGE_V2 is answered."""
    fields = client.named(send_fields(topic, properties.encode(pairs or {})))
    return await client.ask(RequestCode.SEND_MESSAGE_V2, v2(fields), body)


async def grpc_send(client: Consumer, *bodies: bytes, topic: str = "") -> Any:
    """What SendMessage is answered."""
    resource = d.Resource(name=topic) if topic else client.topic
    messages = [
        d.Message(topic=resource, body=body, system_properties=d.SystemProperties(message_id=unique("01")))
        for body in bodies
    ]
    return await client.call("SendMessage", pb.SendMessageRequest(messages=messages))


async def until(condition: Callable[[], Any], what: str = "it") -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen") from None
