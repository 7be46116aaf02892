"""One suite for both transports: what a client of grpcio sees must not depend on which of them serves."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance import probe
from tests.conformance.conftest import LARGEST
from tests.conformance.interop import INITIAL_KEY, TRAILING_KEY
from tests.conformance.process import Server
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

if TYPE_CHECKING:
    # pytest takes what is called Test… for a test.
    from tests.conformance.protos.grpc.testing.test_pb2_grpc import TestServiceAsyncStub as Service

pytestmark = pytest.mark.anyio

# doc/statuscodes.md of grpc/grpc says INTERNAL; grpcio takes it for any exception of a servicer.
_UNREADABLE = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_FAILURES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


@pytest.fixture
def service(channel: grpc.aio.Channel) -> "Service":
    return test_pb2_grpc.TestServiceStub(channel)


def probing(channel: grpc.aio.Channel, method: str, kind: str = "unary_unary") -> Any:
    return getattr(channel, kind)(f"/{probe.SERVICE}/{method}")


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


async def sizes(answers: Any) -> list[int]:
    return [len(answer.payload.body) async for answer in answers]


async def size_of(reading: Any) -> int:
    return len((await reading).payload.body)


# Sizes.


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_535, 1_000_000, 3_000_000])
async def test_unary_of_any_size(service: "Service", size: int) -> None:
    answer = await service.UnaryCall(SimpleRequest(payload=Payload(body=bytes(size)), response_size=size))
    assert len(answer.payload.body) == size


async def test_a_request_that_is_too_large(service: "Service") -> None:
    error = await failure(service.UnaryCall(SimpleRequest(payload=Payload(body=bytes(LARGEST)))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_request_that_is_too_large_when_inflated(service: "Service") -> None:
    request = SimpleRequest(payload=Payload(body=bytes(LARGEST)))
    error = await failure(service.UnaryCall(request, compression=grpc.Compression.Gzip))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_thousand_calls_at_once(service: "Service") -> None:
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


async def test_a_slow_reader_gets_everything(service: "Service") -> None:
    call, count = service.StreamingOutputCall(outputs(*[100_000] * 100)), 0
    async for answer in call:
        count += len(answer.payload.body)
        await asyncio.sleep(0.001)
    assert count == 10_000_000


async def test_reading_and_writing_by_the_context(channel: grpc.aio.Channel) -> None:
    call = probing(channel, "Echo", "stream_stream")(iter([b"a", b"", b"c"]))
    assert [answer async for answer in call] == [b"a", b"", b"c"]
    assert tuple(await call.trailing_metadata()) == (("echoed", "all"),)


async def test_requests_that_come_late(channel: grpc.aio.Channel) -> None:
    async def requests() -> AsyncIterator[bytes]:
        for letter in (b"a", b"b", b"c"):
            await asyncio.sleep(0.02)
            yield letter

    assert await probing(channel, "Collect", "stream_unary")(requests()) == b"a,b,c"


# Statuses.


@pytest.mark.parametrize("code", _FAILURES, ids=lambda code: code.name)
async def test_every_status(service: "Service", code: grpc.StatusCode) -> None:
    status = EchoStatus(code=code.value[0], message=f"on purpose: {code.name}")
    error = await failure(service.UnaryCall(SimpleRequest(response_status=status)))
    assert (error.code(), error.details()) == (code, f"on purpose: {code.name}")
    call = service.FullDuplexCall(iter([StreamingOutputCallRequest(response_status=status)]))
    error = await failure(sizes(call))
    assert (error.code(), error.details()) == (code, f"on purpose: {code.name}")


@pytest.mark.parametrize("text", ["", "%", "100%25", "\t\n\r ☺ 😈 ", "a" * 4000, "\x7f\x01"])
async def test_any_text(service: "Service", text: str) -> None:
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
async def test_the_ways_to_end(
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


async def test_no_code_is_ok(channel: grpc.aio.Channel) -> None:
    assert await probing(channel, "End")(b"returns") == b"an answer"


async def test_a_rich_status(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "End")(b"aborts with status"))
    [sent] = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    assert sent == b"a google.rpc.Status"


@pytest.mark.parametrize("path", ["/no.such.Service/Method", f"/{probe.SERVICE}/NoSuchMethod"])
async def test_what_is_not_there(channel: grpc.aio.Channel, path: str) -> None:
    method: Any = channel.unary_unary(path)
    error = await failure(method(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    error = await failure(test_pb2_grpc.UnimplementedServiceStub(channel).UnimplementedCall(Empty()))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_request_that_cannot_be_read(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "Undeserializable")(b"x"))
    assert error.code() in _UNREADABLE


async def test_an_answer_that_cannot_be_written(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "Unserializable")(b"x"))
    assert error.code() in _UNREADABLE


# Metadata.


async def test_what_the_servicer_sees(channel: grpc.aio.Channel) -> None:
    sent = (("key", "value"), ("key", "again"), ("data-bin", bytes(range(256))), ("empty", ""), ("spaces", "a b"))
    seen = json.loads(await probing(channel, "Describe")(b"", metadata=sent))
    assert [tuple(pair) for pair in seen["metadata"]] == [
        (key, value if isinstance(value, str) else value.hex()) for key, value in sent
    ]
    assert seen | {"metadata": None} == {
        "metadata": None,
        "time_remaining": None,
        "peer": "ipv4:127.0.0.1",
        "cancelled": False,
        "done": False,
    }


async def test_what_the_client_is_sent(channel: grpc.aio.Channel) -> None:
    call = probing(channel, "End")(b"sends metadata")
    assert tuple(await call.initial_metadata()) == (("initial", "1"), ("initial", "2"), ("initial-bin", b"\0\1\2"))
    assert tuple(await call.trailing_metadata()) == (("trailing", "a, b"), ("trailing-bin", b"\xff"))


async def test_metadata_of_an_abort(channel: grpc.aio.Channel) -> None:
    error = await failure(probing(channel, "End")(b"aborts"))
    assert tuple(error.trailing_metadata()) == (("reason-bin", b"\0\xff"), ("reason", "enough"))


async def test_metadata_in_front_of_an_answer(service: "Service") -> None:
    call = service.FullDuplexCall(metadata=((INITIAL_KEY, "hello"), (TRAILING_KEY, b"\n\x0b")))
    await call.write(outputs(1))
    assert tuple(await call.initial_metadata()) == ((INITIAL_KEY, "hello"),)
    await call.done_writing()
    await sizes(call)
    assert tuple(await call.trailing_metadata()) == ((TRAILING_KEY, b"\n\x0b"),)


# Deadlines and cancellation.


async def test_a_deadline(channel: grpc.aio.Channel) -> None:
    begin = time.monotonic()
    error = await failure(probing(channel, "Hang")(b"", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - begin > 0.15
    await _nothing_hangs(channel)


async def test_a_deadline_of_a_stream(service: "Service") -> None:
    error = await failure(sizes(service.StreamingOutputCall(outputs(1, 1, interval=5), timeout=0.2)))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_time_that_is_left(channel: grpc.aio.Channel) -> None:
    seen = json.loads(await probing(channel, "Describe")(b"", timeout=300))
    # Clients round a timeout up to what they can say in few digits.
    assert 250 < seen["time_remaining"] < 310


async def test_a_servicer_is_cancelled(channel: grpc.aio.Channel) -> None:
    before = json.loads(await probing(channel, "Hanging")(b""))["cancelled"]
    call = probing(channel, "Hang")(b"")
    while not json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
        await asyncio.sleep(0.01)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await _nothing_hangs(channel)
    assert json.loads(await probing(channel, "Hanging")(b""))["cancelled"] == before + 1


async def test_a_servicer_is_cancelled_when_the_client_goes(channel: grpc.aio.Channel, transport: Server) -> None:
    # Not among the connections that grpcio's channels share.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{transport.plain}", options) as other:
        hanging = probing(other, "Hang")(b"")
        while not json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
            await asyncio.sleep(0.01)
    await _nothing_hangs(channel)
    assert hanging.done()


async def _nothing_hangs(channel: grpc.aio.Channel) -> None:
    async with asyncio.timeout(30):
        while json.loads(await probing(channel, "Hanging")(b""))["hanging"]:
            await asyncio.sleep(0.01)


async def test_cancelled_after_an_answer(service: "Service") -> None:
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


async def test_compressed_answers(service: "Service") -> None:
    request = SimpleRequest(response_size=100_000, response_compressed=BoolValue(value=True))
    assert len((await service.UnaryCall(request)).payload.body) == 100_000
    assert await sizes(service.StreamingOutputCall(outputs(100_000, 0, 7, compressed=True))) == [100_000, 0, 7]
