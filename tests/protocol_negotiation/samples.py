"""First bytes of connections: remoting, TLS, gRPC, HTTP/1.1 and PROXY headers."""

import socket
import ssl
import struct

from protocol_negotiation.detect import PROXY_V2_SIGNATURE, Protocol
from protocol_negotiation.networks import parse_network
from protocol_negotiation.proxy_protocol import TLV_CRC32C, crc32c

LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1"))


def remoting_frame(header: bytes = b'{"code":34}', body: bytes = b"", serialize_type: int = 0) -> bytes:
    return struct.pack("!IB", 4 + len(header) + len(body), serialize_type) + len(header).to_bytes(3) + header + body


def client_hello() -> bytes:
    """Return a ClientHello of the installed OpenSSL."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="rocketmq.test")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake completed without a server")


HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP1_REQUEST = b"GET /health HTTP/1.1\r\nHost: rocketmq.test\r\n\r\n"
FRAME = remoting_frame(body=b"body")
# By the protocol that is detected.
PLAIN = [(FRAME, Protocol.REMOTING), (HTTP2_PREFACE, Protocol.GRPC), (HTTP1_REQUEST, Protocol.HTTP1)]
PROXY_V1 = b"PROXY TCP4 192.0.2.7 198.51.100.9 51000 8080\r\n"


def encode_v2(
    family: int, addresses: bytes, tlvs: tuple[tuple[int, bytes], ...] = (), *, command: int = 1, checksum: bool = False
) -> bytes:
    """Encode a PROXY v2 header; `family` is the 14th byte, e.g. 0x11 for TCP over IPv4."""
    if checksum:
        tlvs = (*tlvs, (TLV_CRC32C, bytes(4)))
    block = addresses + b"".join(struct.pack("!BH", kind, len(value)) + value for kind, value in tlvs)
    header = PROXY_V2_SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(block)) + block
    return header[:-4] + struct.pack("!I", crc32c(header)) if checksum else header


def tcp4(source: str, destination: str, source_port: int, destination_port: int) -> bytes:
    ports = struct.pack("!HH", source_port, destination_port)
    return socket.inet_aton(source) + socket.inet_aton(destination) + ports


PROXY_V2 = encode_v2(0x11, tcp4("192.0.2.7", "198.51.100.9", 51000, 8080), ((0xEA, b"vpce-1"),), checksum=True)
