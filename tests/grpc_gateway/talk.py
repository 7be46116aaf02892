"""Telemetry, presence and pushes together, without a transport."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.telemetry import Telemetry
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from protos.apache.rocketmq.v2.definition_pb2 import Settings
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest, HeartbeatResponse, TelemetryCommand
from remoting.tasks import spawn
from tests.grpc_gateway.kit import Aborted, FakeConnection, FakeContext, FakeCore, make_client
from tests.proxy.fakes import settle


class Stage:
    """A replica's clients; `observed` is every (rpc, code) of telemetry."""

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
            lambda name, call, request, code, started: self.observed.append((name, code)),
        )

    def context(self, client_id: str = "c1", language: str = "JAVA", **more: Any) -> FakeContext:
        return FakeContext(x_mq_client_id=client_id, x_mq_language=language, x_mq_client_version="5.0.7", **more)

    def client(self, client_id: str = "c1", language: str = "JAVA") -> Client:
        return self.clients.rpc(self.context(client_id, language), "Heartbeat").client

    async def talk(self, settings: Settings | None = None, client_id: str = "c1", language: str = "JAVA") -> "Talk":
        """A telemetry stream; with settings, behind their answer."""
        talk = Talk(self, self.context(client_id, language, connection=FakeConnection()))
        if settings is not None:
            talk.send(TelemetryCommand(settings=settings))
            await talk.read()
            await settle()
        return talk

    async def beat(self, request: HeartbeatRequest | None = None, client_id: str = "c1") -> HeartbeatResponse:
        call = self.clients.rpc(self.context(client_id), "Heartbeat")
        return await self.client_lifecycle.heartbeat(call, HeartbeatRequest() if request is None else request)

    @property
    def codes(self) -> list[int]:
        """The commands that reached the core."""
        return [code for _, code, _, _ in self.core.handled]


class Talk:
    """One telemetry stream as its client sees it."""

    def __init__(self, stage: Stage, context: FakeContext) -> None:
        self.context = context
        self.got: asyncio.Queue[TelemetryCommand | None] = asyncio.Queue()
        self._sent: asyncio.Queue[TelemetryCommand | Exception | None] = asyncio.Queue()
        self.serving = spawn(self._serve(stage))

    async def _serve(self, stage: Stage) -> None:
        try:
            async for command in stage.telemetry.stream(self._requests(), self.context):
                self.got.put_nowait(command)
        except Aborted:
            pass
        finally:
            self.got.put_nowait(None)

    async def _requests(self) -> AsyncIterator[TelemetryCommand]:
        while (command := await self._sent.get()) is not None:
            if isinstance(command, Exception):
                raise command
            yield command

    def send(self, command: TelemetryCommand | Exception) -> None:
        self._sent.put_nowait(command)

    def close(self) -> None:
        """Say that nothing more comes."""
        self._sent.put_nowait(None)

    async def read(self) -> TelemetryCommand | None:
        """What comes next; None at the end."""
        async with asyncio.timeout(30):
            return await self.got.get()

    async def told(self) -> TelemetryCommand:
        """What comes next, which is not the end."""
        command = await self.read()
        assert command is not None
        return command

    async def broken(self) -> None:
        """The connection breaks: the transport cancels the handler and tells who wants to know."""
        self.context.end()
        self.serving.cancel()
        await settle()
