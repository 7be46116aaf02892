"""Spans: begun with requests, ended with their answers, and handed to OpenTelemetry, which sends them.

They are made whole at their end, of what the request is known by then: OpenTelemetry's own spans, which may be changed
at any time by any thread, cost three times as much (26 and 8 µs).
"""

import random
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.core.context import Context
from proxy.core.events.request import is_ok
from proxy.observability.metrics.process import product_version
from proxy.observability.tracing.context import (
    ANYBODYS,
    OURS,
    TRACEPARENT,
    TraceContext,
    carried_by,
    carriers,
    of_message,
)
from proxy.settings.tracing import TraceSettings
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import SEND_FIELD_NAMES, Action

# Seconds that the collector has to take a batch.
_TIMEOUT = 3.0
# The ext field with a sent message's properties, by request code; those of a batch are in its body.
_SENDS: dict[int, str] = {
    code: names.properties for code, names in SEND_FIELD_NAMES.items() if code != RequestCode.SEND_BATCH_MESSAGE
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
_MAX_PROPERTIES = 30_000
# Deliveries in which others' contexts are looked for after one was found, or the start; afterwards, one of so many.
_OTHERS_LAST = 10_000
_OTHERS_EVERY = 16
_OK, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class Tracing:
    """Spans of requests. `begin` is a check (`proxy.core.checks`) that refuses nothing.

    `exporter` stands in for OTLP.
    """

    def __init__(self, settings: TraceSettings, replica: str, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            # A collector that hangs must not hold up the end.
            exporter = OTLPSpanExporter(settings.endpoint, timeout=_TIMEOUT)
        release = product_version()
        self._resource = Resource.create(
            {"service.name": settings.service, "service.version": release, "service.instance.id": replica}
        )
        self._scope = InstrumentationScope("gantry", release)
        # It has a thread, and a queue that is bounded: what does not fit is dropped.
        self._processor = BatchSpanProcessor(exporter)
        self._share = settings.share
        # Deliveries in which to look for others' contexts; below 0: since then, those without.
        self._others_left = _OTHERS_LAST
        # Spans that were begun, by what they are of.
        self.spans = {"request": 0, "delivery": 0}

    def begin(self, context: Context) -> None:
        """Trace the request, if it is to be."""
        name = _SENDS.get(context.code)
        parent = None if name is None else of_message(context.fields.get(name, ""))
        if parent.sampled if parent is not None else random.random() < self._share:
            self.spans["request"] += 1
            context.trace = span = _Span(self, context, parent)
            context.command.trace_id = span.place.trace_id
            if name is not None and "Signature" not in context.fields:
                span.carry(context.fields, name)
        elif context.code in _DELIVERIES:
            context.trace = _Deliveries(self)

    def close(self) -> None:
        """Send what is left; takes as long as the collector does."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def delivered(self, context: Context, reply: RemotingCommand, began: int) -> list[TraceContext]:
        """A span in each sampled trace of which a message goes out with this answer; the messages' contexts."""
        if reply.code != ResponseCode.SUCCESS:
            return []
        carried = []
        for message in carriers(bytes(reply.body), self._wanted()):
            parent = of_message(message.properties)
            if parent is None:
                continue
            carried.append(parent)
            if TRACEPARENT not in message.properties:
                self._others_left = _OTHERS_LAST
            if parent.sampled:
                self.spans["delivery"] += 1
                attributes = {
                    **_who(context, "deliver", "process"),
                    "messaging.destination.partition.id": str(message.queue_id),
                    "messaging.message.body.size": len(message.body),
                    "messaging.rocketmq.delivery_attempt": message.reconsume_times + 1,
                }
                title = f"deliver {context.topic}"
                self.end(title, place_in(parent), parent, SpanKind.CONSUMER, began, attributes)
        return carried

    def _wanted(self) -> tuple[bytes, ...]:
        """The names to look for in what is delivered now.

        To look through a body for both costs 3 % of all pulls. So what others carry, who do not say `traceparent`, is
        looked for in a share of the deliveries, and in all of them once it has been found.
        """
        self._others_left -= 1
        return ANYBODYS if self._others_left > 0 or not self._others_left % _OTHERS_EVERY else OURS

    def end(
        self,
        title: str,
        place: TraceContext,
        parent: TraceContext | None,
        kind: SpanKind,
        began: int,
        attributes: dict[str, Any],
        links: Sequence[TraceContext] = (),
        status: Status = _OK,
    ) -> None:
        """A span is over; `began` in nanoseconds of the epoch."""
        span = ReadableSpan(
            title,
            _known(place, remote=False),
            None if parent is None else _known(parent, remote=True),
            self._resource,
            attributes,
            links=[Link(_known(link, remote=True)) for link in links],
            kind=kind,
            status=status,
            start_time=began,
            end_time=time.time_ns(),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)


class _Deliveries:
    """A poll that is not sampled itself: what it brings may be."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def finish(self, context: Context, _: int, reply: RemotingCommand | None) -> None:
        if reply is not None:
            self._tracing.delivered(context, reply, time.time_ns())


class _Span:
    """A request that is sampled."""

    def __init__(self, tracing: Tracing, context: Context, parent: TraceContext | None) -> None:
        self._tracing = tracing
        self._parent = parent
        self._began = time.time_ns()
        # By the names that the client gave: on its way to a broker the request may get others.
        self._topic = context.topic
        self._name, self._kind = _operation(context)
        self._attributes = _who(context, self._name, self._kind)
        self.place = place_in(parent)

    def carry(self, fields: dict[str, str], name: str) -> None:
        """Have the message carry the context of this span."""
        known = fields.get(name, "")
        if len(known.encode()) < _MAX_PROPERTIES:
            fields[name] = carried_by(known, self.place)

    def finish(self, context: Context, code: int, reply: RemotingCommand | None) -> None:
        attributes = self._attributes
        attributes["gantry.response_code"] = code
        if context.broker is not None:
            attributes["messaging.rocketmq.broker"] = context.broker
        links: Sequence[TraceContext] = ()
        if reply is not None and context.code in _DELIVERIES:
            links = self._tracing.delivered(context, reply, time.time_ns())
        status = _OK
        if not is_ok(code):
            attributes["error.type"] = str(code)
            status = _ERROR
        title = f"{self._name} {self._topic}" if self._topic else self._name
        self._tracing.end(title, self.place, self._parent, SpanKind.SERVER, self._began, attributes, links, status)


def place_in(parent: TraceContext | None) -> TraceContext:
    """A new span's place: in its parent's trace, or in one of its own."""
    trace_id = f"{random.getrandbits(128) or 1:032x}" if parent is None else parent.trace_id
    return TraceContext(trace_id, f"{random.getrandbits(64) or 1:016x}", True)


def _known(place: TraceContext, remote: bool) -> SpanContext:
    """The same for OpenTelemetry."""
    flags = TraceFlags(TraceFlags.SAMPLED if place.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), remote, flags)


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
