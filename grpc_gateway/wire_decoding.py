"""Decoding of protobuf fields without message objects, whose creation and reading take several times as long.

The readers of requests accept what official clients send, and leave all other requests, malformed ones included, to
protobuf: they return None, or raise one of UNREADABLE.
"""

from typing import Any, Final

from google.protobuf.message import DecodeError

from protos.apache.rocketmq.v2.definition_pb2 import Resource
from remoting.permissions import Permission

# Types of a field's value, the lower three bits of its tag.
VARINT: Final = 0
LENGTH_DELIMITED: Final = 2
# The first byte of an integer that has more: the others are read without a call of `read_integer`.
LONG: Final = 0x80
# Raised for bytes that end too early, text that is not UTF-8, and malformed messages within.
UNREADABLE: Final = (IndexError, UnicodeDecodeError, DecodeError)

# Names by the bytes of their resources: there are few topics and groups, and each request has one.
_names: dict[bytes, str] = {}
_MAX_NAMES: Final = 10_000
_MAX_RESOURCE: Final = 512


class ReadRequest:
    """A request that was read without protobuf. data: its bytes. kind: its message class."""

    __slots__ = ("_data", "_kind")

    def __init__(self, data: bytes, kind: Any) -> None:
        self._data = data
        self._kind = kind

    def parsed(self) -> Any:
        """Return the request as a protobuf message."""
        return self._kind.FromString(self._data)

    def permissions(self) -> tuple[Permission, ...]:
        """Return the permissions on the names in the request, as `RPC_PERMISSIONS` does for the message.

        Each kind of request has its own.
        """
        raise NotImplementedError


def as_message(request: Any) -> Any:
    """Return a request as a protobuf message."""
    return request.parsed() if isinstance(request, ReadRequest) else request


def tag(descriptor: Any, field: str, wire_type: int = LENGTH_DELIMITED) -> int:
    """Return the number that precedes a field's value."""
    number: int = descriptor.fields_by_name[field].number
    return number << 3 | wire_type


# Shifts of the bytes after the first one: of an integer of up to 56 bits, and of a size or tag, of which protobuf takes
# at most five bytes.
_SHIFTS: Final = (7, 14, 21, 28, 35, 42, 49)
SIZE_SHIFTS: Final = (7, 14, 21, 28)


def read_integer(data: bytes, position: int, shifts: tuple[int, ...] = _SHIFTS) -> tuple[int, int]:
    """Return the integer at a position, and the position after it; -1 for one of more bytes than there are shifts.

    Raises IndexError.
    """
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in shifts:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return -1, position


def resource_name(data: bytes) -> str:
    """Return the name in the bytes of a Resource. Raises DecodeError."""
    name = _names.get(data)
    if name is None:
        name = Resource.FromString(data).name
        if len(data) <= _MAX_RESOURCE:
            if len(_names) >= _MAX_NAMES:
                _names.clear()
            _names[data] = name
    return name
