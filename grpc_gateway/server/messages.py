"""Length-prefixed messages in the bytes of a stream (gRPC over HTTP/2, "Length-Prefixed-Message")."""

from grpc_gateway.server.compression import TooLarge

_PREFIX = 5


class MessageBuffer:
    """Bytes in, messages out. One flat buffer, so that a message in many small pieces costs no more than its size."""

    __slots__ = ("_bytes", "_limit")

    def __init__(self, limit: int) -> None:
        self._bytes = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> tuple[int, bytes] | None:
        """The next message with its flag; None until it is complete. Raises TooLarge as soon as its length is known."""
        held = self._bytes
        if len(held) < _PREFIX:
            return None
        end = _PREFIX + int.from_bytes(held[1:_PREFIX])
        if end - _PREFIX > self._limit:
            raise TooLarge
        if len(held) < end:
            return None
        with memoryview(held) as view:
            message = bytes(view[_PREFIX:end])
        flag = held[0]
        del held[:end]
        return flag, message

    def check(self) -> None:
        """Raises TooLarge where `next` would once the message is there."""
        held = self._bytes
        if len(held) >= _PREFIX and int.from_bytes(held[1:_PREFIX]) > self._limit:
            raise TooLarge

    def __len__(self) -> int:
        return len(self._bytes)


def prefix(size: int, compressed: bool = False) -> bytes:
    return (size | compressed << 32).to_bytes(_PREFIX)
