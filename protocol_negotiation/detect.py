"""Detection of a connection's protocol by its first bytes.

Each protocol is matched positively by one row of `PROTOCOLS`; bytes that no row matches are an unknown protocol. The
rows are mutually exclusive, and a decision does not depend on later bytes.
"""

from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Literal


class Protocol(StrEnum):
    """Protocol that a connection, or one layer of it, begins with."""

    PROXY_V1 = "proxy_v1"
    PROXY_V2 = "proxy_v2"
    TLS = "tls"
    GRPC = "grpc"
    HTTP1 = "http1"
    REMOTING = "remoting"


class Match(Enum):
    """Result of matching a prefix; MORE: the bytes match so far, but are too few."""

    YES = "yes"
    NO = "no"
    MORE = "more"


Matcher = Callable[[bytes], Match]
Detection = Protocol | Literal[Match.NO, Match.MORE]

PROXY_V1_SIGNATURE = b"PROXY "
PROXY_V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# RFC 9113 section 3.4. The preface has 24 bytes, but its first line is unique already.
_HTTP2_FIRST_LINE = b"PRI * HTTP/2.0\r\n"
_HTTP1_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")

# RocketMQ's NettyDecoder accepts frames of up to 16 MiB, length field included.
_REMOTING_MAX_LENGTH = 16 * 1024 * 1024 - 4
_REMOTING_SERIALIZE_TYPES = (0, 1)
# RFC 8446 section 5.1: the length of a plaintext record must not exceed 2^14.
_TLS_MAX_RECORD = 1 << 14

# Every row decides on YES or NO after this number of bytes.
PREFIX_SIZE = len(_HTTP2_FIRST_LINE)


def _starts_with(*signatures: bytes) -> Matcher:
    def matches(prefix: bytes) -> Match:
        if prefix.startswith(signatures):
            return Match.YES
        return Match.MORE if any(s.startswith(prefix) for s in signatures) else Match.NO

    return matches


def _starts_tls(prefix: bytes) -> Match:
    """Match a TLS record (RFC 8446 section 5.1) with the beginning of a ClientHello (section 4.1.2)."""
    if not b"\x16\x03".startswith(prefix[:2]) or prefix[2:3] > b"\x04":
        return Match.NO
    if len(prefix) >= 5 and not 0 < int.from_bytes(prefix[3:5]) <= _TLS_MAX_RECORD:
        return Match.NO
    if len(prefix) < 6:
        return Match.MORE
    return Match.YES if prefix[5] == 1 else Match.NO


def _starts_remoting(prefix: bytes) -> Match:
    """Match a remoting frame: length, serialize type, header length. RocketMQ's own server checks none of them."""
    if prefix[:1] > bytes([_REMOTING_MAX_LENGTH >> 24]):
        return Match.NO
    if len(prefix) < 4:
        return Match.MORE
    length = int.from_bytes(prefix[:4])
    if not 4 < length <= _REMOTING_MAX_LENGTH:
        return Match.NO
    if len(prefix) > 4 and prefix[4] not in _REMOTING_SERIALIZE_TYPES:
        return Match.NO
    if len(prefix) < 8:
        return Match.MORE
    return Match.YES if 0 < int.from_bytes(prefix[5:8]) <= length - 4 else Match.NO


# The most frequent first; the order does not change the result.
PROTOCOLS: tuple[tuple[Protocol, Matcher], ...] = (
    (Protocol.REMOTING, _starts_remoting),
    (Protocol.GRPC, _starts_with(_HTTP2_FIRST_LINE)),
    (Protocol.TLS, _starts_tls),
    (Protocol.PROXY_V2, _starts_with(PROXY_V2_SIGNATURE)),
    (Protocol.PROXY_V1, _starts_with(PROXY_V1_SIGNATURE)),
    (Protocol.HTTP1, _starts_with(*(method + b" " for method in _HTTP1_METHODS))),
)


def detect(prefix: bytes) -> Detection:
    """Return the protocol that begins with `prefix`, ``Match.MORE`` if it is undecided, ``Match.NO`` if none matches.

    It is decided after `PREFIX_SIZE` bytes at the latest. Never raises.
    """
    undecided = False
    for protocol, matches in PROTOCOLS:
        match = matches(prefix)
        if match is Match.YES:
            return protocol
        undecided = undecided or match is Match.MORE
    return Match.MORE if undecided else Match.NO
