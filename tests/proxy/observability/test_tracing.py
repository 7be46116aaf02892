"""Traces: what spans there are, and which context messages carry."""

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
from tests.proxy.replica import Client, running

pytestmark = pytest.mark.anyio

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


class Collector:
    """An OTLP/HTTP collector; `spans` is everything that came."""

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
                """A test's output has enough lines."""

        self.server = HTTPServer(("127.0.0.1", 0), Take)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def one(self, name: str) -> Any:
        [found] = [span for span in self.spans if span.name == name]
        return found


def _attributes(holder: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in holder.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@asynccontextmanager
async def traced(collector: Collector, directory: Path, share: float = 0) -> AsyncIterator[tuple[App, Client]]:
    """A replica that sends what it has when it ends."""
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


async def test_a_messages_trace_goes_from_its_producer_to_its_consumer(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path) as (app, client):
        seen: list[Observation] = []
        app.core.observers.append(seen.append)
        await client.ask(send(traceparent=SAMPLED, KEYS="a secret key"))
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
        assert app.tracing is not None
        assert app.tracing.spans == {"request": 1, "delivery": 1}
    assert [one.trace_id for one in seen] == [TRACE, None]
    sent, delivered = collector.one("send orders"), collector.one("deliver orders")
    assert sent.trace_id.hex() == delivered.trace_id.hex() == TRACE
    assert sent.parent_span_id.hex() == SPAN
    assert delivered.parent_span_id == sent.span_id
    # The consumer goes on from there.
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


async def test_nothing_is_sampled_that_its_producer_left_out(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(send(traceparent=UNSAMPLED))
    assert [span.name for span in collector.spans] == []


async def test_a_share_of_the_others_is_sampled(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(send())
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
        await client.ask(request(4711))
    sent, received = collector.one("send orders"), collector.one("receive orders")
    assert collector.one("deliver orders").trace_id == sent.trace_id != received.trace_id
    [link] = received.links
    assert link.span_id == sent.span_id
    [message] = messages.decode_messages(pulled.body)
    assert message.get(context.TRACEPARENT) == f"00-{sent.trace_id.hex()}-{sent.span_id.hex()}-01"


async def test_errors_are_marked(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        await client.ask(request(RequestCode.PULL_MESSAGE, **{**PULL, "topic": "nowhere"}))
    span = collector.one("receive nowhere")
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert _attributes(span)["error.type"] == "17"


async def test_signed_messages_stay_as_they_are(collector: Collector, tmp_path: Path) -> None:
    async with traced(collector, tmp_path, share=1) as (_, client):
        signed = send()
        signed.fields["Signature"] = "c2ln"
        await client.ask(signed)
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
    [message] = messages.decode_messages(pulled.body)
    assert message.get(context.TRACEPARENT) is None
    assert collector.one("send orders").trace_id


async def test_grpc_clients_messages_carry_it_in_their_trace_context(collector: Collector, tmp_path: Path) -> None:
    who = (("x-mq-client-id", "c1"), ("x-mq-language", "GO"), ("x-mq-client-version", "5.1.4"))
    topic = types.Resource(name="orders")
    system = types.SystemProperties(message_id="m", trace_context=SAMPLED)
    wanted = pb.ReceiveMessageRequest(
        group=types.Resource(name="g"),
        message_queue=types.MessageQueue(topic=topic),
        batch_size=4,
        invisible_duration=Duration(seconds=20),
        filter_expression=types.FilterExpression(type=types.FilterType.TAG, expression="*"),
    )
    seen: list[Observation] = []
    async with traced(collector, tmp_path) as (app, client):
        # Makes the topic.
        await client.ask(send())
        app.core.observers.append(seen.append)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{app.addresses[0].port}") as channel:
            stub: Any = MessagingServiceStub(channel)
            message = types.Message(topic=topic, body=b"1", system_properties=system)
            answer = await stub.SendMessage(pb.SendMessageRequest(messages=[message]), metadata=who)
            assert answer.status.code == Code.OK
            found: list[types.Message] = []
            async with asyncio.timeout(30):
                while len(found) < 2:
                    responses = [one async for one in stub.ReceiveMessage(wanted, metadata=who)]
                    found += [one.message for one in responses if one.HasField("message")]
    sent = collector.one("send orders")
    assert sent.parent_span_id.hex() == SPAN
    assert seen[0].trace_id == TRACE
    [carried] = [one.system_properties.trace_context for one in found if one.body == b"1"]
    assert carried == f"00-{TRACE}-{sent.span_id.hex()}-01"
    assert collector.one("deliver orders").parent_span_id == sent.span_id


@pytest.mark.parametrize(
    "text",
    [
        *("", "nonsense", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"),
        *(TRACE, f"ff-{TRACE}-{SPAN}-01", f"{SAMPLED}-more"),
    ],
)
def test_contexts_that_make_no_sense_are_none(text: str) -> None:
    assert context.of_message(properties.encode({"traceparent": text})) is None


@pytest.mark.parametrize("text", [SAMPLED, f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-of a later version"])
def test_contexts(text: str) -> None:
    found = context.of_message(properties.encode({"traceparent": text}))
    assert found is not None
    assert found.trace_id == TRACE


async def carried(pairs: dict[str, str], collector: Collector, directory: Path) -> dict[str, str]:
    """A sampled message's properties as its consumer gets them."""
    async with traced(collector, directory, share=1) as (_, client):
        await client.ask(send(**pairs))
        pulled = await client.ask(request(RequestCode.PULL_MESSAGE, **PULL))
    [message] = messages.decode_messages(pulled.body)
    return message.property_map


async def test_another_systems_context_stays_as_it_is(collector: Collector, tmp_path: Path) -> None:
    b3 = f"{TRACE}-{SPAN}-1"
    found = await carried({"TRACE_CONTEXT": b3}, collector, tmp_path)
    assert found["TRACE_CONTEXT"] == b3
    assert found["traceparent"].startswith("00-")


async def test_a_message_gets_no_property_that_its_producer_did_not_use(collector: Collector, tmp_path: Path) -> None:
    found = await carried({"MY_TRACE_CONTEXT": SAMPLED}, collector, tmp_path)
    assert found["MY_TRACE_CONTEXT"] == SAMPLED
    assert "TRACE_CONTEXT" not in found


async def test_properties_never_become_too_long_by_ours(collector: Collector, tmp_path: Path) -> None:
    """Bytes count: here there are three in each character."""
    found = await carried({"k": "\u4e2d" * 10_400}, collector, tmp_path)
    assert found["k"] == "\u4e2d" * 10_400
    assert "traceparent" not in found


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(ValidationError, match=r"rocketmq-gantry\[tracing\]"):
        settings.TraceSettings(endpoint="http://collector:4318/v1/traces")
    assert settings.TraceSettings().endpoint is None


def test_only_records_that_carry_something_are_decoded() -> None:
    def record(text: str, body: bytes = b"x" * 30) -> bytes:
        return messages.encode_message(messages.StoredMessage(topic="orders", body=body, properties=text))

    plain, carrying = record(properties.encode({"KEYS": "k"})), record(properties.encode({"traceparent": SAMPLED}))
    other = record(properties.encode({properties.TRACE_CONTEXT: SAMPLED}))
    body = plain + carrying + plain + plain + other + carrying + plain
    found = [properties.decode(one.properties) for one in context.carriers(body)]
    assert [set(one) for one in found] == [{"traceparent"}, {properties.TRACE_CONTEXT}, {"traceparent"}]
    assert context.carriers(plain * 3) == []
    assert context.carriers(b"") == []
    # A body that says the name is no context, and one that breaks off is no harm.
    assert [one.get("traceparent") for one in context.carriers(record("", b"traceparent"))] == [None]
    for cut in range(len(carrying)):
        assert len(context.carriers(carrying + carrying[:cut])) == 1
    assert context.carriers(bytes(40) + b"traceparent") == []


def test_contexts_of_others_are_looked_for_now_and_then_until_there_are_some() -> None:
    class Exporter(SpanExporter):
        """Nobody looks at the spans."""

        def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracing = Tracing(settings.TraceSettings(share=0), "r1", Exporter())
    pull = Context(FakeChannel(), request(RequestCode.PULL_MESSAGE, **PULL), None, 0.0)

    def found(text: str) -> int:
        record = messages.encode_message(messages.StoredMessage(topic="orders", properties=text))
        return len(tracing.delivered(pull, response(0, body=record), 0))

    theirs = properties.encode({properties.TRACE_CONTEXT: SAMPLED})
    ours = properties.encode({context.TRACEPARENT: SAMPLED})
    none = properties.encode({"KEYS": "k"})
    assert [found(theirs), found(ours)] == [1, 1]
    for _ in range(20_000):
        found(none)
    # One of sixteen; once it is there, all.
    first = next(number for number in range(16) if found(theirs))
    assert first < 16
    assert [found(theirs) for _ in range(100)] == [1] * 100
    assert [found(ours) for _ in range(100)] == [1] * 100
    tracing.close()
