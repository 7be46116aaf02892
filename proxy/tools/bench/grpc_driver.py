"""The load generator's connections over gRPC."""

import argparse
import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.endpoints import endpoints_of
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2 import definition_pb2 as definition
from protos.apache.rocketmq.v2 import service_pb2 as service
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.tools.bench.drivers import STAMP, Delivery, Driver, Fault
from proxy.tools.cli.client import CommandError, UsageError, read_target
from proxy.tools.credentials import rpc_metadata
from remoting.signature import Credentials

_BATCH = 32
# Seconds between heartbeats, as of official clients.
_HEARTBEAT_INTERVAL = 10.0
# Otherwise grpcio shares connections between channels, and uses the environment's http_proxy.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_NORMAL = definition.MessageType.NORMAL
_CLIENT_TYPES = {
    "send": definition.ClientType.PRODUCER,
    "receive": definition.ClientType.SIMPLE_CONSUMER,
}


class _GrpcDriver:
    """One client: a channel, its telemetry stream and its heartbeats. role: send or receive."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        endpoint: HostPort,
        options: argparse.Namespace,
        role: str,
        credentials: Credentials | None,
    ) -> None:
        self.sources: tuple[str, ...] = ()
        self._stub = MessagingServiceStub(channel)
        self._endpoints = endpoints_of(endpoint)
        self._topic = definition.Resource(name=options.topic)
        self._group = definition.Resource(name=options.group)
        self._invisible = _duration(options.invisible)
        self._timeout: float = options.timeout
        self._endpoint: str = options.endpoint
        self._type = _CLIENT_TYPES[role]
        self._credentials = credentials
        self._metadata = (
            ("x-mq-client-id", f"gantry-bench@{os.getpid()}@{uuid.uuid4().hex[:8]}"),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.0.0"),
            ("x-mq-protocol", "v2"),
        )

    async def open(self) -> None:
        """Look up the route. Raises CommandError."""
        request = service.QueryRouteRequest(topic=self._topic, endpoints=self._endpoints)
        try:
            route = await self._stub.QueryRoute(request, timeout=self._timeout, metadata=self._signed())
        except grpc.aio.AioRpcError as error:
            raise CommandError(f"cannot connect to {self._endpoint}: {_text(error)}") from None
        if route.status.code == Code.TOPIC_NOT_FOUND:
            raise CommandError(
                f"there is no topic {self._topic.name}; `gantry topics` lists them, `gantry topics create` makes one"
            )
        if route.status.code != Code.OK:
            raise CommandError(f"{self._endpoint}: {route.status.message}")
        self.sources = tuple(sorted({queue.broker.name for queue in route.message_queues}))

    async def keep(self) -> None:
        """Keep the telemetry stream open and send heartbeats until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_telemetry())
            tasks.create_task(self._send_heartbeats())

    async def _keep_telemetry(self) -> None:
        while True:
            # A replica that goes away ends the stream; the channel connects again.
            with suppress(grpc.aio.AioRpcError):
                call = self._stub.Telemetry(metadata=self._signed())
                await call.write(service.TelemetryCommand(settings=self._settings()))
                async for _ in call:
                    pass
            await asyncio.sleep(1.0)

    async def _send_heartbeats(self) -> None:
        while True:
            with suppress(grpc.aio.AioRpcError):
                await self._stub.Heartbeat(self._heartbeat(), timeout=self._timeout, metadata=self._signed())
            await asyncio.sleep(_HEARTBEAT_INTERVAL)

    async def leave(self) -> None:
        """Call NotifyClientTermination, if the server is still there."""
        request = service.NotifyClientTerminationRequest(group=self._group)
        with suppress(grpc.aio.AioRpcError):
            await self._stub.NotifyClientTermination(request, timeout=self._timeout, metadata=self._signed())

    async def send(self, body: bytes, stamp: str, turn: int) -> None:
        # The server chooses the queue.
        born = Timestamp()
        born.GetCurrentTime()
        system = definition.SystemProperties(
            message_id=uuid.uuid4().hex.upper(),
            message_type=_NORMAL,
            body_encoding=definition.Encoding.IDENTITY,
            born_timestamp=born,
        )
        message = definition.Message(
            topic=self._topic, system_properties=system, user_properties={STAMP: stamp}, body=body
        )
        try:
            answer = await self._stub.SendMessage(
                service.SendMessageRequest(messages=[message]), timeout=self._timeout, metadata=self._signed()
            )
        except grpc.aio.AioRpcError as error:
            raise Fault(_text(error)) from None
        _check(answer.status)

    async def receive(self, source: str, wait: float) -> list[Delivery]:
        queue = definition.MessageQueue(topic=self._topic, id=-1, broker=definition.Broker(name=source))
        request = service.ReceiveMessageRequest(
            group=self._group,
            message_queue=queue,
            filter_expression=definition.FilterExpression(type=definition.FilterType.TAG, expression="*"),
            batch_size=_BATCH,
            invisible_duration=self._invisible,
            long_polling_timeout=_duration(wait),
        )
        found = []
        try:
            call = self._stub.ReceiveMessage(request, timeout=self._timeout + wait, metadata=self._signed())
            async for part in call:
                kind = part.WhichOneof("content")
                if kind == "message":
                    message = part.message
                    found.append(Delivery(message.user_properties.get(STAMP, ""), len(message.body), message))
                elif kind == "status" and part.status.code != Code.MESSAGE_NOT_FOUND:
                    _check(part.status)
        except grpc.aio.AioRpcError as error:
            raise Fault(_text(error)) from None
        return found

    async def acknowledge(self, source: str, delivery: Delivery) -> None:
        system = delivery.handle.system_properties
        entry = service.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
        request = service.AckMessageRequest(group=self._group, topic=self._topic, entries=[entry])
        try:
            answer = await self._stub.AckMessage(request, timeout=self._timeout, metadata=self._signed())
        except grpc.aio.AioRpcError as error:
            raise Fault(_text(error)) from None
        _check(answer.status)

    def _signed(self) -> tuple[tuple[str, str], ...]:
        return (*self._metadata, *rpc_metadata(self._credentials))

    def _heartbeat(self) -> service.HeartbeatRequest:
        return service.HeartbeatRequest(group=self._group, client_type=self._type)

    def _settings(self) -> definition.Settings:
        settings = definition.Settings(client_type=self._type, access_point=self._endpoints)
        settings.user_agent.CopyFrom(definition.UA(language=definition.Language.PYTHON, version="5.0.0"))
        if self._type == definition.ClientType.PRODUCER:
            settings.publishing.topics.append(self._topic)
        else:
            settings.subscription.group.CopyFrom(self._group)
            entry = settings.subscription.subscriptions.add()
            entry.topic.CopyFrom(self._topic)
            entry.expression.CopyFrom(definition.FilterExpression(type=definition.FilterType.TAG, expression="*"))
        return settings


def _check(status: definition.Status) -> None:
    """Raise Fault unless the status is OK."""
    if status.code != Code.OK:
        raise Fault(f"{Code.Name(status.code)}: {status.message}")


def _text(error: grpc.aio.AioRpcError) -> str:
    details = (error.details() or "").rpartition("; last error: ")[2]
    return f"{error.code().name.lower().replace('_', ' ')}: {details[:160]}"


def _duration(seconds: float) -> Duration:
    nanoseconds = int(seconds * 1e9)
    return Duration(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)


def _channel(options: argparse.Namespace, endpoint: HostPort) -> grpc.aio.Channel:
    """Return a channel. Raises UsageError."""
    if options.insecure:
        raise UsageError("gRPC verifies certificates: give the CA with --ca instead of --insecure")
    if not (options.tls or options.ca or options.client_cert):
        return grpc.aio.insecure_channel(str(endpoint), _OPTIONS)
    files = options.ca, options.client_cert and (options.client_key or options.client_cert), options.client_cert
    try:
        authority, key, chain = (Path(file).read_bytes() if file else None for file in files)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    credentials = grpc.ssl_channel_credentials(authority, key, chain)
    return grpc.aio.secure_channel(str(endpoint), credentials, _OPTIONS)


@asynccontextmanager
async def connection(options: argparse.Namespace, role: str) -> AsyncIterator[Driver]:
    """Open a client, as a producer or a simple consumer. Raises CommandError."""
    endpoint, credentials = read_target(options)
    async with _channel(options, endpoint) as channel:
        driver = _GrpcDriver(channel, endpoint, options, role, credentials)
        await driver.open()
        keeping = asyncio.create_task(driver.keep())
        try:
            yield driver
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
            await driver.leave()
