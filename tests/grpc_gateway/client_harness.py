"""Telemetry, client lifecycle and server push together, without a transport."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.telemetry import Telemetry
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Settings
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest, HeartbeatResponse, TelemetryCommand
from remoting.tasks import spawn
from remoting.topic_group_config import GroupConfig
from tests.grpc_gateway.fakes import Aborted, FakeConnection, FakeContext, FakeCore, make_client
from tests.proxy.fakes import settle

LITE_GROUP = GroupConfig("g", lite_bind_topic="orders")


class ClientHarness:
    """The clients of a replica. `observed`: every (rpc, code) of telemetry."""

    def __init__(self, core: FakeCore | None = None, **options: Any) -> None:
        self.core = FakeCore() if core is None else core
        self.clients = ClientTable(make_client)
        self.options = GatewayOptions(**options)
        self.observed: list[tuple[str, int]] = []
        loop = asyncio.get_running_loop()
        self.renewal = Renewal(self.core, self.options, loop.time)
        self.clients.departure_listeners.append(self.renewal.client_departed)
        self.client_lifecycle = ClientLifecycle(self.core, self.clients, self.options)
        self.telemetry = Telemetry(
            self.core,
            self.clients,
            self.client_lifecycle,
            self.options,
            lambda name, rpc, request, code, started: self.observed.append((name, code)),
        )

    def context(self, client_id: str = "c1", language: str = "JAVA", **more: Any) -> FakeContext:
        """Return the context of an rpc with the client's metadata."""
        return FakeContext(x_mq_client_id=client_id, x_mq_language=language, x_mq_client_version="5.0.7", **more)

    def client(self, client_id: str = "c1", language: str = "JAVA") -> Client:
        """Return a client of the table."""
        return self.clients.rpc(self.context(client_id, language), "Heartbeat").client

    async def open_session(
        self, settings: Settings | None = None, client_id: str = "c1", language: str = "JAVA"
    ) -> "TelemetrySession":
        """Open a telemetry stream. With settings, send them and read the response."""
        session = TelemetrySession(self, self.context(client_id, language, connection=FakeConnection()))
        if settings is not None:
            session.send(TelemetryCommand(settings=settings))
            await session.read()
            await settle()
        return session

    async def heartbeat(self, request: HeartbeatRequest | None = None, client_id: str = "c1") -> HeartbeatResponse:
        """Send a heartbeat of a client."""
        rpc = self.clients.rpc(self.context(client_id), "Heartbeat")
        return await self.client_lifecycle.heartbeat(rpc, HeartbeatRequest() if request is None else request)

    async def rejection_code(self, request: HeartbeatRequest) -> int:
        """Send a heartbeat that is rejected; return the code of the rejection."""
        with pytest.raises(Refused) as refused:
            await self.heartbeat(request)
        return refused.value.code

    @property
    def command_codes(self) -> list[int]:
        """The request codes of all commands that the core has handled."""
        return [code for _, code, _, _ in self.core.handled]


class TelemetrySession:
    """The client's side of a telemetry stream."""

    def __init__(self, harness: ClientHarness, context: FakeContext) -> None:
        self.context = context
        self.received: asyncio.Queue[TelemetryCommand | None] = asyncio.Queue()
        self._sent: asyncio.Queue[TelemetryCommand | Exception | None] = asyncio.Queue()
        self.serving = spawn(self._serve(harness))

    async def _serve(self, harness: ClientHarness) -> None:
        try:
            async for command in harness.telemetry.stream(self._requests(), self.context):
                self.received.put_nowait(command)
        except Aborted:
            pass
        finally:
            self.received.put_nowait(None)

    async def _requests(self) -> AsyncIterator[TelemetryCommand]:
        while (command := await self._sent.get()) is not None:
            if isinstance(command, Exception):
                raise command
            yield command

    def send(self, command: TelemetryCommand | Exception) -> None:
        """Send a command; an exception is raised by the iterator of requests."""
        self._sent.put_nowait(command)

    def close(self) -> None:
        """Half-close the stream."""
        self._sent.put_nowait(None)

    async def read(self) -> TelemetryCommand | None:
        """Return the next command from the server; None at the end of the stream."""
        async with asyncio.timeout(30):
            return await self.received.get()

    async def read_command(self) -> TelemetryCommand:
        """Return the next command from the server, which must not be the end of the stream."""
        command = await self.read()
        assert command is not None
        return command

    async def disconnect(self) -> None:
        """Break the connection: the transport cancels the handler and calls its callbacks."""
        self.context.end()
        self.serving.cancel()
        await settle()
