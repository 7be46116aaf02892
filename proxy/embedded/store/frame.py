"""What the log is made of: frames with a CRC, and what stands in them. Pure.

    magic 2 | kind 1 | flags 1 | payload length 4 | CRC 4 | payload

big-endian. The CRC is over the first eight bytes and the payload, and begins with the frame's position and the
segment's seed: a frame that is found anywhere else is none, and nobody outside knows how to make one, so
that a frame smuggled in as a message's body is not taken for one when frames are looked for after damage.
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

# More frames follow that are there together with this one, or not at all.
MORE = 1

_START = struct.Struct(">HBBI")
_SIZES = struct.Struct(">BI")
_MARK = struct.Struct(">Q")


class Kind(IntEnum):
    """What a payload is."""

    MESSAGE = 1  # a record as in remoting.messages
    PUT = 2
    DELETE = 3
    DROP_TOPIC = 4  # the topic's name
    MARK = 5  # up to which position the log was durable


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
    """Bytes of the log that are no frames."""

    position: int
    end: int


def encode(kind: int, payload: bytes, position: int, seed: int, flags: int = 0) -> bytes:
    """The frame that belongs at this position of a segment with this seed. Raises BodyError for what fits no frame."""
    size = len(payload)
    if size > MAX_PAYLOAD:
        raise BodyError(f"{size} bytes at once do not fit the log, which takes {MAX_PAYLOAD}")
    start = _START.pack(MAGIC, kind, flags, size)
    crc = crc32(payload, crc32(start, (position ^ seed) & 0xFFFFFFFF))
    return HEAD.pack(MAGIC, kind, flags, size, crc) + payload


def measure(data: bytes, start: int) -> int:
    """The size of the frame whose first HEAD.size bytes stand here; 0 where these begin no frame."""
    magic, _, _, size, _ = HEAD.unpack_from(data, start)
    return HEAD.size + size if magic == MAGIC and size <= MAX_PAYLOAD else 0


def payload_of(data: bytes, position: int, seed: int) -> bytes | None:
    """The payload of exactly one message frame; None where it is damaged."""
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
    """The frame that stands here whole (`measure` says how much that is); None where it is damaged."""
    _, kind, flags, size, crc = HEAD.unpack_from(data, start)
    payload = data[start + HEAD.size : start + HEAD.size + size]
    if crc != crc32(payload, crc32(data[start : start + 8], (position ^ seed) & 0xFFFFFFFF)):
        return None
    return Frame(position, kind, bool(flags & MORE), payload)


def put(table: bytes, key: bytes, value: bytes) -> bytes:
    """The payload of a change of a table's key."""
    return b"".join((_SIZES.pack(len(table), len(key)), table, key, value))


def delete(table: bytes, key: bytes) -> bytes:
    """The payload of a removal."""
    return put(table, key, b"")


def change(payload: bytes) -> tuple[str, bytes, bytes]:
    """Table, key and value of `put` and `delete`."""
    table, key = _SIZES.unpack_from(payload)
    start = _SIZES.size + table
    return payload[_SIZES.size : start].decode(), payload[start : start + key], payload[start + key :]


def mark(synced: int) -> bytes:
    return _MARK.pack(synced)


def marked(payload: bytes) -> int:
    position: int = _MARK.unpack(payload)[0]
    return position
