"""gRPC messages that lie about their size."""

import gzip
import struct

import grpc
import pytest

from tests.attacks.raw import Client, data
from tests.attacks.siege import EMPTY_CALL, MIB, siege
from tests.conformance.process import Server

_GZIP = ("grpc-encoding", "gzip")
_FRAME = 16_384


def test_a_gzip_bomb(server: Server, client: Client) -> None:
    """0.5 MiB that would become 512 MiB: inflating stops at the largest message that is allowed."""
    bomb = gzip.compress(bytes(64 * MIB)) * 8
    with siege(server, growth=32 * MIB):
        client.send(client.headers(1, client.request(EMPTY_CALL, _GZIP)))
        client.upload(1, struct.pack("!BI", 1, len(bomb)) + bomb)
        assert client.answer(1).grpc_status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


@pytest.mark.parametrize(
    ("size", "code"),
    [
        pytest.param(64 * MIB, grpc.StatusCode.RESOURCE_EXHAUSTED, id="too large"),
        # Zeros are no message, but that shows only when they are there.
        pytest.param(7 * MIB, grpc.StatusCode.INTERNAL, id="just allowed"),
    ],
)
def test_many_gzip_bombs(server: Server, client: Client, size: int, code: grpc.StatusCode) -> None:
    """What one stream may not, many together may not either: they are inflated one after the other."""
    bomb = gzip.compress(b"\xff" * size)
    streams = range(1, 32, 2)
    octets = b"".join(
        client.headers(stream, client.request(EMPTY_CALL, _GZIP))
        + b"".join(
            data(stream, part, end=len(part) < _FRAME) for part in _parts(struct.pack("!BI", 1, len(bomb)) + bomb)
        )
        for stream in streams
    )
    # 16 times 8 MiB to inflate is work for a good part of a second, whoever waits.
    with siege(server, growth=48 * MIB, patience=2.0):
        client.blast(octets)
        for stream in streams:
            assert client.answer(stream, 5).grpc_status == code.value[0]


def _parts(octets: bytes) -> list[bytes]:
    return [octets[begin : begin + _FRAME] for begin in range(0, len(octets), _FRAME)]


def test_a_length_of_4_gib(server: Server, client: Client) -> None:
    """The prefix alone is enough to refuse it; nothing is waited for, or set aside."""
    with siege(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 0, 0xFFFF_FFFF) + b"x"))
        assert client.answer(1).grpc_status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def test_a_message_that_is_cut_off(server: Server, client: Client) -> None:
    with siege(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 0, 9) + b"x", end=True))
        assert client.answer(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]


def test_a_flag_that_means_nothing(server: Server, client: Client) -> None:
    with siege(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 2, 0), end=True))
        assert client.answer(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]


def test_garbage_in_gzip(server: Server, client: Client) -> None:
    with siege(server):
        client.send(client.headers(1, client.request(EMPTY_CALL, _GZIP)))
        client.send(data(1, struct.pack("!BI", 1, 4) + b"what", end=True))
        assert client.answer(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]
