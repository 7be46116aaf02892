"""Message compression: grpc-encoding and grpc-accept-encoding."""

import zlib
from collections.abc import Iterator

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
# Each member costs a decompressor.
_MAX_MEMBERS = 16
# Bytes of a part, and of the compressed data that are handed to zlib at once.
PART_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class TooLarge(Exception):
    """A message exceeds its limit; it was decompressed up to that."""


def is_known(encoding: str) -> bool:
    return encoding == IDENTITY or encoding in _WINDOW_BITS


def parts(encoding: str, data: bytes, limit: int) -> Iterator[bytes]:
    """Yield the decompressed data in parts, each of which costs little time.

    Raises TooLarge if they exceed `limit` bytes, and ValueError for data that are not in the encoding or truncated.
    """
    view, position = memoryview(data), 0
    # Gzip files may be concatenated.
    for _ in range(_MAX_MEMBERS):
        decompressor = zlib.decompressobj(_WINDOW_BITS[encoding])
        while not decompressor.eof:
            chunk: bytes | memoryview = decompressor.unconsumed_tail
            if not chunk:
                # Not all at once: decompressobj copies the input that it leaves unconsumed.
                chunk = view[position : position + _CHUNK_BYTES]
                position += len(chunk)
            try:
                part = decompressor.decompress(chunk, min(limit + 1, PART_BYTES))
            except zlib.error:
                raise ValueError(f"a message is not in {encoding}") from None
            limit -= len(part)
            if limit < 0:
                raise TooLarge
            # After the last chunk, zlib may still have the rest of the data.
            if not part and not chunk:
                raise ValueError(f"a message in {encoding} is truncated")
            yield part
        position -= len(decompressor.unused_data)
        if position == len(view):
            return
    raise ValueError(f"a message in {encoding} has more than {_MAX_MEMBERS} members")


def compress(encoding: str, data: bytes) -> bytes:
    return zlib.compress(data, _LEVEL, _WINDOW_BITS[encoding])
