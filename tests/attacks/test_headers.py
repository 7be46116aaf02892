"""Field blocks that decode to more than their size (RFC 9113 section 10.5.1, RFC 7541 section 7)."""

import time

import pytest

from tests.attacks.attack_limits import EMPTY_CALL, MIB, within_limits
from tests.attacks.raw_client import END_STREAM, Client, Code, Kind, frame
from tests.conformance.server_process import Server

# RFC 7541 section 6.2.1: name "x" and a value of 4000 bytes. The table holds 4096 bytes, with 32 for each entry.
_BIG_ENTRY = b"\x40\x01x\x7f" + bytes((0xA1, 0x1E)) + b"v" * 4000
# Section 6.1: the index of the newest entry of the dynamic table.
_BIG_ENTRY_INDEX = b"\xbe"


def _block_in_frames(block: bytes) -> bytes:
    parts = [block[begin : begin + 16_384] for begin in range(0, len(block), 16_384)]
    kinds = [Kind.HEADERS] + [Kind.CONTINUATION] * (len(parts) - 1)
    flags = [0] * (len(parts) - 1) + [0x4]
    flags[0] |= END_STREAM
    return b"".join(frame(kind, flag, 1, part) for kind, flag, part in zip(kinds, flags, parts, strict=True))


def _refused(client: Client) -> bool:
    """Return whether the request was refused: by HTTP status 431 (RFC 6585 section 5), reset, or GOAWAY."""
    response = client.responses.get(1)
    return client.goaway is not None or (response is not None and response.finished and response.grpc_status != 0)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(_BIG_ENTRY + _BIG_ENTRY_INDEX * 12_000, id="HPACK bomb"),
        pytest.param(_BIG_ENTRY + _BIG_ENTRY_INDEX * 150_000, id="HPACK bomb over CONTINUATION"),
        pytest.param(b"".join(b"\0\x06x-%04d\x01v" % number for number in range(9_999)), id="many fields"),
        pytest.param(b"\0\1x\x7f\x81\xfe\x05" + b"v" * 98_304, id="one large field"),
        # CVE-2019-9516: empty fields take memory, too. A name must not be empty (RFC 9113 section 8.2.1).
        pytest.param(b"\0\0\0" * 5_000, id="empty fields"),
        pytest.param(b"\x40\0\0" * 5_000, id="empty fields into the table"),
    ],
)
def test_a_large_field_block_is_refused(server: Server, client: Client, more: bytes) -> None:
    octets = _block_in_frames(client.block(client.request(EMPTY_CALL)) + more)
    with within_limits(server):
        client.blast(octets)
        assert client.until(_refused)
    if client.goaway is not None:
        assert client.goaway.code in (Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR, Code.COMPRESSION_ERROR)


def test_an_interrupted_field_block_is_a_protocol_error(server: Server, client: Client) -> None:
    """RFC 9113 section 6.10: frames other than its CONTINUATION are a connection error."""
    with within_limits(server):
        client.send(frame(Kind.HEADERS, 0, 1, client.block(client.request(EMPTY_CALL))))
        client.send(frame(Kind.PING, payload=bytes(8)))
        assert client.goaway_code() == Code.PROTOCOL_ERROR


def test_many_incomplete_field_blocks_take_little_memory(server: Server) -> None:
    """100 connections with an incomplete block each."""
    clients = [Client(server.plain) for _ in range(100)]
    try:
        with within_limits(server, growth=32 * MIB):
            for client in clients:
                client.send(frame(Kind.HEADERS, 0, 1, b"\0\1x\x7f\x81\xfe\x05" + b"v" * 16_000))
            time.sleep(0.5)
    finally:
        for client in clients:
            client.__exit__()


@pytest.mark.parametrize(
    "size",
    [pytest.param(b"\x3f\xe1\xff\x03", id="64 KiB"), pytest.param(b"\x3f" + b"\xff" * 9 + b"\x01", id="64 bits")],
)
def test_a_table_size_over_the_announced_one_is_a_compression_error(
    server: Server, client: Client, size: bytes
) -> None:
    """RFC 7541 section 6.3."""
    with within_limits(server):
        client.send(frame(Kind.HEADERS, 0x5, 1, size + client.block(client.request(EMPTY_CALL))))
        assert client.goaway_code() == Code.COMPRESSION_ERROR
