"""Frames: the units of the log, each with a CRC. Pure functions.

    magic 2 | kind 1 | flags 1 | payload length 4 | CRC 4 | payload

big-endian. The CRC covers the first eight bytes and the payload, and its initial value is made of the frame's position
and the segment's seed: a frame is invalid at any other position, and clients cannot forge one in a message's body that
would be found when frames are searched after damage.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from remoting.errors import BodyError

HEAD = struct.Struct(">HBBII")
MAGIC = 0xC79A
MAGIC_BYTES = MAGIC.to_bytes(2, "big")
MAX_PAYLOAD = 1 << 26

# Flag: the next frame belongs to the same batch, which is applied as a whole or not at all.
MORE = 1

_START = struct.Struct(">HBBI")
_SIZES = struct.Struct(">BI")
_MARK = struct.Struct(">Q")


class Kind(IntEnum):
    """The kind of a payload."""

    MESSAGE = 1  # a record (remoting.messages)
    PUT = 2
    DELETE = 3
    DROP_TOPIC = 4  # the topic's name
    MARK = 5  # the position up to which the log was durable


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the log."""

    position: int
    kind: int
    more: bool
    payload: bytes

    @property
    def end(self) -> int:
        return self.position + HEAD.size + len(self.payload)


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the log that are not valid frames."""

    position: int
    end: int


def encode(kind: int, payload: bytes, position: int, seed: int, flags: int = 0) -> bytes:
    """Return the frame for this position of a segment with this seed.

    Raises BodyError for a payload that is too large.
    """
    size = len(payload)
    if size > MAX_PAYLOAD:
        raise BodyError(f"{size} bytes exceed the maximum of the log for one write, {MAX_PAYLOAD}")
    start = _START.pack(MAGIC, kind, flags, size)
    crc = crc32(payload, crc32(start, (position ^ seed) & 0xFFFFFFFF))
    return HEAD.pack(MAGIC, kind, flags, size, crc) + payload


def measure(data: bytes, start: int) -> int:
    """Return the size of the frame that begins with the HEAD.size bytes at `start`; 0 if these are not a frame's."""
    magic, _, _, size, _ = HEAD.unpack_from(data, start)
    return HEAD.size + size if magic == MAGIC and size <= MAX_PAYLOAD else 0


def payload_of(data: bytes, position: int, seed: int) -> bytes | None:
    """Return the payload of exactly one message frame; None if it is damaged."""
    if len(data) < HEAD.size:
        return None
    magic, kind, _, size, crc = HEAD.unpack_from(data)
    payload = data[HEAD.size :]
    intact = (
        magic == MAGIC
        and kind == Kind.MESSAGE
        and size == len(payload)
        and crc == crc32(payload, crc32(data[:8], (position ^ seed) & 0xFFFFFFFF))
    )
    return payload if intact else None


def decode(data: bytes, start: int, position: int, seed: int) -> Frame | None:
    """Return the complete frame at `start` (`measure` returns its size); None if it is damaged."""
    _, kind, flags, size, crc = HEAD.unpack_from(data, start)
    payload = data[start + HEAD.size : start + HEAD.size + size]
    if crc != crc32(payload, crc32(data[start : start + 8], (position ^ seed) & 0xFFFFFFFF)):
        return None
    return Frame(position, kind, bool(flags & MORE), payload)


def put(table: bytes, key: bytes, value: bytes) -> bytes:
    """Return the payload of a change of a table's key; the value of a removal is empty."""
    return b"".join((_SIZES.pack(len(table), len(key)), table, key, value))


def change(payload: bytes) -> tuple[str, bytes, bytes]:
    """Return table, key and value of a payload of `put`."""
    table, key = _SIZES.unpack_from(payload)
    start = _SIZES.size + table
    return payload[_SIZES.size : start].decode(), payload[start : start + key], payload[start + key :]


def mark(synced: int) -> bytes:
    """Return the payload of a mark."""
    return _MARK.pack(synced)


def marked_position(payload: bytes) -> int:
    """Return the position in a mark's payload."""
    position: int = _MARK.unpack(payload)[0]
    return position
