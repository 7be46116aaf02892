"""Traces: OpenTelemetry spans of sampled requests, sent by OTLP, and the context that messages carry.

A message's trace context is its property `traceparent` (W3C Trace Context), else what a gRPC client put in
`trace_context`. A send becomes a child of it, and the message then carries the send's own context; each delivery of
such a message is a span of the same trace, whoever consumes it. Requests without a context are sampled by share.

The OpenTelemetry SDK is an extra of the installation (`tracing`), and is imported only where it is used.
"""

import random
import re
import struct
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from proxy.context import Context
from proxy.metrics.process import product_version
from proxy.observation.request import is_ok
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.requests import Action

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

TRACEPARENT = "traceparent"
# Version ff is none, and version 00 has nothing behind the flags (W3C Trace Context, section 3.2.2).
_TRACEPARENT = re.compile(r"(?!ff|00.{54})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_CARRIED = (TRACEPARENT.encode(), properties.TRACE_CONTEXT.encode())
# Of a stored record: its size.
_size = struct.Struct(">i").unpack_from
_SAMPLED = 0x01
# Seconds that the collector has to take a batch.
_PATIENCE = 3.0
_SENDS: dict[int, str] = {
    RequestCode.SEND_MESSAGE: "properties",
    RequestCode.SEND_MESSAGE_V2: "i",
    RequestCode.SEND_REPLY_MESSAGE: "properties",
    RequestCode.SEND_REPLY_MESSAGE_V2: "i",
}
_DELIVERIES: frozenset[int] = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
    }
)
_SETTLEMENTS: frozenset[int] = frozenset(
    {
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
)
# Brokers refuse properties over 32,767 bytes; ours must not be what makes them so. In bytes.
_MOST_PROPERTIES = 30_000


class TraceSettings(BaseModel):
    """Traces by OpenTelemetry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        repr=False,
        description="URL of an OTLP/HTTP collector (…/v1/traces); none: no traces",
    )
    share: float = Field(
        0.01, ge=0, le=1, description="share of requests without a context of their own that is sampled"
    )
    service: str = Field("gantry", min_length=1, description="the service's name in traces")

    @field_validator("endpoint")
    @classmethod
    def _installed(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and find_spec("opentelemetry.exporter") is None:
            raise ValueError("needs OpenTelemetry: pip install 'rocketmq-gantry[tracing]'")
        return endpoint


class Tracing:
    """Spans of requests. `begin` is a check (`proxy.checks`) that refuses nothing.

    `exporter` stands in for OTLP.
    """

    def __init__(self, settings: TraceSettings, replica: str, exporter: "SpanExporter | None" = None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            # A collector that hangs must not hold up the end.
            exporter = OTLPSpanExporter(settings.endpoint, timeout=_PATIENCE)
        release = product_version()
        resource = Resource.create(
            {"service.name": settings.service, "service.version": release, "service.instance.id": replica}
        )
        # Whether to sample has been decided when a span is begun.
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        # It has a thread, and a queue that is bounded: what does not fit is dropped.
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("gantry", release)
        self._share = settings.share
        # Spans that were begun, by what they are of.
        self.spans = {"request": 0, "delivery": 0}

    def begin(self, context: Context) -> None:
        """Trace the request, if it is to be."""
        name = _SENDS.get(context.code)
        parent = None if name is None else _context_of(context.fields.get(name, ""))
        sampled = random.random() < self._share if parent is None else bool(parent.trace_flags & _SAMPLED)
        if sampled:
            context.trace = span = _Span(self, context, parent)
            context.command.trace_id = span.trace_id
            if name is not None and "Signature" not in context.fields:
                span.carry(context.fields, name)
        elif context.code in _DELIVERIES:
            context.trace = _Deliveries(self)

    def close(self) -> None:
        """Send what is left; takes as long as the collector does."""
        self._provider.shutdown()

    def delivered(self, context: Context, reply: RemotingCommand, began: int) -> "list[SpanContext]":
        """A span in each sampled trace of which a message goes out with this answer; the messages' contexts."""
        if reply.code != ResponseCode.SUCCESS:
            return []
        carried = []
        for message in _carriers(bytes(reply.body)):
            parent = _context_of(message.properties)
            if parent is None:
                continue
            carried.append(parent)
            if parent.trace_flags & _SAMPLED:
                self.spans["delivery"] += 1
                attributes = {
                    **_who(context, "deliver", "process"),
                    "messaging.destination.partition.id": str(message.queue_id),
                    "messaging.message.body.size": len(message.body),
                    "messaging.rocketmq.delivery_attempt": message.reconsume_times + 1,
                }
                self.start(f"deliver {context.topic}", parent, "CONSUMER", began, attributes).end()
        return carried

    def start(
        self, name: str, parent: "SpanContext | None", kind: str, began: int | None, attributes: dict[str, Any]
    ) -> Any:
        """A span; `began` in nanoseconds of the epoch, None: now."""
        from opentelemetry import context, trace

        around = context.Context()
        if parent is not None:
            around = trace.set_span_in_context(trace.NonRecordingSpan(parent), around)
        return self.tracer.start_span(
            name, context=around, kind=trace.SpanKind[kind], attributes=attributes, start_time=began
        )


class _Deliveries:
    """A poll that is not sampled itself: what it brings may be."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def finish(self, context: Context, _: int, reply: RemotingCommand | None) -> None:
        if reply is not None:
            self._tracing.delivered(context, reply, time.time_ns())


class _Span:
    """A request that is sampled."""

    def __init__(self, tracing: Tracing, context: Context, parent: "SpanContext | None") -> None:
        tracing.spans["request"] += 1
        self._tracing = tracing
        name, kind = _operation(context)
        title = f"{name} {context.topic}" if context.topic else name
        self._span = tracing.start(title, parent, "SERVER", None, _who(context, name, kind))
        self._context = self._span.get_span_context()
        self.trace_id = f"{self._context.trace_id:032x}"

    def carry(self, fields: dict[str, str], name: str) -> None:
        """Have the message carry the context of this span."""
        text = f"00-{self.trace_id}-{self._context.span_id:016x}-01"
        known = fields.get(name, "")
        if len(known.encode()) >= _MOST_PROPERTIES:
            return
        # Of a property that is there twice the last one counts.
        carrying = properties.append(known, TRACEPARENT, text)
        if _TRACEPARENT(properties.get(known, properties.TRACE_CONTEXT) or ""):
            # In any other form it is something else's, whose consumers want it as it is.
            carrying = properties.append(carrying, properties.TRACE_CONTEXT, text)
        fields[name] = carrying

    def finish(self, context: Context, code: int, reply: RemotingCommand | None) -> None:
        from opentelemetry.trace import StatusCode

        span = self._span
        span.set_attribute("gantry.response_code", code)
        if context.broker is not None:
            span.set_attribute("messaging.rocketmq.broker", context.broker)
        if reply is not None and context.code in _DELIVERIES:
            for carried in self._tracing.delivered(context, reply, time.time_ns()):
                span.add_link(carried)
        if not is_ok(code):
            span.set_attribute("error.type", str(code))
            span.set_status(StatusCode.ERROR)
        span.end()


def _operation(context: Context) -> tuple[str, str | None]:
    """Name and type of the operation (OpenTelemetry's semantic conventions for messaging)."""
    if context.code in _DELIVERIES:
        return "receive", "receive"
    if context.code in _SETTLEMENTS:
        return "settle", "settle"
    spec = context.spec
    if spec is not None and spec.action is Action.PUB:
        return "send", "send"
    return "unknown" if spec is None else spec.name, None


def _who(context: Context, name: str, kind: str | None) -> dict[str, Any]:
    channel = context.channel
    attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": context.topic,
        "messaging.consumer.group.name": context.group,
        "messaging.client.id": channel.identity.client_id,
        "messaging.message.body.size": context.size or None,
        "network.peer.address": channel.peer.address.host,
        "rpc.system": channel.protocol,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _carriers(body: bytes) -> list[StoredMessage]:
    """The stored records that may carry a context; no others are decoded. Of a body that breaks off, the whole ones."""
    found: list[StoredMessage] = []
    start = 0
    try:
        while (place := _next(body, start)) >= 0:
            (size,) = _size(body, start)
            while 0 < size <= place - start:
                start += size
                (size,) = _size(body, start)
            if size <= 0:
                break
            found += messages.decode_messages(body[start : start + size])
            start += size
    except (struct.error, BodyError):
        # Clients see to that.
        pass
    return found


def _next(body: bytes, start: int) -> int:
    """Where a context's name is next; -1: nowhere."""
    return min((place for name in _CARRIED if (place := body.find(name, start)) >= 0), default=-1)


def _context_of(text: str) -> "SpanContext | None":
    """The trace context in a property string; None where there is none that makes sense."""
    for name in (TRACEPARENT, properties.TRACE_CONTEXT):
        if name in text:
            found = _TRACEPARENT(properties.get(text, name) or "")
            if found is not None:
                from opentelemetry.trace import SpanContext, TraceFlags

                trace_id, span_id, flags, _ = found.groups()
                context = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
                if context.is_valid:
                    return context
    return None
