"""gRPC messages of misleading size or format."""

import gzip
import struct

import grpc
import pytest

from tests.attacks.attack_limits import EMPTY_CALL, MIB, within_limits
from tests.attacks.raw_client import Client, data
from tests.conformance.server_process import Server

_GZIP = ("grpc-encoding", "gzip")
_FRAME = 16_384


def test_a_gzip_bomb_is_resource_exhausted(server: Server, client: Client) -> None:
    """0.5 MiB that decompress to 512 MiB: decompression stops at the limit of a message."""
    bomb = gzip.compress(bytes(64 * MIB)) * 8
    with within_limits(server, growth=32 * MIB):
        client.send(client.headers(1, client.request(EMPTY_CALL, _GZIP)))
        client.upload(1, struct.pack("!BI", 1, len(bomb)) + bomb)
        assert client.response(1).grpc_status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


@pytest.mark.parametrize(
    ("size", "code"),
    [
        pytest.param(64 * MIB, grpc.StatusCode.RESOURCE_EXHAUSTED, id="over the limit"),
        # 0xff bytes are not a valid message, which shows only after decompression.
        pytest.param(7 * MIB, grpc.StatusCode.INTERNAL, id="within the limit"),
    ],
)
def test_concurrent_gzip_bombs_are_decompressed_one_at_a_time(
    server: Server, client: Client, size: int, code: grpc.StatusCode
) -> None:
    """The memory limit holds for all streams together."""
    bomb = gzip.compress(b"\xff" * size)
    streams = range(1, 32, 2)
    octets = b"".join(
        client.headers(stream, client.request(EMPTY_CALL, _GZIP))
        + b"".join(
            data(stream, part, end=len(part) < _FRAME) for part in _parts(struct.pack("!BI", 1, len(bomb)) + bomb)
        )
        for stream in streams
    )
    # Decompressing 16 times 8 MiB takes a good part of a second.
    with within_limits(server, growth=48 * MIB, busy_seconds=2.0):
        client.blast(octets)
        for stream in streams:
            assert client.response(stream).grpc_status == code.value[0]


def _parts(octets: bytes) -> list[bytes]:
    return [octets[begin : begin + _FRAME] for begin in range(0, len(octets), _FRAME)]


def test_a_message_length_of_4_gib_is_refused_at_its_prefix(server: Server, client: Client) -> None:
    """The server neither waits for the message nor allocates memory for it."""
    with within_limits(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 0, 0xFFFF_FFFF) + b"x"))
        assert client.response(1).grpc_status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def test_a_truncated_message_is_internal(server: Server, client: Client) -> None:
    with within_limits(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 0, 9) + b"x", end=True))
        assert client.response(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]


def test_an_unknown_message_flag_is_internal(server: Server, client: Client) -> None:
    with within_limits(server):
        client.send(client.headers(1, client.request(EMPTY_CALL)) + data(1, struct.pack("!BI", 2, 0), end=True))
        assert client.response(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]


def test_invalid_gzip_data_are_internal(server: Server, client: Client) -> None:
    with within_limits(server):
        client.send(client.headers(1, client.request(EMPTY_CALL, _GZIP)))
        client.send(data(1, struct.pack("!BI", 1, 4) + b"junk", end=True))
        assert client.response(1).grpc_status == grpc.StatusCode.INTERNAL.value[0]
