"""Encoding of protobuf fields without message objects: to build and encode those takes several times as long."""

from typing import Final

_LENGTH_DELIMITED: Final = 2
_SMALL: Final = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """Return the encoding of an integer of at most 64 bits."""
    if 0 <= value < 128:
        return _SMALL[value]
    if value < 0:
        value += 1 << 64
    digits: list[int] = []
    while value >= 128:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


class LengthDelimited:
    """A field of text, bytes or a message."""

    __slots__ = ("_starts", "_tag")

    def __init__(self, number: int) -> None:
        self._tag = varint(number << 3 | _LENGTH_DELIMITED)
        # The bytes before short values, by their size.
        self._starts = [self._tag + size for size in _SMALL]

    def start(self, size: int) -> bytes:
        """Return the tag and the length that precede a value of `size` bytes."""
        return self._starts[size] if size < 128 else self._tag + varint(size)

    def text(self, value: str) -> bytes:
        """Return the field with a text."""
        data = value.encode()
        return self.start(len(data)) + data

    def message(self, data: bytes) -> bytes:
        """Return the field with an encoded message."""
        return self.start(len(data)) + data


class Varint:
    """A field of an integer."""

    __slots__ = ("_tag",)

    def __init__(self, number: int) -> None:
        self._tag = varint(number << 3)

    def value(self, value: int) -> bytes:
        """Return the field with an integer."""
        return self._tag + varint(value)
