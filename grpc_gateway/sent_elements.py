"""A bound on the elements of a serialized SendMessageRequest.

An element of two bytes takes fifty in memory, and a microsecond in each loop over them: a request of 16 MB has room for
eight million. Bodies are not looked at.
"""

from typing import Final

from google.protobuf.message import DecodeError

from grpc_gateway.wire_decoding import LENGTH_DELIMITED, SIZE_SHIFTS, UNREADABLE, VARINT, read_integer, tag
from protos.apache.rocketmq.v2.definition_pb2 import Message
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest

MAX_ELEMENTS: Final = 32 * 1024
"""Fields of the request, its messages and their system properties. A batch of 1,024 messages has about 20 for each."""
MAX_UNCHECKED: Final = 16 * 1024
"""Bytes of a request that is too small to be worth a look."""

# The fields that are looked into: of the request, and of a message; none of the system properties.
_NESTED: Final = (
    tag(SendMessageRequest.DESCRIPTOR, "messages"),
    tag(Message.DESCRIPTOR, "system_properties"),
    -1,
)
_WIRE_TYPE: Final = 7
_FIXED: Final = {1: 8, 5: 4}


def check_elements(data: bytes) -> None:
    """Raise DecodeError if a serialized SendMessageRequest has more than MAX_ELEMENTS, or cannot be read."""
    if len(data) <= MAX_UNCHECKED:
        return
    try:
        left = _count(data, 0, len(data), MAX_ELEMENTS, 0)
    except UNREADABLE:
        raise DecodeError("the request cannot be read") from None
    if left < 0:
        raise DecodeError(f"the request has more than {MAX_ELEMENTS} elements")


def _count(data: bytes, position: int, end: int, left: int, depth: int) -> int:
    """Return how many elements are left after those of the bytes; -1 for too many."""
    while position < end and left >= 0:
        left -= 1
        field, position = read_integer(data, position)
        kind = field & _WIRE_TYPE
        if kind == VARINT:
            _, position = read_integer(data, position)
        elif kind == LENGTH_DELIMITED:
            size, position = read_integer(data, position, SIZE_SHIFTS)
            stop = position + size
            if size < 0 or stop > end:
                raise IndexError
            if field == _NESTED[depth]:
                left = _count(data, position, stop, left, depth + 1)
            position = stop
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            # A group, which no version of the request has, or no wire type.
            raise IndexError
    return left
