"""Length-prefixed messages of gRPC over HTTP/2 ("Length-Prefixed-Message")."""

from typing import Final

from grpc_gateway.server.compression import TooLarge

_PREFIX: Final = 5


class MessageBuffer:
    """Splits received bytes into messages.

    The buffer is flat, so that a message in many small pieces takes no more memory than its size.
    """

    __slots__ = ("_bytes", "_limit")

    def __init__(self, limit: int) -> None:
        self._bytes = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> tuple[int, bytes] | None:
        """Return the next flag and message, or None until it is complete.

        Raises TooLarge as soon as the length of a message over the limit is known.
        """
        buffered = self._bytes
        if len(buffered) < _PREFIX:
            return None
        end = _PREFIX + int.from_bytes(buffered[1:_PREFIX])
        if end - _PREFIX > self._limit:
            raise TooLarge
        if len(buffered) < end:
            return None
        with memoryview(buffered) as view:
            message = bytes(view[_PREFIX:end])
        flag = buffered[0]
        del buffered[:end]
        return flag, message

    def check(self) -> None:
        """Raise TooLarge if the length of the next message is known and over the limit."""
        buffered = self._bytes
        if len(buffered) >= _PREFIX and int.from_bytes(buffered[1:_PREFIX]) > self._limit:
            raise TooLarge

    def __len__(self) -> int:
        return len(self._bytes)


def prefix(size: int, compressed: bool = False) -> bytes:
    """Return the flag and length that precede a message."""
    return (size | compressed << 32).to_bytes(_PREFIX)
