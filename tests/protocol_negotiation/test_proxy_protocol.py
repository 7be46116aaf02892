import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_negotiation.detect import PROXY_V2_SIGNATURE
from protocol_negotiation.peer import HostPort
from protocol_negotiation.proxy_protocol import (
    TLV_CRC32C,
    TLV_NOOP,
    V1_MAX_SIZE,
    V2_MAX_LENGTH,
    ProxyHeader,
    ProxyProtocolError,
    crc32c,
    parse,
)
from tests.protocol_negotiation.samples import (
    PROXY_V1,
    PROXY_V2,
    encode_v2,
    tcp4,
)

CLIENT, DIALLED = HostPort("192.0.2.7", 51000), HostPort("198.51.100.9", 8080)
TCP4 = tcp4("192.0.2.7", "198.51.100.9", 51000, 8080)


def tcp6(source: str, destination: str, source_port: int, destination_port: int) -> bytes:
    hosts = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    return hosts + struct.pack("!HH", source_port, destination_port)


def unix(source: bytes, destination: bytes) -> bytes:
    return struct.pack("!108s108s", source, destination)


Endpoints = tuple[HostPort | None, HostPort | None]
LONGEST_V1 = (
    b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"
)

GOOD: list[tuple[bytes, Endpoints, dict[int, bytes]]] = [
    (PROXY_V1, (CLIENT, DIALLED), {}),
    (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n", (HostPort("2001:db8::7", 0), HostPort("::1", 65535)), {}),
    (b"PROXY TCP6 ::ffff:192.0.2.7 ::FFFF:198.51.100.9 51000 8080\r\n", (CLIENT, DIALLED), {}),
    (b"PROXY UNKNOWN\r\n", (None, None), {}),
    (LONGEST_V1, (None, None), {}),
    (encode_v2(0x11, TCP4), (CLIENT, DIALLED), {}),
    (encode_v2(0x21, tcp6("2001:db8::7", "::1", 1, 2)), (HostPort("2001:db8::7", 1), HostPort("::1", 2)), {}),
    (encode_v2(0x21, tcp6("::ffff:192.0.2.7", "::ffff:198.51.100.9", 51000, 8080)), (CLIENT, DIALLED), {}),
    (encode_v2(0x31, unix(b"/a", b"\0b")), (HostPort("unix:/a", 0), HostPort("unix:@b", 0)), {}),
    (encode_v2(0x31, unix(b"", b"/b")), (HostPort("unix:", 0), HostPort("unix:/b", 0)), {}),
    (encode_v2(0x00, b""), (None, None), {}),
    (encode_v2(0x00, b"", ((2, b"name"),)), (None, None), {2: b"name"}),
    (encode_v2(0x00, b"", command=0), (None, None), {}),
    (encode_v2(0x11, TCP4, command=0), (None, None), {}),
    (encode_v2(0x77, b"whatever", command=0), (None, None), {}),
    (encode_v2(0x11, TCP4, ((2, b"a"), (0xEA, b""), (2, b"b"))), (CLIENT, DIALLED), {2: b"b", 0xEA: b""}),
    (encode_v2(0x11, TCP4, ((TLV_NOOP, bytes(50)), (1, b"h2"))), (CLIENT, DIALLED), {1: b"h2"}),
    (
        encode_v2(0x11, TCP4, ((0xE0, bytes(V2_MAX_LENGTH - 15)),)),
        (CLIENT, DIALLED),
        {0xE0: bytes(V2_MAX_LENGTH - 15)},
    ),
]


@pytest.mark.parametrize(("header", "endpoints", "tlvs"), GOOD)
@pytest.mark.parametrize("trailing", [b"", b"\0\0\0\x10trailing", PROXY_V1])
def test_a_valid_header_is_parsed_once_it_is_complete(
    header: bytes, endpoints: Endpoints, tlvs: dict[int, bytes], trailing: bytes
) -> None:
    assert parse(header + trailing) == ProxyHeader(*endpoints, len(header), tlvs)
    for size in range(0, len(header), 1 if len(header) < 300 else 97):
        assert parse(header[:size]) is None, size


def test_a_wrong_byte_fails_the_checksum() -> None:
    header = parse(PROXY_V2)
    assert header is not None
    assert header.tlvs[0xEA] == b"vpce-1"
    # The addresses, the value of the first TLV, and the checksum.
    for position in (*range(16, 28), *range(31, 37), *range(len(PROXY_V2) - 4, len(PROXY_V2))):
        broken = bytearray(PROXY_V2)
        broken[position] ^= 0x40
        with pytest.raises(ProxyProtocolError, match="does not match"):
            parse(bytes(broken))


def test_crc32c_matches_rfc_3720() -> None:
    # Appendix B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "signature"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.9 51000\r\n", "version 1 header is"),
        (b"PROXY TCP4 192.0.2.7  198.51.100.9 51000 8080\r\n", "version 1 header is"),
        (b"PROXY UDP4 192.0.2.7 198.51.100.9 51000 8080\r\n", "version 1 header is"),
        (b"PROXY \r\n", "version 1 header is"),
        (b"PROXY TCP4 192.0.2.256 198.51.100.9 51000 8080\r\n", "192.0.2.256"),
        (b"PROXY TCP4 ::1 ::1 51000 8080\r\n", "::1"),
        (b"PROXY TCP6 192.0.2.7 198.51.100.9 51000 8080\r\n", "192.0.2.7"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.9 65536 8080\r\n", "65536"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.9 -1 8080\r\n", "-1"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.9 051 8080\r\n", "051"),
        (b"PROXY TCP4 192.0.2.7\xff 198.51.100.9 51 8080\r\n", "ASCII"),
        (b"PROXY UNKNOWN" + b" " * V1_MAX_SIZE, "within 107 bytes"),
        (PROXY_V2_SIGNATURE + b"\x11\x11\0\0", "version 1"),
        (PROXY_V2_SIGNATURE + b"\x22\x11\0\0", "command 2"),
        (PROXY_V2_SIGNATURE + b"\x21\x11" + struct.pack("!H", V2_MAX_LENGTH + 1), "over the limit"),
        (encode_v2(0x41, bytes(216)), "family 4"),
        (encode_v2(0x13, bytes(216)), "transport 3"),
        (encode_v2(0x12, TCP4), "datagram"),
        (encode_v2(0x11, TCP4[:-1]), "too short"),
        (encode_v2(0x21, TCP4), "too short"),
        (encode_v2(0x31, TCP4), "too short"),
        (encode_v2(0x11, TCP4 + b"\x01"), "beyond"),
        (encode_v2(0x11, TCP4 + b"\x01\x00\x02x"), "beyond"),
        (encode_v2(0x11, TCP4, ((TLV_CRC32C, b"abc"),)), "4 bytes"),
        (encode_v2(0x11, TCP4, ((TLV_CRC32C, b"abcd"),)), "does not match"),
    ],
)
def test_an_invalid_header_raises_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(ProxyProtocolError, match=message):
        parse(data)


@given(st.sampled_from([b"", b"PROXY ", PROXY_V2_SIGNATURE, PROXY_V2[:16], PROXY_V1[:20]]), st.binary(max_size=300))
def test_garbage_raises_only_proxy_protocol_errors(start: bytes, end: bytes) -> None:
    try:
        header = parse(start + end)
    except ProxyProtocolError:
        return
    assert header is None or header.size <= len(start + end)
