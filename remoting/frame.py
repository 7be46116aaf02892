"""Frames: the outermost layer of the remoting protocol, sans-io.

A frame is `length (4) | serialize type (1) | header length (3) | header | body`, all big-endian; `length` is the number
of bytes after it (RocketMQ's NettyDecoder). `remoting.command` decodes headers.
"""

import struct
from typing import Final

from remoting.errors import FrameError

# Maximum size of a frame, length field included, as in official servers and clients
# (com.rocketmq.remoting.frameMaxLength).
MAX_FRAME: Final = 16 * 1024 * 1024
# Maximum size of a client's header. Properties may have 32 KiB, all other fields are short, and decoding multiplies the
# memory.
MAX_HEADER: Final = 256 * 1024
# Maximum size of a server's header: the response to a batch has the id of each message, of up to 57 bytes, and a batch
# of 4 MiB has room for 190,650 messages. `proxy.core.forwarding` permits fewer, but brokers have other clients, too.
MAX_SERVER_HEADER: Final = 12 * 1024 * 1024
_PREFIX: Final = 8
# Bytes of the length field, and of the type and the header length after it.
_LENGTH: Final = 4


# Serialize type (0 or 1), header, body. A tuple for speed: each forwarded request has two frames.
Frame = tuple[int, bytes, bytes]

_unpack_prefix: Final = struct.Struct(">II").unpack_from
_pack_prefix: Final = struct.Struct(">II").pack
# The second word of a prefix is below this if its first byte is a valid serialize type.
_SERIALIZE_TYPE_LIMIT: Final = 2 << 24


class FrameDecoder:
    """Splits a byte stream into frames. After a `FrameError`, it must not be fed again.

    buffered: bytes of the unfinished frame; 0 if there is none. partial_frames: number of frames that arrived in more
    than one chunk, with the last one, if it is unfinished.
    """

    __slots__ = ("_buffer", "_max_frame", "_max_header", "_missing", "buffered", "partial_frames")

    def __init__(self, max_frame: int = MAX_FRAME, max_header: int = MAX_HEADER) -> None:
        self._buffer = bytearray()
        self._max_frame = max_frame
        self._max_header = max_header
        # Bytes until the next frame can be complete, so that a large frame that arrives in many chunks is parsed once.
        self._missing = 0
        self.buffered = 0
        self.partial_frames = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that the next chunk completes, in order. Raises FrameError."""
        if not self.buffered:
            return self._split(data)
        if len(data) < self._missing:
            self._buffer += data
            self._missing -= len(data)
            self.buffered = len(self._buffer)
            return []
        if self.buffered >= _PREFIX:
            # Known to be valid, and how much of the data belongs to it.
            mark = int.from_bytes(self._buffer[_LENGTH:_PREFIX], "big")
            body = _PREFIX + (mark & 0xFFFFFF)
            if self.buffered >= body:
                return self._complete(data, mark >> 24, body)
        data = bytes(self._buffer) + data
        self.clear()
        return self._split(data, carried=True)

    def _complete(self, data: bytes, serialize_type: int, body: int) -> list[Frame]:
        """Return the unfinished frame, whose body begins at `body`, and those after it; each byte is copied once."""
        start, size = memoryview(self._buffer), self._missing
        end = data if len(data) == size else memoryview(data)[:size]
        frames: list[Frame] = [(serialize_type, bytes(start[_PREFIX:body]), b"".join((start[body:], end)))]
        # The former one cannot be cleared while views refer to it.
        self._buffer = bytearray()
        self.buffered = 0
        if len(data) > size:
            try:
                frames += self._split(data[size:])
            except FrameError as error:
                raise FrameError(str(error), frames + error.frames) from None
        return frames

    def clear(self) -> None:
        """Discard the unfinished frame and release its memory."""
        self._buffer.clear()
        self.buffered = 0

    def _split(self, data: bytes, carried: bool = False) -> list[Frame]:
        """Return the frames in `data` and buffer the rest; `carried`: data begins with a frame that was unfinished."""
        frames: list[Frame] = []
        start, end, max_length, max_header = 0, len(data), self._max_frame - _LENGTH, self._max_header
        # Typed, because the values of a struct are not.
        length: int
        mark: int
        while end - start >= _PREFIX:
            length, mark = _unpack_prefix(data, start)
            stop = start + _LENGTH + length
            header_length = mark & 0xFFFFFF
            # A negative Java int is read as a very large length.
            if (
                length > max_length
                or mark >= _SERIALIZE_TYPE_LIMIT
                or header_length > length - _LENGTH
                or header_length > max_header
            ):
                raise FrameError(self._describe_error(length, mark >> 24, header_length), frames)
            if stop > end:
                self._missing = stop - end
                break
            header = start + _PREFIX
            body = header + header_length
            frames.append((mark >> 24, data[header:body], data[body:stop]))
            start = stop
            if start == end:
                return frames
        else:
            self._missing = _PREFIX - (end - start)
        if start < end:
            self.partial_frames += not (carried and start == 0)
            self._buffer += data[start:] if start else data
            self.buffered = end - start
        return frames

    def _describe_error(self, length: int, serialize_type: int, header_length: int) -> str:
        if length + _LENGTH > self._max_frame:
            return f"a frame of {length} bytes is over the limit of {self._max_frame}"
        if serialize_type > 1:
            return f"unknown serialize type {serialize_type}"
        if header_length > self._max_header:
            return f"a header of {header_length} bytes is over the limit of {self._max_header}"
        return f"a header of {header_length} bytes does not fit a frame of {length}"


def encode_prefix(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """Return the eight bytes before a header."""
    return _pack_prefix(4 + header_length + body_length, serialize_type << 24 | header_length)
