"""Decompression of delivered messages: its limit, and its turns."""

import asyncio
from dataclasses import replace

import pytest

from grpc_gateway.consuming.body_decompression import BodyDecompression
from remoting import messages
from remoting.compression import CompressionType
from remoting.messages import StoredMessage
from tests.grpc_gateway.messages import stored

pytestmark = pytest.mark.anyio

_LIMIT = 1024 * 1024


def compressed(size: int, kind: CompressionType = CompressionType.ZLIB) -> StoredMessage:
    """Return a stored message of a compressed body of zeros."""
    body, bits = messages.compress(bytes(size), kind)
    return replace(stored(1, body=body), sys_flag=bits)


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize(("size", "decompressed"), [(_LIMIT, True), (_LIMIT + 1, False)])
async def test_a_body_over_the_maximum_is_delivered_as_it_is_stored(
    kind: CompressionType, size: int, decompressed: bool
) -> None:
    message = compressed(size, kind)
    delivered = await BodyDecompression(_LIMIT).message(message, topic="orders", receipt_handle="h", delivery_attempt=2)
    assert delivered.body == (bytes(size) if decompressed else message.body)
    assert delivered.system_properties.receipt_handle == "h"
    assert delivered.system_properties.delivery_attempt == 2


@pytest.mark.parametrize("size", [_LIMIT, 4 * _LIMIT], ids=["within the limit", "over the limit"])
async def test_large_bodies_take_turns_with_other_work(size: int) -> None:
    """Five clients receive at the same time; others have a turn of the event loop after each body."""
    decompression = BodyDecompression(_LIMIT)
    finished: list[str] = []

    async def receive() -> None:
        await decompression.message(compressed(size), topic="orders")
        finished.append("message")

    async def work() -> None:
        while finished.count("message") < 5:
            finished.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(work(), *(receive() for _ in range(5)))
    assert "message message" not in " ".join(finished)
