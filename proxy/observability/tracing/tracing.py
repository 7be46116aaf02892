"""Spans of requests and deliveries, sent by OpenTelemetry's batch processor.

A span is built when it ends, as a `ReadableSpan` (8 µs). OpenTelemetry's own spans, which any thread may change at any
time, take 26 µs.
"""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.core.context import Context
from proxy.core.events import UNKNOWN_CODE
from proxy.core.events.request import is_ok
from proxy.observability.metrics.family import Family, Kind, Samples, by_label
from proxy.observability.metrics.process import product_version
from proxy.observability.tracing.context import (
    ALL_NAMES,
    TRACEPARENT,
    TRACEPARENT_NAME,
    TraceContext,
    messages_with_context,
    of_message,
    with_context,
)
from proxy.settings.tracing import TraceSettings
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import DELIVERIES, SEND_FIELD_NAMES, SETTLEMENTS, Action

SPANS: Final = Family("gantry_spans", Kind.COUNTER, "Spans of sampled requests and deliveries, by kind.", ("kind",))
# Seconds that the collector has to accept a batch.
_EXPORT_TIMEOUT = 3.0
# Ext field with the properties of a sent message, by request code. Those of a batch are in its body.
_SEND_PROPERTIES: Final[dict[int, str]] = {
    code: names.properties for code, names in SEND_FIELD_NAMES.items() if code != RequestCode.SEND_BATCH_MESSAGE
}
# Constants of this module, because compiled code looks up those of a module that is not compiled.
_DELIVERIES: Final = DELIVERIES
_SETTLEMENTS: Final = SETTLEMENTS
# Deliveries that are searched for `trace_context` after the start or after its last occurrence; then one of every 16.
_FOREIGN_SEARCHES: Final = 1_000
_FOREIGN_SEARCH_INTERVAL: Final = 16
_OK: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_random: Final = random.random


class Tracing:
    """Traces requests. `begin` is a check (`proxy.core.checks`) that rejects nothing.

    exporter: replaces OTLP, for tests. spans: number of spans begun, by kind.
    """

    def __init__(self, settings: TraceSettings, replica: str, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            # The timeout keeps an unresponsive collector from delaying the shutdown.
            exporter = OTLPSpanExporter(settings.endpoint, timeout=_EXPORT_TIMEOUT)
        release = product_version()
        self._resource = Resource.create(
            {"service.name": settings.service, "service.version": release, "service.instance.id": replica}
        )
        self._scope = InstrumentationScope("gantry", release)
        # Has a thread and a bounded queue; spans over its bound are dropped.
        self._processor = BatchSpanProcessor(exporter)
        self._share = settings.share
        # Deliveries left to search for `trace_context`; below 0, it counts the deliveries after the last one.
        self._foreign_searches_left = _FOREIGN_SEARCHES
        self.spans = {"request": 0, "delivery": 0}
        # Without state, so that all polls share it.
        self._unsampled_poll = _UnsampledPoll(self)

    def begin(self, context: Context) -> None:
        """Begin a span if the request is sampled, and add its context to a message that is sent."""
        code = context.code
        field = _SEND_PROPERTIES.get(code)
        parent = None if field is None else of_message(context.fields.get(field, ""))
        if parent.sampled if parent is not None else _random() < self._share:
            self.spans["request"] += 1
            context.trace = span = _RequestSpan(self, context, parent)
            context.command.trace_id = span.context.trace_id
            if field is not None and not context.signed:
                span.inject(context.fields, field)
        elif code in _DELIVERIES:
            context.trace = self._unsampled_poll

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield SPANS, by_label(self.spans)

    def close(self) -> None:
        """Send the remaining spans. Blocks until the collector has accepted them, or the export times out."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def trace_deliveries(self, context: Context, reply: RemotingCommand, started: int) -> list[TraceContext]:
        """Add a delivery span for each message with a sampled context, and return the contexts of all messages."""
        if reply.code != _SUCCESS:
            return []
        contexts: list[TraceContext] = []
        for message in messages_with_context(bytes(reply.body), self._names_to_find()):
            parent = of_message(message.properties)
            if parent is None:
                continue
            contexts.append(parent)
            if TRACEPARENT not in message.properties:
                self._foreign_searches_left = _FOREIGN_SEARCHES
            if parent.sampled:
                self.spans["delivery"] += 1
                attributes = {
                    **_attributes(context, "deliver", "process"),
                    "messaging.destination.partition.id": str(message.queue_id),
                    "messaging.message.body.size": len(message.body),
                    "messaging.rocketmq.delivery_attempt": message.reconsume_times + 1,
                }
                name = f"deliver {context.topic}"
                self.end(name, new_context(parent), parent, SpanKind.CONSUMER, started, attributes)
        return contexts

    def _names_to_find(self) -> tuple[bytes, ...]:
        """Return the property names to search for in this delivery.

        A search for both names takes 3 % of the time of a pull. Only messages sent around Gantry have `trace_context`
        alone, so it is searched for in a share of the deliveries, and in all of them once it was found.
        """
        self._foreign_searches_left -= 1
        return (
            ALL_NAMES
            if self._foreign_searches_left > 0 or not self._foreign_searches_left % _FOREIGN_SEARCH_INTERVAL
            else TRACEPARENT_NAME
        )

    def end(
        self,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        kind: SpanKind,
        started: int,
        attributes: dict[str, Any],
        links: Sequence[TraceContext] = (),
        status: Status = _OK,
    ) -> None:
        """Hand an ended span to the processor. `started` is in nanoseconds since 1970."""
        span = ReadableSpan(
            name,
            _span_context(context, remote=False),
            None if parent is None else _span_context(parent, remote=True),
            self._resource,
            attributes,
            links=[Link(_span_context(link, remote=True)) for link in links],
            kind=kind,
            status=status,
            start_time=started,
            end_time=time.time_ns(),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)


class _UnsampledPoll:
    """Polls that are not sampled, but may deliver messages with sampled contexts."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def finish(self, context: Context, _: int, reply: RemotingCommand | None) -> None:
        if reply is not None:
            self._tracing.trace_deliveries(context, reply, time.time_ns())


class _RequestSpan:
    """The span of a sampled request."""

    def __init__(self, tracing: Tracing, context: Context, parent: TraceContext | None) -> None:
        self._tracing = tracing
        self._parent = parent
        self._started = time.time_ns()
        # Read now, because forwarding may change the names in the request.
        self._topic = context.topic
        self._name, self._kind = _operation(context)
        self._attributes = _attributes(context, self._name, self._kind)
        self.context = new_context(parent)

    def inject(self, fields: dict[str, str], field: str) -> None:
        """Add the context of this span to the properties in an ext field."""
        text = fields.get(field, "")
        if properties.is_extendable(text):
            fields[field] = with_context(text, self.context)

    def finish(self, context: Context, code: int, reply: RemotingCommand | None) -> None:
        attributes = self._attributes
        attributes["gantry.response_code"] = code
        if context.broker is not None:
            attributes["messaging.rocketmq.broker"] = context.broker
        links: Sequence[TraceContext] = ()
        if reply is not None and context.code in _DELIVERIES:
            links = self._tracing.trace_deliveries(context, reply, time.time_ns())
        status = _OK
        if not is_ok(code):
            attributes["error.type"] = str(code)
            status = _ERROR
        name = f"{self._name} {self._topic}" if self._topic else self._name
        self._tracing.end(name, self.context, self._parent, SpanKind.SERVER, self._started, attributes, links, status)


def new_context(parent: TraceContext | None) -> TraceContext:
    """Return the context of a new span: in its parent's trace, or in a new trace."""
    trace_id = f"{random.getrandbits(128) or 1:032x}" if parent is None else parent.trace_id
    return TraceContext(trace_id, f"{random.getrandbits(64) or 1:016x}", True)


def _span_context(context: TraceContext, remote: bool) -> SpanContext:
    """Convert a context for OpenTelemetry."""
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), remote, flags)


def _operation(context: Context) -> tuple[str, str | None]:
    """Return name and type of the operation, by OpenTelemetry's semantic conventions for messaging."""
    if context.code in _DELIVERIES:
        return "receive", "receive"
    if context.code in _SETTLEMENTS:
        return "settle", "settle"
    spec = context.spec
    if spec is not None and spec.action is Action.PUB:
        return "send", "send"
    return UNKNOWN_CODE if spec is None else spec.name, None


def _attributes(context: Context, name: str, kind: str | None) -> dict[str, Any]:
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
