"""A telemetry stream of a raw gRPC client."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc.aio

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from tests.cluster import coverage
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.servers import eventually


def settings(client: Consumer, client_type: d.ClientType) -> Any:
    """Return the settings of a client of its topic and group."""
    found = d.Settings(client_type=client_type)
    if client_type == d.PRODUCER:
        found.publishing.topics.append(client.topic)
        return found
    found.subscription.group.CopyFrom(client.group)
    found.subscription.subscriptions.add(topic=client.topic, expression=d.FilterExpression(expression="*"))
    return found


class Telemetry:
    """The telemetry stream of a client, an async context manager; it has the server's settings when it is entered.

    answers: replies to the commands of the server, by the name of the command.
    """

    def __init__(self, client: Consumer, client_type: d.ClientType = d.PUSH_CONSUMER) -> None:
        self._client = client
        self._settings = settings(client, client_type)
        self.commands: list[Any] = []
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self._call: Any = None
        self._reading: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._call = self._client.stub.Telemetry(metadata=self._client.metadata)
        self._saw("")
        await self._write(pb.TelemetryCommand(settings=self._settings))
        self._reading = asyncio.ensure_future(self._read())
        await self.wait("settings")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        await asyncio.wait((self._reading,))

    @property
    def ended(self) -> bool:
        """Whether the server has ended the stream."""
        return self._reading.done()

    async def wait(self, name: str) -> Any:
        """Return the first command of this name."""
        await eventually(lambda: self._named(name), name)
        return getattr(self._named(name)[0], name)

    def _named(self, name: str) -> list[Any]:
        return [command for command in self.commands if command.WhichOneof("command") == name]

    async def _write(self, command: Any) -> None:
        self._saw(f".{command.WhichOneof('command')}")
        await self._call.write(command)

    async def _read(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for command in self._call:
                name = command.WhichOneof("command")
                self._saw(f".{name}")
                self.commands.append(command)
                if name in self.answers:
                    await self._write(self.answers[name](getattr(command, name)))

    def _saw(self, suffix: str) -> None:
        coverage.saw(self._client.address, f"Telemetry{suffix}")
