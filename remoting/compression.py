"""Compression of message bodies: zlib streams, LZ4 frames or ZSTD frames (RocketMQ's CompressorFactory)."""

import importlib
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from remoting.errors import BodyError

# Maximum size of a decompressed body, in bytes. It is far above the limits of brokers, and bounds the memory that a
# small compressed body can use.
MAX_BODY = 64 * 1024 * 1024
# A ZSTD block of four bytes can expand to 128 KiB, so a step takes that share of the limit, and expands at most to it.
_ZSTD_EXPANSION = 32 * 1024
_MIN_ZSTD_STEP, _MAX_ZSTD_STEP = 16, 1024


class CompressionType(IntEnum):
    """The numbers in bits 8 to 10 of a message's sys flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compress(data: bytes, kind: CompressionType) -> bytes:
    """Compress like Java's clients. Raises BodyError if the codec's package is not installed."""
    return _COMPRESS[kind](data)


def decompress(data: bytes, kind: CompressionType, limit: int = MAX_BODY) -> bytes:
    """Decompress. Raises BodyError if the data is damaged, truncated, or larger than `limit` bytes decompressed."""
    try:
        return _DECOMPRESS[kind](data, limit)
    except BodyError:
        raise
    except Exception as error:
        # Each codec raises different exceptions, among them plain RuntimeError.
        raise BodyError(f"a body is not valid {kind.name}: {error}") from None


def _package(name: str, kind: CompressionType) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise BodyError(f"a body is compressed with {kind.name}, for which the package {name} is missing") from None


def _checked(data: bytes, complete: bool, kind: CompressionType, limit: int) -> bytes:
    if len(data) > limit:
        raise BodyError(f"a {kind.name} body decompresses to more than {limit} bytes")
    if not complete:
        raise BodyError(f"a {kind.name} body is cut off")
    return data


def _zlib_compress(data: bytes) -> bytes:
    return zlib.compress(data, 5)


def _zlib_decompress(data: bytes, limit: int) -> bytes:
    codec = zlib.decompressobj()
    return _checked(codec.decompress(data, limit + 1), codec.eof, CompressionType.ZLIB, limit)


def _lz4_compress(data: bytes) -> bytes:
    return bytes(_package("lz4.frame", CompressionType.LZ4).compress(data))


def _lz4_decompress(data: bytes, limit: int) -> bytes:
    codec = _package("lz4.frame", CompressionType.LZ4).LZ4FrameDecompressor()
    return _checked(codec.decompress(data, limit + 1), codec.eof, CompressionType.LZ4, limit)


def _zstd_compress(data: bytes) -> bytes:
    return bytes(_package("zstandard", CompressionType.ZSTD).ZstdCompressor(level=5).compress(data))


def _zstd_decompress(data: bytes, limit: int) -> bytes:
    codec = _package("zstandard", CompressionType.ZSTD).ZstdDecompressor().decompressobj()
    out = bytearray()
    position = 0
    step = max(_MIN_ZSTD_STEP, min(limit // _ZSTD_EXPANSION, _MAX_ZSTD_STEP))
    while position < len(data) and len(out) <= limit and not codec.eof:
        out += codec.decompress(data[position : position + step])
        position += step
    return _checked(bytes(out), codec.eof, CompressionType.ZSTD, limit)


_COMPRESS: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.LZ4: _lz4_compress,
    CompressionType.ZSTD: _zstd_compress,
    CompressionType.ZLIB: _zlib_compress,
}
_DECOMPRESS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.LZ4: _lz4_decompress,
    CompressionType.ZSTD: _zstd_decompress,
    CompressionType.ZLIB: _zlib_decompress,
}
