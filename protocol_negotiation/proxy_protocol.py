"""The receiver's side of the PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt)."""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType

from protocol_negotiation.detect import PROXY_V1_SIGNATURE, PROXY_V2_SIGNATURE
from protocol_negotiation.peer import HostPort, socket_address

# Section 2.1: maximum length of the line, CRLF included.
V1_MAX_SIZE = 107
# Section 2.2 allows 65535. The TLVs of known senders, client certificates included, are far smaller than this.
V2_MAX_LENGTH = 16 * 1024
_V2_FIXED = struct.Struct("!12sBBH")

TLV_CRC32C = 0x03
TLV_NOOP = 0x04
_NO_TLVS: Mapping[int, bytes] = MappingProxyType({})


class ProxyProtocolError(ValueError):
    """The bytes are not a valid PROXY protocol header. The connection must be closed (section 2)."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A parsed header of `size` bytes.

    `source` and `destination` are None if the connection is the sender's own (LOCAL, a health check) or unknown to it
    (UNKNOWN, UNSPEC); the socket's addresses then apply. Of TLVs with the same type, the last one is kept.
    """

    source: HostPort | None
    destination: HostPort | None
    size: int
    tlvs: Mapping[int, bytes] = field(default_factory=lambda: _NO_TLVS, hash=False)


def parse(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of `data`; return None if it is incomplete.

    Raises ProxyProtocolError as soon as `data` cannot become a valid header.
    """
    if data.startswith(PROXY_V2_SIGNATURE):
        return _parse_v2(data)
    if data.startswith(PROXY_V1_SIGNATURE):
        return _parse_v1(data)
    if PROXY_V2_SIGNATURE.startswith(data) or PROXY_V1_SIGNATURE.startswith(data):
        return None
    raise ProxyProtocolError("no PROXY protocol signature")


# Version 1 (section 2.1): one line of text.

_V1_FAMILIES: Mapping[str, Callable[[str], IPv4Address | IPv6Address]] = {"TCP4": IPv4Address, "TCP6": IPv6Address}
_V1_PORT = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_MAX_SIZE)
    if end < 0:
        if len(data) >= V1_MAX_SIZE:
            raise ProxyProtocolError(f"a version 1 header must end within {V1_MAX_SIZE} bytes")
        return None
    try:
        words = data[len(PROXY_V1_SIGNATURE) : end].decode("ascii").split(" ")
    except UnicodeDecodeError as error:
        raise ProxyProtocolError("a version 1 header must be ASCII") from error
    size = end + 2
    # After UNKNOWN, the receiver must ignore all bytes up to the CRLF.
    if words[0] == "UNKNOWN":
        return ProxyHeader(None, None, size)
    if words[0] not in _V1_FAMILIES or len(words) != 5:
        raise ProxyProtocolError("a version 1 header is: PROXY TCP4|TCP6|UNKNOWN source destination port port")
    _, source, destination, source_port, destination_port = words
    address = _V1_FAMILIES[words[0]]
    return ProxyHeader(
        _v1_endpoint(address, source, source_port), _v1_endpoint(address, destination, destination_port), size
    )


def _v1_endpoint(address: Callable[[str], IPv4Address | IPv6Address], host: str, port: str) -> HostPort:
    if not _V1_PORT.fullmatch(port):
        raise ProxyProtocolError(f"not a port: {port!r}")
    try:
        return HostPort(str(address(host)), int(port))
    except ValueError as error:
        raise ProxyProtocolError(str(error)) from error


# Version 2 (section 2.2): a binary header.

_Endpoints = tuple[HostPort | None, HostPort | None]


def _inet(raw: bytes) -> _Endpoints:
    source, destination, source_port, destination_port = struct.unpack("!4s4sHH", raw)
    return HostPort(str(IPv4Address(source)), source_port), HostPort(str(IPv4Address(destination)), destination_port)


def _inet6(raw: bytes) -> _Endpoints:
    source, destination, source_port, destination_port = struct.unpack("!16s16sHH", raw)
    return HostPort(str(IPv6Address(source)), source_port), HostPort(str(IPv6Address(destination)), destination_port)


def _unix(raw: bytes) -> _Endpoints:
    return _unix_endpoint(raw[:108]), _unix_endpoint(raw[108:])


def _unix_endpoint(raw: bytes) -> HostPort:
    # A leading NUL begins an abstract name (unix(7)).
    return socket_address(raw[:1] + raw[1:].partition(b"\0")[0] if raw.strip(b"\0") else b"")


# Address family (the upper four bits of the 14th byte) to size and parser of the address block.
_V2_FAMILIES: Mapping[int, tuple[int, Callable[[bytes], _Endpoints]]] = {
    0x0: (0, lambda _: (None, None)),
    0x1: (12, _inet),
    0x2: (36, _inet6),
    0x3: (216, _unix),
}
_LOCAL, _PROXY = 0x0, 0x1
_DGRAM = 0x2


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_FIXED.size:
        return None
    _, version_command, family_transport, length = _V2_FIXED.unpack_from(data)
    version, command = version_command >> 4, version_command & 0xF
    family, transport = family_transport >> 4, family_transport & 0xF
    if version != 2 or command not in (_LOCAL, _PROXY):
        raise ProxyProtocolError(f"version {version}, command {command} is not specified")
    if length > V2_MAX_LENGTH:
        raise ProxyProtocolError(f"a version 2 header of {length} bytes is over the limit of {V2_MAX_LENGTH}")
    size = _V2_FIXED.size + length
    if len(data) < size:
        return None
    if command == _LOCAL:
        # "discard the protocol block including the family which is ignored"
        return ProxyHeader(None, None, size)
    if family not in _V2_FAMILIES or transport > _DGRAM:
        raise ProxyProtocolError(f"address family {family}, transport {transport} is not specified")
    if family and transport == _DGRAM:
        raise ProxyProtocolError("a datagram's header on a stream connection")
    block, read = _V2_FAMILIES[family]
    if length < block:
        raise ProxyProtocolError(f"{length} bytes are too short for the addresses of family {family}")
    addresses = _V2_FIXED.size + block
    source, destination = read(data[_V2_FIXED.size : addresses])
    return ProxyHeader(source, destination, size, MappingProxyType(_tlvs(data[:size], addresses)))


def _tlvs(header: bytes, start: int) -> dict[int, bytes]:
    """Parse the type-length-value vectors (section 2.2) of a complete header, from `start` on."""
    tlvs: dict[int, bytes] = {}
    while start < len(header):
        value = start + 3
        end = value + int.from_bytes(header[start + 1 : value])
        if value > len(header) or end > len(header):
            raise ProxyProtocolError("a TLV reaches beyond the header")
        kind = header[start]
        if kind == TLV_CRC32C:
            _check_crc32c(header, value, end)
        if kind != TLV_NOOP:
            tlvs[kind] = header[value:end]
        start = end
    return tlvs


def _check_crc32c(header: bytes, start: int, end: int) -> None:
    """Verify the checksum over the whole header, with zeros in place of the checksum (section 2.2.3)."""
    if end - start != 4:
        raise ProxyProtocolError("the CRC32C must have 4 bytes")
    if crc32c(header[:start] + bytes(4) + header[end:]) != int.from_bytes(header[start:end]):
        raise ProxyProtocolError("the CRC32C does not match")


def _crc32c_row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C = tuple(_crc32c_row(byte) for byte in range(256))


def crc32c(data: bytes) -> int:
    """Return the CRC with Castagnoli's polynomial (RFC 3720 appendix B.4), which zlib does not have."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
