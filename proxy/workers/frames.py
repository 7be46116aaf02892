"""Frames between the parent and its workers; sans-io.

A frame is a length of 4 bytes and that many more: kind (1 byte), worker (2), call (8), content. On the way to the
parent `worker` says whom a frame is for, on the way from it whom it is of; so the parent keeps nothing to pass frames
on.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

_HEAD = struct.Struct(">IBHQ")
_LENGTH = struct.Struct(">I")
_REST = _HEAD.size - _LENGTH.size
# A snapshot is some megabytes at the very most, and so is a page of a list.
_LARGEST = 2**28


class Kind(IntEnum):
    """What a frame says. Calls are numbered by whoever asks."""

    # Worker to parent: clients are served.
    READY = 1
    # Parent to worker: what has been counted? Worker to parent: this.
    SNAPSHOT = 2
    # Asker to asked: a question; room for so many parts more; nothing more is wanted.
    ASK = 3
    MORE = 4
    STOP = 5
    # Asked to asker: a part of the answer; the answer is complete; there will be none.
    PART = 6
    END = 7
    # Also from the parent: of a worker that is not there. Call 0: whatever it asked, or was asked, is over.
    GONE = 8


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    worker: int = 0
    call: int = 0
    content: bytes = b""


class BadFrame(Exception):
    """Bytes that are no frame; what follows them cannot be read either."""


def encode(frame: Frame) -> bytes:
    """A frame as it is sent."""
    kind, worker, call, content = frame
    return _HEAD.pack(_REST + len(content), kind, worker, call) + content


class Decoder:
    """Takes bytes however they come."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with `data`. Raises BadFrame, after those that came before it."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if not _REST <= length <= _LARGEST:
                raise BadFrame(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(buffer) < end:
                return
            _, kind, worker, call = _HEAD.unpack_from(buffer)
            if kind not in _KINDS:
                raise BadFrame(f"a frame of the kind {kind}")
            content = bytes(memoryview(buffer)[_HEAD.size : end])
            del buffer[:end]
            yield Frame(_KINDS[kind], worker, call, content)


_KINDS = {int(kind): kind for kind in Kind}
