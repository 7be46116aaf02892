"""Message compression: grpc-encoding and grpc-accept-encoding."""

import zlib

import grpc

# zlib's window bits for gzip's format, and for zlib's own, which HTTP calls deflate.
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
IDENTITY = "identity"
ACCEPTED = "identity,deflate,gzip"
NAMES: dict[grpc.Compression, str] = {
    grpc.Compression.NoCompression: IDENTITY,
    grpc.Compression.Deflate: "deflate",
    grpc.Compression.Gzip: "gzip",
}
_LEVEL = 6
# Each member costs a decompressor, and a copy of the remaining data.
_MAX_MEMBERS = 16


class TooLarge(Exception):
    """A message exceeds its limit; it was decompressed up to that."""


def is_known(encoding: str) -> bool:
    return encoding == IDENTITY or encoding in _WINDOW_BITS


def decompress(encoding: str, data: bytes, limit: int) -> bytes:
    """Return the decompressed data.

    Raises TooLarge if they exceed `limit` bytes, and ValueError for data that are not in the encoding or truncated.
    """
    parts: list[bytes] = []
    remaining = limit
    # Gzip files may be concatenated.
    for _ in range(_MAX_MEMBERS):
        decompressor = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            part = decompressor.decompress(data, remaining + 1)
        except zlib.error:
            raise ValueError(f"a message is not in {encoding}") from None
        remaining -= len(part)
        if remaining < 0:
            raise TooLarge
        parts.append(part)
        if not decompressor.eof:
            raise ValueError(f"a message in {encoding} is truncated")
        data = decompressor.unused_data
        if not data:
            return b"".join(parts)
    raise ValueError(f"a message in {encoding} has more than {_MAX_MEMBERS} members")


def compress(encoding: str, data: bytes) -> bytes:
    return zlib.compress(data, _LEVEL, _WINDOW_BITS[encoding])
