"""Field blocks that mean more than they weigh (RFC 9113 section 10.5.1, RFC 7541 section 7)."""

import time

import pytest

from tests.attacks.raw import END_STREAM, Client, Code, Kind, frame
from tests.attacks.siege import EMPTY_CALL, MIB, siege
from tests.conformance.process import Server

# RFC 7541 section 6.2.1, name "x" and a value of 4000 bytes; the table holds 4096 with 32 for each entry.
_BIG_ENTRY = b"\x40\x01x\x7f" + bytes((0xA1, 0x1E)) + b"v" * 4000
# Section 6.1: the newest entry of the dynamic table, in one byte.
_ITS_INDEX = b"\xbe"


def _block_in_frames(block: bytes) -> bytes:
    parts = [block[begin : begin + 16_384] for begin in range(0, len(block), 16_384)]
    kinds = [Kind.HEADERS] + [Kind.CONTINUATION] * (len(parts) - 1)
    flags = [0] * (len(parts) - 1) + [0x4]
    flags[0] |= END_STREAM
    return b"".join(frame(kind, flag, 1, part) for kind, flag, part in zip(kinds, flags, parts, strict=True))


def _refused(client: Client) -> bool:
    """By HTTP's own status (RFC 6585 section 5: 431), by a reset, or by the end of the connection."""
    answer = client.answers.get(1)
    return client.goaway is not None or (answer is not None and answer.finished and answer.grpc_status != 0)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(_BIG_ENTRY + _ITS_INDEX * 12_000, id="HPACK bomb"),
        pytest.param(_BIG_ENTRY + _ITS_INDEX * 150_000, id="HPACK bomb over CONTINUATION"),
        pytest.param(b"".join(b"\0\x06x-%04d\x01v" % number for number in range(9_999)), id="many fields"),
        pytest.param(b"\0\1x\x7f\x81\xfe\x05" + b"v" * 98_304, id="one large field"),
        # CVE-2019-9516: nothing in them, yet each is remembered. A name must not be empty (RFC 9113 section 8.2.1).
        pytest.param(b"\0\0\0" * 5_000, id="empty fields"),
        pytest.param(b"\x40\0\0" * 5_000, id="empty fields into the table"),
    ],
)
def test_a_large_field_block_is_refused(server: Server, client: Client, more: bytes) -> None:
    octets = _block_in_frames(client.block(client.request(EMPTY_CALL)) + more)
    with siege(server):
        client.blast(octets)
        assert client.until(_refused)
    if client.goaway is not None:
        assert client.goaway.code in (Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR, Code.COMPRESSION_ERROR)


def test_an_unfinished_field_block_allows_nothing_else(server: Server, client: Client) -> None:
    """RFC 9113 section 6.10: anything but its CONTINUATION is a connection error PROTOCOL_ERROR."""
    with siege(server):
        client.send(frame(Kind.HEADERS, 0, 1, client.block(client.request(EMPTY_CALL))))
        client.send(frame(Kind.PING, payload=bytes(8)))
        assert client.fate() == Code.PROTOCOL_ERROR


def test_unfinished_field_blocks_are_small(server: Server) -> None:
    """As many connections as an attacker likes hold a block open; what each holds is bounded."""
    clients = [Client(server.plain) for _ in range(100)]
    try:
        with siege(server, growth=32 * MIB):
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
def test_the_table_is_not_made_larger(server: Server, client: Client, size: bytes) -> None:
    """RFC 7541 section 6.3: a table size beyond the one that was announced is a decoding error."""
    with siege(server):
        client.send(frame(Kind.HEADERS, 0x5, 1, size + client.block(client.request(EMPTY_CALL))))
        assert client.fate() == Code.COMPRESSION_ERROR
