"""Frames between the supervisor and its workers; sans-io.

A frame is a length (4 bytes) and that many bytes: kind (1 byte), worker (2), call (8), content. Towards the supervisor
`worker` is the frame's destination, from the supervisor it is the sender, so the supervisor forwards frames without
state.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

_HEAD = struct.Struct(">IBHQ")
_LENGTH = struct.Struct(">I")
_HEAD_AFTER_LENGTH = _HEAD.size - _LENGTH.size
# A metrics snapshot or a page of a list has some megabytes.
_MAX_LENGTH = 2**28


class Kind(IntEnum):
    """The kinds of frames. The calling worker numbers its calls."""

    # Worker to supervisor: clients are served.
    READY = 1
    # Supervisor to worker: request for a metrics snapshot. Worker to supervisor: the snapshot.
    SNAPSHOT = 2
    # Caller to callee: a request; credit for more parts; cancellation.
    REQUEST = 3
    CREDIT = 4
    CANCEL = 5
    # Callee to caller: a part of the reply; the end of the reply; there is no reply, or no more of it.
    PART = 6
    END = 7
    # The supervisor sends it for a worker that is not running. Call 0: all calls from and to that worker are over.
    UNAVAILABLE = 8


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    worker: int = 0
    call: int = 0
    content: bytes = b""


class BadFrame(Exception):
    """Bytes that are not a frame; the rest of the stream is unreadable."""


def encode(frame: Frame) -> bytes:
    """Return the frame's bytes."""
    kind, worker, call, content = frame
    return _HEAD.pack(_HEAD_AFTER_LENGTH + len(content), kind, worker, call) + content


class Decoder:
    """Splits a byte stream into frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Raises BadFrame, after the frames before it."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if not _HEAD_AFTER_LENGTH <= length <= _MAX_LENGTH:
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
