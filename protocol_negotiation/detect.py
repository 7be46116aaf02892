"""Which protocol a connection speaks, told from its first bytes.

Every protocol is matched positively by one row of `PROTOCOLS`; what no row matches is nobody's.
The rows exclude one another, and an answer once given stays true whatever follows.
"""

from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Literal


class Protocol(StrEnum):
    """What a connection, or one layer of it, may begin with."""

    PROXY_V1 = "proxy_v1"
    PROXY_V2 = "proxy_v2"
    TLS = "tls"
    GRPC = "grpc"
    HTTP1 = "http1"
    REMOTING = "remoting"


class Match(Enum):
    """One row's answer to a prefix; MORE: the bytes so far fit, but do not suffice."""

    YES = "yes"
    NO = "no"
    MORE = "more"


Matcher = Callable[[bytes], Match]
Detection = Protocol | Literal[Match.NO, Match.MORE]

PROXY_V1_SIGNATURE = b"PROXY "
PROXY_V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# RFC 9113 section 3.4. The whole preface is 24 bytes, but its first line is nobody else's already.
_HTTP2_FIRST_LINE = b"PRI * HTTP/2.0\r\n"
_HTTP1_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")

# RocketMQ's NettyDecoder takes frames of up to 16 MiB including their own length field.
_REMOTING_MAX_LENGTH = 16 * 1024 * 1024 - 4
_REMOTING_SERIALIZE_TYPES = (0, 1)
# RFC 8446 section 5.1: the length of a plaintext record must not exceed 2^14.
_TLS_MAX_RECORD = 1 << 14

# No row needs more bytes than this for YES or NO.
PREFIX_SIZE = len(_HTTP2_FIRST_LINE)


def _starts_with(*signatures: bytes) -> Matcher:
    def matches(prefix: bytes) -> Match:
        if prefix.startswith(signatures):
            return Match.YES
        return Match.MORE if any(s.startswith(prefix) for s in signatures) else Match.NO

    return matches


def _starts_tls(prefix: bytes) -> Match:
    """A TLS record (RFC 8446 section 5.1) that holds the beginning of a ClientHello (section 4.1.2)."""
    if not b"\x16\x03".startswith(prefix[:2]) or prefix[2:3] > b"\x04":
        return Match.NO
    if len(prefix) >= 5 and not 0 < int.from_bytes(prefix[3:5]) <= _TLS_MAX_RECORD:
        return Match.NO
    if len(prefix) < 6:
        return Match.MORE
    return Match.YES if prefix[5] == 1 else Match.NO


def _starts_remoting(prefix: bytes) -> Match:
    """A remoting frame: length, serialize type, header length. RocketMQ's own server looks at none of them."""
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


# Read by `detect` and by its tests. Busiest first: the order changes no answer.
PROTOCOLS: tuple[tuple[Protocol, Matcher], ...] = (
    (Protocol.REMOTING, _starts_remoting),
    (Protocol.GRPC, _starts_with(_HTTP2_FIRST_LINE)),
    (Protocol.TLS, _starts_tls),
    (Protocol.PROXY_V2, _starts_with(PROXY_V2_SIGNATURE)),
    (Protocol.PROXY_V1, _starts_with(PROXY_V1_SIGNATURE)),
    (Protocol.HTTP1, _starts_with(*(method + b" " for method in _HTTP1_METHODS))),
)


def detect(prefix: bytes) -> Detection:
    """The protocol that `prefix` begins, ``Match.MORE`` while that is open, ``Match.NO`` when none can match.

    Decided after `PREFIX_SIZE` bytes at the latest. Never raises.
    """
    undecided = False
    for protocol, matches in PROTOCOLS:
        match = matches(prefix)
        if match is Match.YES:
            return protocol
        undecided = undecided or match is Match.MORE
    return Match.MORE if undecided else Match.NO
