"""Behaviour that is equal on both transports for grpcio's client."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance import probe_service
from tests.conformance.conftest import MAX_MESSAGE
from tests.conformance.interop_service import INITIAL_KEY, TRAILING_KEY
from tests.conformance.protos.grpc.testing import test_pb2_grpc
from tests.conformance.protos.grpc.testing.empty_pb2 import Empty
from tests.conformance.protos.grpc.testing.messages_pb2 import (
    BoolValue,
    EchoStatus,
    Payload,
    ResponseParameters,
    SimpleRequest,
    StreamingInputCallRequest,
    StreamingOutputCallRequest,
)
from tests.conformance.server_process import Server

if TYPE_CHECKING:
    # pytest would collect a class whose name begins with Test.
    from tests.conformance.protos.grpc.testing.test_pb2_grpc import TestServiceAsyncStub as Service

pytestmark = pytest.mark.anyio

# doc/statuscodes.md of grpc/grpc requires INTERNAL; grpcio treats it as an exception of the servicer.
_SERIALIZATION_FAILURES = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_FAILURES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


@pytest.fixture
def service(channel: grpc.aio.Channel) -> "Service":
    return test_pb2_grpc.TestServiceStub(channel)


def probing(channel: grpc.aio.Channel, method: str, kind: str = "unary_unary") -> Any:
    return getattr(channel, kind)(f"/{probe_service.SERVICE}/{method}")


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(call, 30)
    return raised.value


def outputs(*sizes: int, compressed: bool = False, interval: float = 0.0) -> StreamingOutputCallRequest:
    parameters = [
        ResponseParameters(size=size, compressed=BoolValue(value=compressed), interval_us=int(interval * 1e6))
        for size in sizes
    ]
    return StreamingOutputCallRequest(response_parameters=parameters)


async def sizes(responses: Any) -> list[int]:
    return [len(response.payload.body) async for response in responses]


async def size_of(reading: Any) -> int:
    return len((await reading).payload.body)


# Sizes.


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_535, 1_000_000, 3_000_000])
async def test_unary_call_of_any_size(service: "Service", size: int) -> None:
    answer = await service.UnaryCall(SimpleRequest(payload=Payload(body=bytes(size)), response_size=size))
    assert len(answer.payload.body) == size


async def test_a_request_over_the_limit_is_resource_exhausted(service: "Service") -> None:
    error = await failure(service.UnaryCall(SimpleRequest(payload=Payload(body=bytes(MAX_MESSAGE)))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_request_over_the_limit_when_decompressed_is_resource_exhausted(service: "Service") -> None:
    request = SimpleRequest(payload=Payload(body=bytes(MAX_MESSAGE)))
    error = await failure(service.UnaryCall(request, compression=grpc.Compression.Gzip))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_thousand_concurrent_calls(service: "Service") -> None:
    request = SimpleRequest(payload=Payload(body=b"x"), response_size=100)
    answers = await asyncio.gather(*(service.UnaryCall(request) for _ in range(1000)))
    assert {len(answer.payload.body) for answer in answers} == {100}


# Streams.


async def test_client_streaming(service: "Service") -> None:
    requests = [StreamingInputCallRequest(payload=Payload(body=bytes(size))) for size in (0, 100_000, 1)]
    answer = await service.StreamingInputCall(iter(requests))
    assert answer.aggregated_payload_size == 100_001


async def test_server_streaming(service: "Service") -> None:
    assert await sizes(service.StreamingOutputCall(outputs(0, 200_000, 1))) == [0, 200_000, 1]


async def test_ping_pong(service: "Service") -> None:
    call = service.FullDuplexCall()
    for size in (1, 100_000, 0):
        await call.write(outputs(size))
        assert await size_of(call.read()) == size
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_half_duplex(service: "Service") -> None:
    assert await sizes(service.HalfDuplexCall(iter([outputs(1), outputs(2, 3)]))) == [1, 2, 3]


async def test_streams_without_messages(service: "Service") -> None:
    assert await sizes(service.FullDuplexCall(iter([]))) == []
    assert await sizes(service.StreamingOutputCall(outputs())) == []
    assert (await service.StreamingInputCall(iter([]))).aggregated_payload_size == 0


async def test_a_slow_reader_receives_everything(service: "Service") -> None:
    call, count = service.StreamingOutputCall(outputs(*[100_000] * 100)), 0
    async for answer in call:
        count += len(answer.payload.body)
        await asyncio.sleep(0.001)
    assert count == 10_000_000


async def test_context_reads_and_writes(channel: grpc.aio.Channel) -> None:
    call = probing(channel, "Echo", "stream_stream")(iter([b"a", b"", b"c"]))
    assert [answer async for answer in call] == [b"a", b"", b"c"]
    assert tuple(await call.trailing_metadata()) == (("echoed", "all"),)


async def test_delayed_request_messages(channel: grpc.aio.Channel) -> None:
    async def requests() -> AsyncIterator[bytes]:
        for letter in (b"a", b"b", b"c"):
            await asyncio.sleep(0.02)
            yield letter

    assert await probing(channel, "Collect", "stream_unary")(requests()) == b"a,b,c"


# Statuses.


@pytest.mark.parametrize("code", _FAILURES, ids=lambda code: code.name)
async def test_every_status_is_sent(service: "Service", code: grpc.StatusCode) -> None:
    status = EchoStatus(code=code.value[0], message=f"on purpose: {code.name}")
    error = await failure(service.UnaryCall(SimpleRequest(response_status=status)))
    assert (error.code(), error.details()) == (code, f"on purpose: {code.name}")
    call = service.FullDuplexCall(iter([StreamingOutputCallRequest(response_status=status)]))
    error = await failure(sizes(call))
    assert (error.code(), error.details()) == (code, f"on purpose: {code.name}")


@pytest.mark.parametrize("text", ["", "%", "100%25", "\t\n\r ☺ 😈 ", "a" * 4000, "\x7f\x01"])
async def test_any_status_message_is_sent(service: "Service", text: str) -> None:
    error = await failure(service.UnaryCall(SimpleRequest(response_status=EchoStatus(code=2, message=text))))
    assert error.details() == text


@pytest.mark.parametrize(
    ("ending", "code", "details"),
    [
        ("raises", grpc.StatusCode.UNKNOWN, None),
        ("raises with code", grpc.StatusCode.DATA_LOSS, None),
        ("sets code", grpc.StatusCode.NOT_FOUND, "no such thing"),
        ("aborts", grpc.StatusCode.ABORTED, "enough"),
        ("aborts with status", grpc.StatusCode.FAILED_PRECONDITION, "not yet"),
        ("sends metadata twice", grpc.StatusCode.UNKNOWN, None),
    ],
)
@pytest.mark.parametrize("method", ["End", "EndStream"])
async def test_each_ending_of_a_handler_gives_its_status(
    channel: grpc.aio.Channel, method: str, ending: str, code: grpc.StatusCode, details: str | None
) -> None:
    if method == "End":
        error = await failure(probing(channel, "End")(ending.encode()))
    else:
        call = probing(channel, "EndStream", "unary_stream")(ending.encode())
        assert await call.read() == b"first"
        error = await failure(call.read())
    assert error.code() is code
    assert details is None or error.details() == details


async def test_a_handler_without_a_code_ends_with_ok(channel: grpc.aio.Channel) -> None:
    assert await probing(channel, "End")(b"returns") == b"an answer"


async def test_abort_with_a_rich_status(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "End")(b"aborts with status"))
    [sent] = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    assert sent == b"a google.rpc.Status"


@pytest.mark.parametrize("path", ["/no.such.Service/Method", f"/{probe_service.SERVICE}/NoSuchMethod"])
async def test_unknown_services_and_methods_are_unimplemented(channel: grpc.aio.Channel, path: str) -> None:
    method: Any = channel.unary_unary(path)
    error = await failure(method(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    error = await failure(test_pb2_grpc.UnimplementedServiceStub(channel).UnimplementedCall(Empty()))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_request_that_cannot_be_deserialized_fails(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "Undeserializable")(b"x"))
    assert error.code() in _SERIALIZATION_FAILURES


async def test_a_response_that_cannot_be_serialized_fails(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "Unserializable")(b"x"))
    assert error.code() in _SERIALIZATION_FAILURES


# Metadata.


async def test_context_of_the_servicer(channel: grpc.aio.Channel) -> None:
    sent = (("key", "value"), ("key", "again"), ("data-bin", bytes(range(256))), ("empty", ""), ("spaces", "a b"))
    context = json.loads(await probing(channel, "Describe")(b"", metadata=sent))
    assert [tuple(pair) for pair in context["metadata"]] == [
        (key, value if isinstance(value, str) else value.hex()) for key, value in sent
    ]
    assert context | {"metadata": None} == {
        "metadata": None,
        "time_remaining": None,
        "peer": "ipv4:127.0.0.1",
        "cancelled": False,
        "done": False,
    }


async def test_initial_and_trailing_metadata(channel: grpc.aio.Channel) -> None:
    call = probing(channel, "End")(b"sends metadata")
    assert tuple(await call.initial_metadata()) == (("initial", "1"), ("initial", "2"), ("initial-bin", b"\0\1\2"))
    assert tuple(await call.trailing_metadata()) == (("trailing", "a, b"), ("trailing-bin", b"\xff"))


async def test_abort_sends_metadata(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "End")(b"aborts"))
    assert tuple(error.trailing_metadata()) == (("reason-bin", b"\0\xff"), ("reason", "enough"))


async def test_initial_metadata_precede_the_response(service: "Service") -> None:
    call = service.FullDuplexCall(metadata=((INITIAL_KEY, "hello"), (TRAILING_KEY, b"\n\x0b")))
    await call.write(outputs(1))
    assert tuple(await call.initial_metadata()) == ((INITIAL_KEY, "hello"),)
    await call.done_writing()
    await sizes(call)
    assert tuple(await call.trailing_metadata()) == ((TRAILING_KEY, b"\n\x0b"),)


# Deadlines and cancellation.


async def test_deadline_of_a_unary_call(channel: grpc.aio.Channel) -> None:
    begin = time.monotonic()
    error = await failure(probing(channel, "Hang")(b"", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - begin > 0.15
    await _wait_for_no_hanging_calls(channel)


async def test_deadline_of_a_stream(service: "Service") -> None:
    error = await failure(sizes(service.StreamingOutputCall(outputs(1, 1, interval=5), timeout=0.2)))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_time_remaining(channel: grpc.aio.Channel) -> None:
    context = json.loads(await probing(channel, "Describe")(b"", timeout=300))
    # Clients round a timeout up to a few digits.
    assert 250 < context["time_remaining"] < 310


async def test_cancellation_cancels_the_servicer(channel: grpc.aio.Channel) -> None:
    before = json.loads(await probing(channel, "Hanging")(b""))["cancelled"]
    call = probing(channel, "Hang")(b"")
    while not json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
        await asyncio.sleep(0.01)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await _wait_for_no_hanging_calls(channel)
    assert json.loads(await probing(channel, "Hanging")(b""))["cancelled"] == before + 1


async def test_a_closed_connection_cancels_the_servicer(channel: grpc.aio.Channel, transport: Server) -> None:
    # Do not share the connection of other channels.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{transport.plain}", options) as other:
        hanging = probing(other, "Hang")(b"")
        while not json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
            await asyncio.sleep(0.01)
    await _wait_for_no_hanging_calls(channel)
    assert hanging.done()


async def _wait_for_no_hanging_calls(channel: grpc.aio.Channel) -> None:
    async with asyncio.timeout(30):
        while json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
            await asyncio.sleep(0.01)


async def test_cancellation_after_a_response(service: "Service") -> None:
    call = service.FullDuplexCall()
    await call.write(outputs(31_415))
    assert await size_of(call.read()) == 31_415
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


# Compression.


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression])
async def test_compressed_requests(service: "Service", algorithm: grpc.Compression) -> None:
    request = SimpleRequest(payload=Payload(body=bytes(100_000)), response_size=1)
    assert len((await service.UnaryCall(request, compression=algorithm)).payload.body) == 1
    requests = [StreamingInputCallRequest(payload=Payload(body=bytes(50_000)))] * 3
    answer = await service.StreamingInputCall(iter(requests), compression=algorithm)
    assert answer.aggregated_payload_size == 150_000


async def test_compressed_responses(service: "Service") -> None:
    request = SimpleRequest(response_size=100_000, response_compressed=BoolValue(value=True))
    assert len((await service.UnaryCall(request)).payload.body) == 100_000
    assert await sizes(service.StreamingOutputCall(outputs(100_000, 0, 7, compressed=True))) == [100_000, 0, 7]
