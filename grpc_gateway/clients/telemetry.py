"""Telemetry: exchange of settings, and the streams by which commands are pushed to clients."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import grpc

from grpc_gateway.clients import lite_groups
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_settings import (
    MAX_CONNECTION_SETTINGS_BYTES,
    PRODUCERS,
    check_settings,
    client_type_of,
    effective_settings,
)
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.rpc import Observer, Rpc, anonymous_rpc
from grpc_gateway.clients.server_push import reply_nonce, request_nonce
from grpc_gateway.clients.telemetry_stream import TelemetryStream
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.name_mapping import NameMapping, UnmappedName
from grpc_gateway.permissions import Guard, Unauthorized, settings_permissions
from grpc_gateway.response_status import OK, Refused, status_from_error
from protos.apache.rocketmq.v2.definition_pb2 import Code, Language, Settings
from protos.apache.rocketmq.v2.service_pb2 import ReconnectEndpointsCommand, TelemetryCommand
from remoting.errors import ConsumerNotOnline, RemotingError
from remoting.tasks import spawn
from remoting.topic_group_config import GroupConfig

# Seconds to wait for a group's configuration before the client gets its first settings without it. Clients time out
# after 3 s.
_CONFIG_TIMEOUT = 1.0
# Clients that get the status of rejected settings on the stream: the Node client would reopen a stream that ends every
# second and wait for settings forever, and the C# client never opens another one. For all others the stream ends with
# an error, since they fail to start at once with its text, and wait forever or until a timeout otherwise.
_REJECTED_ON_STREAM = frozenset({Language.NODE_JS, Language.DOT_NET})
# Languages whose clients support ReconnectEndpointsCommand.
_RECONNECTING = frozenset({"JAVA", "GO", "GOLANG", "HTTP", "NODE_JS"})


class Telemetry:
    """All telemetry streams. `observe` is called as the rpc "Telemetry" for each settings command answered."""

    def __init__(
        self,
        core: Core,
        clients: ClientTable,
        client_lifecycle: ClientLifecycle,
        options: GatewayOptions,
        observe: Observer,
        guard: Guard | None = None,
    ) -> None:
        self._guard = guard
        self._core = core
        self._clients = clients
        self._client_lifecycle = client_lifecycle
        self._options = options
        self._observe = observe
        # Open streams.
        self.streams: dict[TelemetryStream, Client] = {}
        core.on_group_changed(self.group_changed)

    async def stream(
        self, requests: AsyncIterator[TelemetryCommand], context: Any
    ) -> AsyncGenerator[TelemetryCommand, None]:
        """Yield the commands for one client until either side ends the stream."""
        try:
            rpc = self._clients.rpc(context, "Telemetry")
        except Refused as error:
            self._observe("Telemetry", anonymous_rpc(context), None, error.code, time.monotonic())
            if isinstance(error, Unauthorized):
                await asyncio.sleep(error.delay)
                await context.abort(_grpc_code(error.code), f"{Code.Name(error.code)}: {error}")
            yield TelemetryCommand(status=status_from_error(error))
            return
        stream = TelemetryStream(rpc.client.principal)
        self.streams[stream] = rpc.client
        ended = partial(self._ended, rpc.client, stream)
        # If the client disconnects during a write, the transport does not resume this generator.
        context.add_done_callback(ended)
        reading = spawn(self._read(rpc, stream, requests))
        try:
            name_mapping = rpc.client.name_mapping
            while (command := await stream.next()) is not None:
                if name_mapping is None or _map_names(name_mapping, stream, command):
                    yield command
            if stream.failure is not None:
                code, text = stream.failure
                await context.abort(_grpc_code(code), f"{Code.Name(code)}: {text}")
        finally:
            reading.cancel()
            ended()

    def _ended(self, client: Client, stream: TelemetryStream, _: Any = None) -> None:
        stream.end()
        client.detach(stream)
        self.streams.pop(stream, None)

    # Commands from the client.

    async def _read(self, rpc: Rpc, stream: TelemetryStream, requests: AsyncIterator[TelemetryCommand]) -> None:
        try:
            async for command in requests:
                rpc.client.last_call_at = asyncio.get_running_loop().time()
                if command.WhichOneof("command") == "settings":
                    await self._receive_settings(rpc, stream, command.settings)
                elif (nonce := reply_nonce(command)) is not None:
                    stream.receive_reply(nonce, command)
        except Exception as error:
            stream.fail(Code.INTERNAL_SERVER_ERROR, type(error).__name__)
        finally:
            stream.end()

    async def _receive_settings(self, rpc: Rpc, stream: TelemetryStream, settings: Settings) -> None:
        """Store a client's settings and answer with the effective ones."""
        client = rpc.client
        started = time.monotonic()
        try:
            if client.name_mapping is not None:
                client.name_mapping.map_request(settings)
            check_settings(settings)
            self._check_size(rpc, settings)
            self._authorize(rpc, settings)
            config = await self._checked_group(settings)
        except Refused as error:
            self._observe("Telemetry", rpc, None, error.code, started)
            self._reject_settings(client, stream, settings, error)
            return
        if client.closed:
            # The client has terminated before.
            stream.end()
            return
        if client.settings != settings:
            client.settings, client.settings_bytes = settings, settings.ByteSize()
            client.revise()
        client.client_type = client_type_of(settings)
        client.attach(stream)
        self._send_settings(client, stream, config)
        self._client_lifecycle.settings_changed(client)
        self._observe("Telemetry", rpc, None, Code.OK, started)

    def _check_size(self, rpc: Rpc, settings: Settings) -> None:
        """Limit the settings of all clients of a connection. Raises Refused."""
        others = self._clients.settings_bytes(getattr(rpc.context, "connection", None)) - rpc.client.settings_bytes
        size = others + settings.ByteSize()
        if size > MAX_CONNECTION_SETTINGS_BYTES:
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"the settings of this connection's clients have {size} bytes;"
                f" the maximum is {MAX_CONNECTION_SETTINGS_BYTES}",
            )

    def _authorize(self, rpc: Rpc, settings: Settings) -> None:
        """Check the permissions on the settings' topics and group. Raises Refused."""
        if self._guard is not None:
            try:
                self._guard.require(rpc.client.principal, settings_permissions(settings), rpc.peer, "Telemetry")
            except RemotingError as error:
                raise Refused(Code.FORBIDDEN, str(error)) from None

    def _reject_settings(self, client: Client, stream: TelemetryStream, settings: Settings, error: Refused) -> None:
        # A client with valid settings keeps using them.
        answer = TelemetryCommand(status=status_from_error(error))
        if client.settings is not None or settings.user_agent.language in _REJECTED_ON_STREAM:
            stream.write(answer)
        else:
            if client.name_mapping is not None:
                client.name_mapping.map_response(answer)
            stream.fail(error.code, answer.status.message)

    # Settings to the client.

    async def _checked_group(self, settings: Settings) -> GroupConfig | None:
        """Return the configuration of the group in a consumer's settings; None for a producer, and on a time-out.

        Raises Refused if the client may not be a member of the group.
        """
        if client_type_of(settings) in PRODUCERS:
            return None
        config = await self._group_config(settings.subscription.group.name)
        if config is not None:
            _check_member(settings, config)
        return config

    async def _group_config(self, group: str) -> GroupConfig | None:
        """Return a group's configuration; None on a time-out, after which members get it when it is loaded."""
        cached = self._core.cached_group(group)
        if cached is not None:
            return cached
        loading = spawn(self._core.group(group))
        await asyncio.wait((loading,), timeout=_CONFIG_TIMEOUT)
        if loading.done():
            return loading.result()
        loading.add_done_callback(self._group_loaded)
        return None

    def _group_loaded(self, loading: "asyncio.Task[GroupConfig]") -> None:
        if not loading.cancelled() and loading.exception() is None:
            self.group_changed(loading.result())

    def group_changed(self, config: GroupConfig) -> None:
        """Send the members of a group their settings with its new configuration, or the error that they have now."""
        for client in self._clients:
            settings, stream = client.settings, client.stream
            if settings is None or stream is None or settings.subscription.group.name != config.name:
                continue
            try:
                _check_member(settings, config)
            except Refused as error:
                self._reject_settings(client, stream, settings, error)
            else:
                self._send_settings(client, stream, config)

    def _send_settings(self, client: Client, stream: TelemetryStream, config: GroupConfig | None) -> None:
        assert client.settings is not None
        settings = effective_settings(client.settings, config, self._options)
        stream.write(TelemetryCommand(status=OK, settings=settings))

    # Drain of the replica.

    def drain(self) -> None:
        """Ask clients that support it to reconnect elsewhere, and end all streams."""
        for stream, client in list(self.streams.items()):
            if client.language.upper() in _RECONNECTING:
                stream.write(_RECONNECT)
            stream.end()


def _check_member(settings: Settings, group: GroupConfig) -> None:
    """Check that a consumer with these settings may be a member of its group. Raises Refused."""
    topics = [entry.topic.name for entry in settings.subscription.subscriptions]
    lite_groups.check_consumer(settings.client_type, topics, group)


_RECONNECT = TelemetryCommand(status=OK, reconnect_endpoints_command=ReconnectEndpointsCommand(nonce="drain"))


def _map_names(names: NameMapping, stream: TelemetryStream, command: TelemetryCommand) -> bool:
    """Map the names in a command, and return whether the client may get it. If not, its request fails."""
    try:
        names.map_response(command)
    except UnmappedName:
        nonce = request_nonce(command)
        if nonce is not None:
            error = ConsumerNotOnline("the request names topics or groups outside the client's namespace")
            stream.fail_request(nonce, error)
        return False
    return True


def _grpc_code(code: Code) -> grpc.StatusCode:
    if code == Code.TOO_MANY_REQUESTS:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if code == Code.UNAUTHORIZED:
        return grpc.StatusCode.UNAUTHENTICATED
    if code == Code.FORBIDDEN:
        return grpc.StatusCode.PERMISSION_DENIED
    # Codes 4xxxx are client errors.
    return grpc.StatusCode.INVALID_ARGUMENT if code // 10_000 == 4 else grpc.StatusCode.INTERNAL
