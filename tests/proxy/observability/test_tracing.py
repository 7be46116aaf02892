"""Spans of requests and deliveries, and trace contexts of messages."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from pydantic import ValidationError

from protos.apache.rocketmq.v2 import definition_pb2 as types
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from proxy.app import App
from proxy.core.context import Context
from proxy.core.events import Observation
from proxy.observability.tracing import context
from proxy.observability.tracing.tracing import Tracing
from proxy.settings import tracing as settings
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.model import Settings
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand, response
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import request
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.replica import Client, running

pytestmark = pytest.mark.anyio

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


class Collector:
    """An OTLP/HTTP collector. spans: all spans received."""

    def __init__(self) -> None:
        spans: list[Any] = []
        self.spans = spans
        self.resources: list[dict[str, str]] = []
        resources = self.resources

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
                    resources.append(_attributes(batch.resource))
                    for scope in batch.scope_spans:
                        spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write no log line."""

        self.server = HTTPServer(("127.0.0.1", 0), Take)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def span(self, name: str) -> Any:
        """Return the only span with this name."""
        [span] = [span for span in self.spans if span.name == name]
        return span


def _attributes(holder: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in holder.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()
    thread.join()


@asynccontextmanager
async def traced(collector: Collector, directory: Path, share: float = 0) -> AsyncIterator[tuple[App, Client]]:
    """Run a replica that has sent all spans after the block, and a client."""
    settings = Settings(
        listen=["127.0.0.1:0"],
        replica="r1",
        embedded=EmbeddedSettings(directory=directory),
        tracing={"endpoint": collector.endpoint, "share": share},
    )
    async with running(settings) as app:
        client = await Client.connect(app)
        yield app, client
        await client.close()


def send(**pairs: str) -> RemotingCommand:
    fields = {"a": "p", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0", "h": "0"}
    return request(RequestCode.SEND_MESSAGE_V2, b"a secret", **fields, i=properties.encode(pairs))


PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 6,
    "commitOffset": 0,
    "suspendTimeoutMillis": 3000,
    "subscription": "*",
    "subVersion": 0,
}


async def test_a_delivery_continues_the_trace_of_the_send(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path) as (app, client):
        observations: list[Observation] = []
        app.core.observers.append(observations.append)
        await client.ask(send(traceparent=SAMPLED, KEYS="a secret key"))
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
        assert app.tracing is not None
        assert app.tracing.spans == {"request": 1, "delivery": 1}
        assert samples_of(app.metrics, "gantry_spans_total") == {("request",): 1, ("delivery",): 1}
    assert [each.trace_id for each in observations] == [TRACE, None]
    sent, delivered = collector.span("send orders"), collector.span("deliver orders")
    assert sent.trace_id.hex() == delivered.trace_id.hex() == TRACE
    assert sent.parent_span_id.hex() == SPAN
    assert delivered.parent_span_id == sent.span_id
    # The delivered message has the context of the send.
    [message] = messages.decode_messages(pulled.body)
    assert message.get(context.TRACEPARENT) == f"00-{TRACE}-{sent.span_id.hex()}-01"
    attributes = _attributes(sent)
    assert attributes["messaging.destination.name"] == "orders"
    assert attributes["messaging.rocketmq.broker"] == "broker-a"
    assert attributes["gantry.response_code"] == 0
    assert sent.end_time_unix_nano > sent.start_time_unix_nano
    assert _attributes(delivered)["messaging.rocketmq.delivery_attempt"] == 1
    assert collector.resources[0]["service.instance.id"] == "r1"
    assert b"secret" not in b"".join(span.SerializeToString() for span in collector.spans)


async def test_an_unsampled_context_of_the_producer_is_respected(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(send(traceparent=UNSAMPLED))
    assert [span.name for span in collector.spans] == []


async def test_requests_without_a_context_are_sampled_by_share(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(send())
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
        await client.ask(request(4711))
    sent, received = collector.span("send orders"), collector.span("receive orders")
    assert collector.span("deliver orders").trace_id == sent.trace_id != received.trace_id
    [link] = received.links
    assert link.span_id == sent.span_id
    [message] = messages.decode_messages(pulled.body)
    assert message.get(context.TRACEPARENT) == f"00-{sent.trace_id.hex()}-{sent.span_id.hex()}-01"


async def test_a_span_of_a_failed_request_has_the_error_status(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(request(RequestCode.PULL_MESSAGE, **{**PULL, "topic": "nowhere"}))
    span = collector.span("receive nowhere")
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert _attributes(span)["error.type"] == "17"


async def test_signed_messages_are_not_changed(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        signed = send()
        signed.fields["Signature"] = "c2ln"
        await client.ask(signed)
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
    [message] = messages.decode_messages(pulled.body)
    assert message.get(context.TRACEPARENT) is None
    assert collector.span("send orders").trace_id


async def test_messages_of_grpc_clients_have_the_context_in_trace_context(collector: Collector, tmp_path: Path) -> None:
    metadata = (("x-mq-client-id", "c1"), ("x-mq-language", "GO"), ("x-mq-client-version", "5.1.4"))
    topic = types.Resource(name="orders")
    system = types.SystemProperties(message_id="m", trace_context=SAMPLED)
    receive = pb.ReceiveMessageRequest(
        group=types.Resource(name="g"),
        message_queue=types.MessageQueue(topic=topic),
        batch_size=4,
        invisible_duration=Duration(seconds=20),
        filter_expression=types.FilterExpression(type=types.FilterType.TAG, expression="*"),
    )
    observations: list[Observation] = []
    async with traced(collector, tmp_path) as (app, client):
        # Creates the topic.
        await client.ask(send())
        app.core.observers.append(observations.append)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
            stub: Any = MessagingServiceStub(channel)
            message = types.Message(topic=topic, body=b"1", system_properties=system)
            answer = await stub.SendMessage(pb.SendMessageRequest(messages=[message]), metadata=metadata)
            assert answer.status.code == Code.OK
            received: list[types.Message] = []
            async with asyncio.timeout(30):
                while len(received) < 2:
                    responses = [each async for each in stub.ReceiveMessage(receive, metadata=metadata)]
                    received += [each.message for each in responses if each.HasField("message")]
    sent = collector.span("send orders")
    assert sent.parent_span_id.hex() == SPAN
    assert observations[0].trace_id == TRACE
    [trace_context] = [each.system_properties.trace_context for each in received if each.body == b"1"]
    assert trace_context == f"00-{TRACE}-{sent.span_id.hex()}-01"
    assert collector.span("deliver orders").parent_span_id == sent.span_id


@pytest.mark.parametrize(
    "text",
    [
        *("", "nonsense", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"),
        *(TRACE, f"ff-{TRACE}-{SPAN}-01", f"{SAMPLED}-more"),
    ],
)
def test_an_invalid_traceparent_is_ignored(text: str) -> None:
    assert context.of_message(properties.encode({"traceparent": text})) is None


@pytest.mark.parametrize("text", [SAMPLED, f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-of a later version"])
def test_a_valid_traceparent_is_parsed(text: str) -> None:
    parsed = context.of_message(properties.encode({"traceparent": text}))
    assert parsed is not None
    assert parsed.trace_id == TRACE


async def delivered_properties(pairs: dict[str, str], collector: Collector, directory: Path) -> dict[str, str]:
    """Return the properties of a sampled message as its consumer receives them."""
    async with traced(collector, directory, share=1) as (_, client):
        await client.ask(send(**pairs))
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
    [message] = messages.decode_messages(pulled.body)
    return message.property_map


async def test_a_trace_context_in_another_format_is_not_changed(collector: Collector, tmp_path: Path) -> None:
    b3 = f"{TRACE}-{SPAN}-1"
    received = await delivered_properties({"TRACE_CONTEXT": b3}, collector, tmp_path)
    assert received["TRACE_CONTEXT"] == b3
    assert received["traceparent"].startswith("00-")


async def test_trace_context_is_not_added_to_a_message_without_it(collector: Collector, tmp_path: Path) -> None:
    received = await delivered_properties({"MY_TRACE_CONTEXT": SAMPLED}, collector, tmp_path)
    assert received["MY_TRACE_CONTEXT"] == SAMPLED
    assert "TRACE_CONTEXT" not in received


async def test_a_context_is_not_added_to_properties_near_the_brokers_limit(
    collector: Collector, tmp_path: Path
) -> None:
    """The limit is in bytes; each of these characters has three."""
    received = await delivered_properties({"k": "\u4e2d" * 10_400}, collector, tmp_path)
    assert received["k"] == "\u4e2d" * 10_400
    assert "traceparent" not in received


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(ValidationError, match=r"rocketmq-gantry\[tracing\]"):
        settings.TraceSettings(endpoint="http://collector:4318/v1/traces")
    assert settings.TraceSettings().endpoint is None


def test_only_messages_with_a_context_are_decoded() -> None:
    def record(text: str, body: bytes = b"x" * 30) -> bytes:
        return messages.encode_message(messages.StoredMessage(topic="orders", body=body, properties=text))

    plain, with_context = record(properties.encode({"KEYS": "k"})), record(properties.encode({"traceparent": SAMPLED}))
    other = record(properties.encode({properties.TRACE_CONTEXT: SAMPLED}))
    body = plain + with_context + plain + plain + other + with_context + plain
    decoded = [properties.decode(each.properties) for each in context.messages_with_context(body)]
    assert [set(each) for each in decoded] == [{"traceparent"}, {properties.TRACE_CONTEXT}, {"traceparent"}]
    assert context.messages_with_context(plain * 3) == []
    assert context.messages_with_context(b"") == []
    # The name in a message body is no context, and an incomplete message is ignored.
    assert context.messages_with_context(record("", b"traceparent")) == []
    # A large reply is not searched as a whole; hosts of both sizes, and a topic of the second version.
    large, host = b"x" * 20_000, ("::1", 1)
    hosts: list[dict[str, Any]] = [
        {},
        {"born_host": host, "sys_flag": 16},
        {"store_host": host, "sys_flag": 32},
        {"topic": "t" * 200},
    ]
    for fields in hosts:
        text = properties.encode({"traceparent": SAMPLED})
        known = messages.encode_message(messages.StoredMessage(**{"topic": "orders", "properties": text, **fields}))
        assert len(context.messages_with_context(record("", large) + known + record("", large) + known)) == 2
        assert context.messages_with_context(record("", large + b"traceparent")) == []
    for cut in range(len(with_context)):
        assert len(context.messages_with_context(with_context + with_context[:cut])) == 1
    assert context.messages_with_context(bytes(40) + b"traceparent") == []


def test_trace_context_is_searched_for_in_a_share_of_deliveries_until_found() -> None:
    class Exporter(SpanExporter):
        """An exporter that discards spans."""

        def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracing = Tracing(settings.TraceSettings(share=0), "r1", Exporter())
    pull = Context(FakeChannel(), request(RequestCode.PULL_MESSAGE, **PULL), None, 0.0)

    def contexts_found(text: str) -> int:
        record = messages.encode_message(messages.StoredMessage(topic="orders", properties=text))
        return len(tracing.trace_deliveries(pull, response(0, body=record), 0))

    foreign = properties.encode({properties.TRACE_CONTEXT: SAMPLED})
    own = properties.encode({context.TRACEPARENT: SAMPLED})
    none = properties.encode({"KEYS": "k"})
    assert [contexts_found(foreign), contexts_found(own)] == [1, 1]
    for _ in range(20_000):
        contexts_found(none)
    # One delivery of sixteen is searched, and all of them once a context was found.
    first = next(number for number in range(16) if contexts_found(foreign))
    assert first < 16
    assert [contexts_found(foreign) for _ in range(100)] == [1] * 100
    assert [contexts_found(own) for _ in range(100)] == [1] * 100
    tracing.close()
