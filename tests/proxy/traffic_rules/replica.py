"""A replica with traffic rules and an embedded broker, and clients for it."""

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
from proxy.traffic_rules.effects import RuleCounts
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.cluster.client import Client, ok, send_fields, strings, unique, v2
from tests.cluster.grpc.consumer import Consumer
from tests.proxy.replica import running


class Replica:
    """A running replica and its rules file."""

    def __init__(self, app: App, file: Path) -> None:
        self.app = app
        self.file = file

    def address(self, number: int = 0) -> str:
        """Return the address of a listener."""
        return f"127.0.0.1:{self.app.addresses[number].port}"

    def remoting(self, number: int = 0, **more: Any) -> Client:
        """Return a remoting client of a listener."""
        return Client(self.address(number), **more)

    def grpc(self, topic: str, group: str = "g", number: int = 0, client_id: str = "") -> Consumer:
        """Return a gRPC client of a listener."""
        return Consumer(self.address(number), group, topic, client_id)

    def counts(self, rule: str) -> RuleCounts:
        """Return the counts of a rule."""
        return next(active.counts for active in self.app.rules.active if active.name == rule)

    async def create(self, *topics: str, queues: int = 1, kind: str = "NORMAL") -> None:
        """Create topics, by their broker-side names, with the message type that gRPC clients require."""
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
        """Replace the rules file and reload it."""
        write(self.file, text)
        await self.app.rules.reload()

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a time series."""
        for family in self.app.metrics.collect():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        raise AssertionError(f"no series {name}{labels}")


def write(file: Path, text: str) -> None:
    """Replace the file atomically, by a rename."""
    temporary = file.with_suffix(".new")
    temporary.write_text(textwrap.dedent(text))
    os.replace(temporary, file)


@asynccontextmanager
async def run_replica(directory: Path, text: str, interval: float = 3600, **more: Any) -> AsyncIterator[Replica]:
    """Run a replica with these rules until the block ends. `interval` is the reload interval in seconds."""
    file = directory / "rules.toml"
    write(file, text)
    more.setdefault("listen", [{"address": "127.0.0.1:0", "name": "main"}])
    more.setdefault("admin", {"listen": "off"})
    more["rules"] = {"file": file, "reload_interval": interval}
    broker = {"directory": directory / "store", "sync": "os", **more.pop("embedded", {})}
    async with running(Settings(embedded=broker, drain_timeout=0.2, **more)) as app:
        yield Replica(app, file)


async def send(
    client: Client, topic: str, body: bytes = b"x", pairs: Mapping[str, str] | None = None
) -> RemotingCommand:
    """Send a message by SEND_MESSAGE_V2 and return the reply."""
    fields = client.named(send_fields(topic, properties.encode(pairs or {})))
    return await client.ask(RequestCode.SEND_MESSAGE_V2, v2(fields), body)


async def grpc_send(client: Consumer, *bodies: bytes, topic: str = "") -> Any:
    """Send messages by SendMessage and return the response."""
    resource = d.Resource(name=topic) if topic else client.topic
    messages = [
        d.Message(topic=resource, body=body, system_properties=d.SystemProperties(message_id=unique("01")))
        for body in bodies
    ]
    return await client.call("SendMessage", pb.SendMessageRequest(messages=messages))


async def until(condition: Callable[[], Any], description: str = "the condition") -> None:
    """Wait up to 30 s for a condition."""
    try:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"timed out waiting for {description}") from None
