"""Frames: the outermost layer of the remoting wire, sans-io.

A frame is `length (4) | serialize type (1) | header length (3) | header | body`, all big-endian;
`length` counts everything after itself (RocketMQ's NettyDecoder). Headers are decoded elsewhere,
bodies by nobody unless a handler asks.
"""

from typing import NamedTuple

from remoting.errors import FrameError

# The limit of official servers and clients, the length field included (com.rocketmq.remoting.frameMaxLength).
MAX_FRAME = 16 * 1024 * 1024
_PREFIX = 8


class Frame(NamedTuple):
    """One frame: serialize type (0 or 1), header bytes, body bytes."""

    serialize_type: int
    header: bytes
    body: bytes


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
        start, end = 0, len(data)
        while end - start >= _PREFIX:
            length = int.from_bytes(data[start : start + 4], "big")
            mark = int.from_bytes(data[start + 4 : start + 8], "big")
            header_length = mark & 0xFFFFFF
            complaint = self._complaint(length, mark >> 24, header_length)
            if complaint is not None:
                raise FrameError(complaint, frames)
            stop = start + 4 + length
            if stop > end:
                self._missing = stop - end
                break
            body = start + _PREFIX + header_length
            frames.append(Frame(mark >> 24, data[start + _PREFIX : body], data[body:stop]))
            start = stop
        else:
            self._missing = _PREFIX - (end - start)
        if start < end:
            self._buffer += data[start:] if start else data
        return frames

    def _complaint(self, length: int, serialize_type: int, header_length: int) -> str | None:
        # A negative Java int shows up here as a very large length.
        if length + 4 > self._max_frame:
            return f"a frame of {length} bytes is over the limit of {self._max_frame}"
        if serialize_type > 1:
            return f"unknown serialize type {serialize_type}"
        if header_length > length - 4:
            return f"a header of {header_length} bytes does not fit a frame of {length}"
        return None


def encode_prefix(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """The eight bytes before a header."""
    return ((4 + header_length + body_length) << 32 | serialize_type << 24 | header_length).to_bytes(8, "big")
