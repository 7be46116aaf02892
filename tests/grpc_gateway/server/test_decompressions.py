"""Decompression in steps: parts of a message, between which other clients are served."""

import asyncio
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.server.compression import PART_BYTES, TooLarge, parts
from grpc_gateway.server.decompressions import Decompressions

pytestmark = pytest.mark.anyio

_MIB = 1 << 20


def _joined(encoding: str, data: bytes, limit: int) -> bytes:
    return b"".join(parts(encoding, data, limit))


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=4), st.integers(0, 9)
)
def test_parts_are_the_data_up_to_the_limit(members: list[bytes], level: int) -> None:
    data, packed = b"".join(members), b"".join(gzip.compress(member, level) for member in members)
    assert _joined("gzip", packed, len(data)) == data
    assert _joined("deflate", zlib.compress(data, level), len(data)) == data
    if data:
        with pytest.raises(TooLarge):
            _joined("gzip", packed, len(data) - 1)


@pytest.mark.parametrize("size", [0, 10, PART_BYTES, 3 * PART_BYTES + 1])
def test_a_truncated_message_has_no_end(size: int) -> None:
    packed = gzip.compress(bytes(size))
    for stop in range(0, len(packed), max(len(packed) // 50, 1)):
        with pytest.raises(ValueError, match="truncated"):
            _joined("gzip", packed[:stop], size)


def test_parts_are_small() -> None:
    sizes = [len(part) for part in parts("gzip", gzip.compress(bytes(16 * _MIB)), 16 * _MIB)]
    assert sum(sizes) == 16 * _MIB
    assert max(sizes) <= PART_BYTES


async def test_other_clients_are_served_between_the_parts_of_messages() -> None:
    """And one message after the other is decompressed, so that memory does not grow with their number."""
    decompressions, packed = Decompressions(), gzip.compress(bytes(8 * _MIB))
    ended: list[int] = []
    iterations = 0

    async def decompress(number: int) -> None:
        assert len(await decompressions.decompress("gzip", packed, 8 * _MIB)) == 8 * _MIB
        ended.append(iterations)

    tasks = [asyncio.ensure_future(decompress(number)) for number in range(3)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        iterations += 1
    assert len(ended) == 3
    assert all(after - before >= 8 for before, after in zip([0, *ended], ended, strict=False))


async def test_a_cancelled_decompression_does_not_hold_the_others() -> None:
    decompressions, packed = Decompressions(), gzip.compress(bytes(8 * _MIB))
    first, second = (asyncio.ensure_future(decompressions.decompress("gzip", packed, 8 * _MIB)) for _ in range(2))
    for _ in range(4):
        await asyncio.sleep(0)
    first.cancel()
    assert len(await asyncio.wait_for(second, 30.0)) == 8 * _MIB
