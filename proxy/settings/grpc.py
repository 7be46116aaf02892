"""Settings of gRPC for clients of the v2 API (table `grpc`)."""

from typing import Literal

from pydantic import Field, model_validator

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.http2.limits import Limits, Timeouts
from grpc_gateway.server import ServerOptions
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.service_pb2 import DESCRIPTOR
from proxy.settings.field_types import RemoteAddress, SettingsTable, TopicName
from remoting.names import TRACE_TOPIC

# Bytes of a request by path; a SendMessage may have `grpc.max_message`. In Telemetry, clients send thread stacks. An
# AckMessage may have many receipt handles.
_MAX_SMALL_REQUEST, _MAX_LARGE_REQUEST = 64 * 2**10, 2**20
_LARGE = {"Telemetry", "SyncLiteSubscription", "AckMessage"}
_SERVICE = DESCRIPTOR.services_by_name["MessagingService"]
_MAX_REQUESTS = {
    f"/{_SERVICE.full_name}/{method.name}": _MAX_LARGE_REQUEST if method.name in _LARGE else _MAX_SMALL_REQUEST
    for method in _SERVICE.methods
    if method.name != "SendMessage"
}


class GrpcSettings(SettingsTable):
    """gRPC: clients of the v2 API. Limits are those of the official proxy where it has them."""

    transport: Literal["inprocess", "grpcio"] = Field(
        "inprocess",
        description="HTTP/2 implementation: inprocess (Gantry's own), or grpcio (its server, behind a relay)",
    )
    health: bool = Field(True, description="serve grpc.health.v1, for the server and the messaging service")
    reflection: bool = Field(False, description="serve gRPC server reflection")
    metric_collector: RemoteAddress | None = Field(
        None, description="host:port of the OTLP collector that clients send their metrics to; default: none"
    )
    max_message: int = Field(16 * 2**20, ge=2**20, description="maximum gRPC message size in bytes, received and sent")
    max_streams: int = Field(4096, gt=0, description="concurrent calls per connection")
    clients_per_connection: int = Field(
        256, gt=0, description="client ids per connection; raise it behind a proxy that merges connections"
    )
    members_per_connection: int = Field(
        32,
        gt=0,
        description="members of one consumer group per connection, each of which has a connection to each broker; "
        "raise it behind a proxy that merges connections",
    )
    max_header: int = Field(16 * 2**10, ge=4096, description="maximum size of a header list in bytes")
    ping_after: float = Field(
        5.0, ge=0, description="seconds without received bytes after which a keepalive PING is sent; 0: never"
    )
    ping_timeout: float = Field(7.0, gt=0, description="timeout of a keepalive PING in seconds")
    min_ping_interval: float = Field(
        10.0, ge=0, description="minimum seconds between a client's PINGs; more frequent ones close the connection"
    )
    max_age: float | None = Field(
        None, gt=0, description="age in seconds at which a connection is asked to reconnect; default: never"
    )
    max_body: int = Field(
        4 * 2**20,
        gt=0,
        description="maximum message body size in bytes; larger compressed bodies are delivered as they are stored",
    )
    max_properties: int = Field(
        16 * 2**10, gt=0, le=30_000, description="maximum size of a message's properties in bytes"
    )
    max_property_count: int = Field(128, gt=0, description="maximum number of a message's properties")
    max_delay: float = Field(86_400.0, gt=0, description="maximum delivery delay in seconds")
    recovery_limit: float = Field(
        3_600.0, gt=0, description="maximum seconds before an open transaction is first checked, as a producer sets it"
    )
    transaction_ids: Literal["message", "place"] = Field(
        "message",
        description="ids of transactions: message (the message's, as receivers see it in `__transactionId__`), or "
        "place (with the place of the half message, for brokers without an index of messages)",
    )
    validate_message_type: bool = Field(True, description="reject messages that do not match their topic's type")
    send_attempts: int = Field(3, ge=1, description="maximum attempts of a send, as advised to producers")
    min_polling: float = Field(
        5.0, ge=0, description="minimum wait of a receive in seconds; a receive with a nearer deadline is refused"
    )
    max_polling: float = Field(20.0, gt=0, description="maximum wait of a receive in seconds")
    polling_margin: float = Field(
        1.0, gt=0, description="seconds before its deadline at which a receive whose polling time is longer is answered"
    )
    receive_batch: int = Field(32, gt=0, le=32, description="maximum messages per receive")
    min_invisible: float = Field(10.0, ge=0, description="minimum invisible duration in seconds")
    max_invisible: float = Field(43_200.0, gt=0, description="maximum invisible duration in seconds")
    auto_renew: bool = Field(
        True, description="renew the invisible duration of messages while push consumers process them"
    )
    renewal: float = Field(60.0, ge=10, description="invisible duration in seconds of each renewal")
    renewal_limit: float = Field(
        10_800.0, gt=0, description="seconds after which a message is no longer renewed and is delivered again"
    )
    message_trace: bool = Field(
        False, description="write trace records about the messages that gRPC clients send and consume"
    )
    trace_topic: TopicName = Field(TRACE_TOPIC, description="topic of trace records, of all clients")
    lite_topic_size: int = Field(64, gt=0, le=64, description="maximum length of a lite topic's name")

    @model_validator(mode="after")
    def _check_ranges(self) -> "GrpcSettings":
        for minimum, maximum in (("min_polling", "max_polling"), ("min_invisible", "max_invisible")):
            if getattr(self, minimum) > getattr(self, maximum):
                raise ValueError(f"{minimum} is more than {maximum}")
        if self.max_message < self.max_body + self.max_properties:
            raise ValueError("max_message has no room for max_body and max_properties")
        return self

    def options(self, client_expiry: float, has_embedded_broker: bool = False) -> GatewayOptions:
        """Return the options of the messaging service; `client_expiry` in seconds."""
        defaults = GatewayOptions()
        return GatewayOptions(
            max_body=self.max_body,
            max_properties=self.max_properties,
            max_property_count=self.max_property_count,
            max_delay=self.max_delay,
            min_polling=self.min_polling,
            max_polling=self.max_polling,
            polling_margin=self.polling_margin,
            min_invisible=self.min_invisible,
            max_invisible=self.max_invisible,
            auto_renew=self.auto_renew,
            renewal=self.renewal,
            renewal_limit=self.renewal_limit,
            receive_batch=self.receive_batch,
            publishing_backoff=(self.send_attempts, *defaults.publishing_backoff[1:]),
            # The embedded broker has the same clock, and delivers a message again within 50 ms.
            handle_grace=0.0 if has_embedded_broker else defaults.handle_grace,
            validate_message_type=self.validate_message_type,
            lite_topic_size=self.lite_topic_size,
            recovery_limit=self.recovery_limit,
            members_per_connection=self.members_per_connection,
            transaction_ids=self.transaction_ids,
            client_expiry=client_expiry,
            metric_collector=None if self.metric_collector is None else HostPort.parse(self.metric_collector),
        )

    def server_options(self, idle_timeout: float) -> ServerOptions:
        """Return the options of the gRPC server; `idle_timeout` in seconds."""
        return ServerOptions(
            max_receive_message=self.max_message,
            max_send_message=self.max_message,
            max_requests=_MAX_REQUESTS,
            max_request_bytes=max(ServerOptions().max_request_bytes, 4 * self.max_message),
            max_unfinished_bytes=2 * self.max_message,
            limits=Limits(
                concurrent_streams=self.max_streams, header_list=self.max_header, ping_interval=self.min_ping_interval
            ),
            timeouts=Timeouts(
                ping_after=self.ping_after or None,
                ping_timeout=self.ping_timeout,
                idle=idle_timeout,
                age=self.max_age,
            ),
        )
