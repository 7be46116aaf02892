"""HTTP/2 frames: types, flags, and the encoding of frames that the server sends (RFC 9113 sections 4 and 6)."""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_SIZE: Final = 9

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FIELDS: Final = 0x20

# The first nine bytes of a frame as (length << 8 | type, flags, stream id with the reserved bit).
unpack_header = struct.Struct("!IBI").unpack_from
unpack_word = struct.Struct("!I").unpack_from
# Length and type in one word, then flags: the frame header without the stream id.
_pack_start = struct.Struct("!IB").pack
_pack_word_frame = struct.Struct("!IBII").pack
_pack_setting = struct.Struct("!HI").pack
_pack_goaway = struct.Struct("!IBIII").pack


def start(kind: int, flags: int, length: int) -> bytes:
    """Return the first five bytes of a frame, which the stream id and the payload follow."""
    return _pack_start(length << 8 | kind, flags)


def rst_stream(stream_id: int, code: int) -> bytes:
    """Return an RST_STREAM frame."""
    return _pack_word_frame(4 << 8 | RST_STREAM, 0, stream_id, code)


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return _pack_word_frame(4 << 8 | WINDOW_UPDATE, 0, stream_id, increment)


def ping(data: bytes, ack: bool = False) -> bytes:
    """Return a PING frame with eight bytes of data."""
    return start(PING, ACK if ack else 0, 8) + bytes(4) + data


def goaway(last_stream_id: int, code: int, text: bytes = b"") -> bytes:
    """Return a GOAWAY frame with debug data."""
    return _pack_goaway(8 + len(text) << 8 | GOAWAY, 0, 0, last_stream_id, code) + text


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame with values by identifier."""
    payload = b"".join(_pack_setting(identifier, value) for identifier, value in values.items())
    return start(SETTINGS, 0, len(payload)) + bytes(4) + payload


SETTINGS_ACK: Final = start(SETTINGS, ACK, 0) + bytes(4)
