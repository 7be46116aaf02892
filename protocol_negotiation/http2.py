"""What an HTTP/2 client is told where nothing serves gRPC: GOAWAY, with the reason in words."""

import struct

from protocol_negotiation.farewell import Farewell
from protocol_negotiation.peer import Peer

_SETTINGS, _GOAWAY = 0x4, 0x7
# RFC 9113 section 7. "Use HTTP/1.1 instead" is the only code by which a server declines HTTP/2 as such, and over
# HTTP/1.1 this port does answer. NO_ERROR would announce a graceful shutdown, after which clients try again at once
# (section 6.8); the other codes blame what the client sent.
HTTP_1_1_REQUIRED = 0xD

_TEXT = b"gRPC is not enabled on this RocketMQ access point; use a remoting client, or its gRPC port"


def _frame(kind: int, payload: bytes) -> bytes:
    """RFC 9113 section 4.1, without flags, on stream 0."""
    return len(payload).to_bytes(3) + bytes((kind, 0)) + bytes(4) + payload


def go_away() -> bytes:
    """The server's preface, which is a SETTINGS frame (RFC 9113 section 3.4), and GOAWAY (section 6.8).

    Last stream 0: no request was or will be processed.
    """
    return _frame(_SETTINGS, b"") + _frame(_GOAWAY, struct.pack("!II", 0, HTTP_1_1_REQUIRED) + _TEXT)


class Http2Refusal(Farewell):
    """The handler of HTTP/2 where gRPC is not configured."""

    __slots__ = ()

    def __init__(self, _: Peer) -> None:
        super().__init__()

    def answer(self, _: bytes) -> bytes:
        return go_away()
