"""Telemetry: settings both ways, and what a client is told and asked by its stream."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import grpc

from grpc_gateway.call import Call, Observer, stranger
from grpc_gateway.clients import settings as client_settings
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_table import Clients
from grpc_gateway.clients.server_push import answer_of
from grpc_gateway.clients.settings import PRODUCERS, check
from grpc_gateway.clients.telemetry_stream import Stream
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, of_error
from protos.apache.rocketmq.v2.definition_pb2 import Code, Language, Settings
from protos.apache.rocketmq.v2.service_pb2 import ReconnectEndpointsCommand, TelemetryCommand
from remoting.tasks import spawn
from remoting.topic_group_config import GroupConfig

# Clients wait 3 s for their first settings; a group's configuration that takes longer is sent later, in seconds.
_TIMEOUT = 1.0
# These have to be told of settings that cannot be without the stream's end: the Node client would open it again every
# second, and wait for settings for ever; the C# client never opens another one. The others wait for ever, or until
# some time is up, unless the stream ends by an error: then their start fails at once, with what it says.
_TOLD = frozenset({Language.NODE_JS, Language.DOT_NET})
# These know ReconnectEndpointsCommand.
_RECONNECTING = frozenset({"JAVA", "GO", "GOLANG", "HTTP", "NODE_JS"})


class Telemetry:
    """All telemetry streams. `observe` is called for each settings that were answered, as the rpc "Telemetry"."""

    def __init__(
        self,
        core: Core,
        clients: Clients,
        presence: ClientLifecycle,
        options: Options,
        observe: Observer,
    ) -> None:
        self._core = core
        self._clients = clients
        self._presence = presence
        self._options = options
        self._observe = observe
        # Those that are open.
        self.streams: dict[Stream, Client] = {}
        core.on_group_changed(self.group_changed)

    async def stream(
        self, requests: AsyncIterator[TelemetryCommand], context: Any
    ) -> AsyncGenerator[TelemetryCommand, None]:
        """What one client is told, until one side ends it. Whichever way it ends, that is noticed at once."""
        try:
            call = self._clients.call(context, "Telemetry")
        except Refused as error:
            self._observe("Telemetry", stranger(context), None, error.code, time.monotonic())
            yield TelemetryCommand(status=of_error(error))
            return
        stream = Stream()
        self.streams[stream] = call.client
        ended = partial(self._ended, call.client, stream)
        # A client may be gone while we write to it: then nobody would ask this generator for more.
        context.add_done_callback(ended)
        reading = spawn(self._read(call, stream, requests))
        try:
            names = call.client.names
            while (command := await stream.next()) is not None:
                if names is not None:
                    names.outward(command)
                yield command
            if stream.failure is not None:
                code, text = stream.failure
                await context.abort(_grpc_code(code), f"{Code.Name(code)}: {text}")
        finally:
            reading.cancel()
            ended()

    def _ended(self, client: Client, stream: Stream, _: Any = None) -> None:
        stream.end()
        client.detach(stream)
        self.streams.pop(stream, None)

    # What the client says.

    async def _read(self, call: Call, stream: Stream, requests: AsyncIterator[TelemetryCommand]) -> None:
        try:
            async for command in requests:
                call.client.seen = asyncio.get_running_loop().time()
                if command.WhichOneof("command") == "settings":
                    await self._settle(call, stream, command.settings)
                elif (nonce := answer_of(command)) is not None:
                    stream.answered(nonce, command)
        except Exception as error:
            stream.fail(Code.INTERNAL_SERVER_ERROR, type(error).__name__)
        finally:
            stream.end()

    async def _settle(self, call: Call, stream: Stream, settings: Settings) -> None:
        """Take a client's settings and answer with what it shall go by."""
        client = call.client
        started = time.monotonic()
        try:
            if client.names is not None:
                client.names.inward(settings)
            check(settings)
        except Refused as error:
            self._observe("Telemetry", call, None, error.code, started)
            self._refuse(client, stream, settings, error)
            return
        if client.closed:
            # It said goodbye before.
            stream.end()
            return
        if client.settings != settings:
            client.settings = settings
            client.revise()
        client.kind = settings.client_type
        client.attach(stream)
        config = None if settings.client_type in PRODUCERS else await self._group(client)
        self._tell(client, stream, config)
        self._presence.settled(client)
        self._observe("Telemetry", call, None, Code.OK, started)

    def _refuse(self, client: Client, stream: Stream, settings: Settings, error: Refused) -> None:
        # A client that is under way goes on with what it has.
        if client.settings is not None or settings.user_agent.language in _TOLD:
            stream.write(TelemetryCommand(status=of_error(error)))
        else:
            stream.fail(error.code, str(error))

    async def _group(self, client: Client) -> GroupConfig | None:
        """The configuration of the client's group; None where that takes too long: then it is told later."""
        assert client.settings is not None
        group = client.settings.subscription.group.name
        known = self._core.cached_group(group)
        if known is not None:
            return known
        loading = spawn(self._core.group(group))
        await asyncio.wait((loading,), timeout=_TIMEOUT)
        if loading.done():
            return loading.result()
        loading.add_done_callback(self._loaded)
        return None

    def _loaded(self, loading: "asyncio.Task[GroupConfig]") -> None:
        if not loading.cancelled() and loading.exception() is None:
            self.group_changed(loading.result())

    def group_changed(self, config: GroupConfig) -> None:
        """A group's configuration is another than its members were told."""
        for client in self._clients:
            settings, stream = client.settings, client.stream
            if settings is not None and stream is not None and settings.subscription.group.name == config.name:
                self._tell(client, stream, config)

    def _tell(self, client: Client, stream: Stream, config: GroupConfig | None) -> None:
        assert client.settings is not None
        told = client_settings.merged(client.settings, config, self._options)
        stream.write(TelemetryCommand(status=OK, settings=told))

    # The replica's end.

    def drain(self) -> None:
        """Tell the clients that know how to come back elsewhere, and end the streams of all."""
        for stream, client in list(self.streams.items()):
            if client.language.upper() in _RECONNECTING:
                stream.write(_RECONNECT)
            stream.end()


_RECONNECT = TelemetryCommand(status=OK, reconnect_endpoints_command=ReconnectEndpointsCommand(nonce="drain"))


def _grpc_code(code: Code) -> grpc.StatusCode:
    if code == Code.TOO_MANY_REQUESTS:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    # 4xxxx are the client's mistakes.
    return grpc.StatusCode.INVALID_ARGUMENT if code // 10_000 == 4 else grpc.StatusCode.INTERNAL
