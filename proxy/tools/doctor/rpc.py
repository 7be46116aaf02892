"""The doctor's rpcs, by grpcio's client."""

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from grpc_gateway.endpoints import endpoints_of
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import (
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from protos.apache.rocketmq.v2.service_pb2 import (
    QueryRouteRequest,
    QueryRouteResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.tools.credentials import rpc_metadata
from remoting.signature import Credentials

# Otherwise grpcio shares connections between channels, and uses the environment's http_proxy.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class Refused(Exception):
    """No response of the service; the text is gRPC's."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        details = (error.details() or "").rpartition("; last error: ")[2]
        super().__init__(f"{error.code().name.lower().replace('_', ' ')}: {details[:160]}")
        self.code = error.code()


@dataclass(frozen=True, slots=True)
class Trust:
    """TLS parameters: trusted CAs as PEM, name in the certificate, own chain and key if any."""

    authority: bytes
    name: str
    chain: bytes | None = None
    key: bytes | None = None


class Rpcs:
    """A channel to one address, and its rpcs. All methods raise Refused."""

    def __init__(
        self, channel: grpc.aio.Channel, dialled: HostPort, timeout: float, credentials: Credentials | None = None
    ) -> None:
        self.stub = MessagingServiceStub(channel)
        # The generated type stubs describe only the servicer.
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._timeout = timeout
        self.metadata = (
            ("x-mq-client-id", f"gantry-doctor@{uuid.uuid4().hex[:8]}"),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.0.0"),
            ("x-mq-protocol", "v2"),
            *rpc_metadata(credentials),
        )
        # Official clients send in each request the address that they dialled.
        self.endpoints = endpoints_of(dialled)

    async def route(self, topic: str) -> QueryRouteResponse:
        """Call QueryRoute."""
        request = QueryRouteRequest(topic=Resource(name=topic), endpoints=self.endpoints)
        with _refusing():
            answer: QueryRouteResponse = await self.stub.QueryRoute(
                request, timeout=self._timeout, metadata=self.metadata
            )
        return answer

    async def health(self, service: str) -> str:
        """Return the status of a service by grpc.health.v1; "" is the server itself."""
        with _refusing():
            answer = await self._health.Check(
                health_pb2.HealthCheckRequest(service=service), timeout=self._timeout, metadata=self.metadata
            )
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    async def send(self, topic: str, body: bytes) -> SendMessageResponse:
        """Call SendMessage with one normal message."""
        born = Timestamp()
        born.GetCurrentTime()
        properties = SystemProperties(
            message_id=uuid.uuid4().hex.upper(),
            tag="gantry-doctor",
            message_type=MessageType.NORMAL,
            body_encoding=Encoding.IDENTITY,
            born_timestamp=born,
        )
        message = Message(topic=Resource(name=topic), system_properties=properties, body=body)
        with _refusing():
            answer: SendMessageResponse = await self.stub.SendMessage(
                SendMessageRequest(messages=[message]), timeout=self._timeout, metadata=self.metadata
            )
        return answer


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise Refused(error) from None


@asynccontextmanager
async def calling(
    address: HostPort,
    dialled: HostPort,
    trust: Trust | None,
    timeout: float,
    credentials: Credentials | None = None,
) -> AsyncIterator[Rpcs]:
    """Open a channel to `address`, as a client that dialled `dialled` does. credentials: sign each rpc."""
    if trust is None:
        channel = grpc.aio.insecure_channel(str(address), _OPTIONS)
    else:
        encryption = grpc.ssl_channel_credentials(trust.authority, trust.key, trust.chain)
        named = ("grpc.ssl_target_name_override", trust.name)
        channel = grpc.aio.secure_channel(str(address), encryption, (*_OPTIONS, named))
    async with channel:
        yield Rpcs(channel, dialled, timeout, credentials)
        # Cancelled calls must still reach the server.
        await asyncio.sleep(0)


def addresses(answer: QueryRouteResponse) -> dict[str, set[str]]:
    """Return the addresses that a gRPC client gets, by broker."""
    addresses_by_broker: dict[str, set[str]] = {}
    for queue in answer.message_queues:
        broker = queue.broker
        addresses_by_broker.setdefault(broker.name, set()).update(
            str(HostPort(address.host, address.port)) for address in broker.endpoints.addresses
        )
    return addresses_by_broker


def pem(certificate: bytes) -> bytes:
    """Return a DER certificate as PEM."""
    return ssl.DER_cert_to_PEM_cert(certificate).encode()
