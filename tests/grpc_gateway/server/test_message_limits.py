"""Compression, size limits and flow control of messages, with grpcio's client."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from grpc_gateway.server import ServerOptions
from tests.grpc_gateway.server.servers import (
    STREAM_UNARY,
    UNARY,
    UNARY_STREAM,
    path,
    serving,
    status_of,
)

pytestmark = pytest.mark.anyio


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def join(requests: AsyncIterator[bytes], _: Any) -> bytes:
    return b",".join([request async for request in requests])


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_unary_call(algorithm: grpc.Compression) -> None:
    async def compressed(request: bytes, context: Any) -> bytes:
        context.set_compression(algorithm)
        return request

    async with serving({"Echo": UNARY(compressed)}, compression=algorithm) as (_, channel):
        assert await channel.unary_unary(path("Echo"))(b"x" * 100_000) == b"x" * 100_000


async def test_compressed_stream_with_uncompressed_messages() -> None:
    async def numbers(_: bytes, context: Any) -> AsyncIterator[bytes]:
        context.set_compression(grpc.Compression.Gzip)
        context.disable_next_message_compression()
        for number in range(10):
            yield b"%d" % number * 1000

    async with serving({"Count": UNARY_STREAM(numbers)}) as (_, channel):
        messages = [message async for message in channel.unary_stream(path("Count"))(b"")]
        assert messages == [b"%d" % number * 1000 for number in range(10)]


async def test_a_decompression_bomb_is_refused() -> None:
    options = ServerOptions(max_receive_message=1_000_000)
    async with serving({"Echo": UNARY(echo)}, options, compression=grpc.Compression.Gzip) as (_, channel):
        assert len(gzip.compress(b"x" * 5_000_000)) < 10_000
        code, details = await status_of(channel.unary_unary(path("Echo"))(b"x" * 5_000_000))
        assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "a message is larger than 1000000 bytes")


@pytest.mark.parametrize("handler", [UNARY(echo), STREAM_UNARY(join)])
async def test_messages_over_the_limits_are_refused(handler: Any) -> None:
    options = ServerOptions(max_receive_message=1000, max_send_message=900)
    async with serving({"Echo": handler}, options) as (_, channel):
        if handler.request_streaming:
            stream = channel.stream_unary(path("Echo"))
            call: Any = lambda message: stream(iter([message]))  # noqa: E731
        else:
            call = channel.unary_unary(path("Echo"))
        assert await call(b"x" * 900) == b"x" * 900
        assert (await status_of(call(b"x" * 1001)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await status_of(call(b"x" * 901)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_slow_client_blocks_the_writer() -> None:
    written = 0

    async def write_many(_: bytes, context: Any) -> None:
        nonlocal written
        for _number in range(200):
            await context.write(b"x" * 100_000)
            written += 1

    # Otherwise the client widens its window with the bandwidth that it measures.
    client_options = (("grpc.http2.bdp_probe", 0),)
    async with serving({"WriteMany": UNARY_STREAM(write_many)}, client_options=client_options) as (server, channel):
        call = channel.unary_stream(path("WriteMany"))(b"")
        assert len(await call.read()) == 100_000
        before = -1
        async with asyncio.timeout(30):
            while written != before:
                before = written
                await asyncio.sleep(0.3)
        assert before < 150
        count = 1
        while await call.read() is not grpc.aio.EOF:
            count += 1
        assert (count, written) == (200, 200)
        assert next(iter(server.connections)).http2.sender.waiting == 0


async def test_a_slow_handler_blocks_the_client() -> None:
    go_on = asyncio.Event()
    sent = 0

    async def total_size(requests: AsyncIterator[bytes], _: Any) -> bytes:
        await go_on.wait()
        return b"%d" % sum([len(request) async for request in requests])

    async with serving({"TotalSize": STREAM_UNARY(total_size)}) as (_, channel):
        call = channel.stream_unary(path("TotalSize"))()

        async def send() -> None:
            nonlocal sent
            for _ in range(100):
                await call.write(b"x" * 100_000)
                sent += 1
            await call.done_writing()

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.3)
        assert sent < 50
        go_on.set()
        await sending
        assert await call == b"10000000"
