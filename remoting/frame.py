"""Frames: the outermost layer of the remoting wire, sans-io.

A frame is `length (4) | serialize type (1) | header length (3) | header | body`, all big-endian;
`length` counts everything after itself (RocketMQ's NettyDecoder). Headers are decoded elsewhere,
bodies by nobody unless a handler asks.
"""

import struct

from remoting.errors import FrameError

# The limit of official servers and clients, the length field included (com.rocketmq.remoting.frameMaxLength).
MAX_FRAME = 16 * 1024 * 1024
# Properties may have 32 KiB, all other fields are short; a header is kept in memory several times over.
MAX_HEADER = 256 * 1024
_PREFIX = 8


# Serialize type (0 or 1), header, body. A plain tuple: there are two of them per forwarded request.
Frame = tuple[int, bytes, bytes]

_unpack_prefix = struct.Struct(">II").unpack_from
_pack_prefix = struct.Struct(">II").pack
# The second word of a prefix from which on its first byte is not a serialize type.
_UNKNOWN_TYPE = 2 << 24


class FrameDecoder:
    """Cuts a byte stream into frames.

    Feed it chunks of any size; it returns the frames which they complete, in order. After a
    `FrameError` it must not be fed again.
    """

    __slots__ = ("_buffer", "_max_frame", "_missing")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max_frame = max_frame
        # Bytes to wait for before it is worth looking again: keeps a large frame that arrives in
        # many chunks from being looked at per chunk.
        self._missing = 0

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not yet complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next chunk; return the frames that are now complete. Raises FrameError."""
        if not self._buffer:
            return self._cut(data)
        self._buffer += data
        self._missing -= len(data)
        if self._missing > 0:
            return []
        data = bytes(self._buffer)
        self._buffer.clear()
        return self._cut(data)

    def _cut(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        start, end, most = 0, len(data), self._max_frame
        while end - start >= _PREFIX:
            length, mark = _unpack_prefix(data, start)
            header_length = mark & 0xFFFFFF
            # A negative Java int shows up here as a very large length.
            if length + 4 > most or mark >= _UNKNOWN_TYPE or header_length > length - 4 or header_length > MAX_HEADER:
                raise FrameError(_complaint(length, mark >> 24, header_length, most), frames)
            stop = start + 4 + length
            if stop > end:
                self._missing = stop - end
                break
            body = start + _PREFIX + header_length
            frames.append((mark >> 24, data[start + _PREFIX : body], data[body:stop]))
            start = stop
        else:
            self._missing = _PREFIX - (end - start)
        if start < end:
            self._buffer += data[start:] if start else data
        return frames


def _complaint(length: int, serialize_type: int, header_length: int, most: int) -> str:
    if length + 4 > most:
        return f"a frame of {length} bytes is over the limit of {most}"
    if serialize_type > 1:
        return f"unknown serialize type {serialize_type}"
    if header_length > MAX_HEADER:
        return f"a header of {header_length} bytes is over the limit of {MAX_HEADER}"
    return f"a header of {header_length} bytes does not fit a frame of {length}"


def encode_prefix(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """The eight bytes before a header."""
    return _pack_prefix(4 + header_length + body_length, serialize_type << 24 | header_length)
