"""Message compression: grpc-encoding and grpc-accept-encoding."""

import zlib

import grpc

# zlib's window bits: gzip's format, and zlib's own, which is what HTTP calls deflate.
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
IDENTITY = "identity"
ACCEPTED = "identity,deflate,gzip"
NAMES: dict[grpc.Compression, str] = {
    grpc.Compression.NoCompression: IDENTITY,
    grpc.Compression.Deflate: "deflate",
    grpc.Compression.Gzip: "gzip",
}
NO_COMPRESSION = grpc.Compression.NoCompression
_LEVEL = 6
# Each costs an inflater, and a copy of what is left.
_MAX_MEMBERS = 16


class TooLarge(Exception):
    """The message is larger than allowed; not all of it was decompressed."""


def is_known(encoding: str) -> bool:
    return encoding == IDENTITY or encoding in _WINDOW_BITS


def decompress(encoding: str, data: bytes, limit: int) -> bytes:
    """Raises TooLarge past `limit` bytes, ValueError for data that are not in the encoding, or are cut short."""
    parts: list[bytes] = []
    left = limit
    # What gzip makes may be joined.
    for _ in range(_MAX_MEMBERS):
        inflate = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            part = inflate.decompress(data, left + 1)
        except zlib.error:
            raise ValueError(f"a message is not in {encoding}") from None
        left -= len(part)
        if left < 0:
            raise TooLarge
        parts.append(part)
        if not inflate.eof:
            raise ValueError(f"a message in {encoding} is cut short")
        data = inflate.unused_data
        if not data:
            return b"".join(parts)
    raise ValueError(f"a message in {encoding} has more than {_MAX_MEMBERS} members")


def compress(encoding: str, data: bytes) -> bytes:
    return zlib.compress(data, _LEVEL, _WINDOW_BITS[encoding])
