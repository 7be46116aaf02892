"""A histogram of latencies with three significant digits, in the format of HdrHistogram.

Values are microseconds up to an hour. Counts are kept by bucket: values below 2,048 exactly, larger ones in buckets
whose width doubles with each power of two, so that every value is within 0.1 % of its bucket's upper end.
"""

import base64
import struct
import zlib
from collections import Counter

_DIGITS = 3
_HALF_BITS = 10
_HIGHEST = 3_600_000_000
# Cookies of encoding V2 with one-byte words, and of its compressed form.
_ENCODED, _COMPRESSED = 0x1C849313, 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")


class Histogram:
    """Latencies in microseconds. `len()` is the number of recorded ones."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._recorded = 0
        self._sum = 0
        self.highest = 0

    def __len__(self) -> int:
        return self._recorded

    def record(self, microseconds: int) -> None:
        """Count one value; those outside of 0 to an hour count as the nearest of these."""
        value = min(max(microseconds, 0), _HIGHEST)
        self._counts[_index(value)] += 1
        self._recorded += 1
        self._sum += value
        self.highest = max(self.highest, value)

    @property
    def mean(self) -> float:
        """The mean in microseconds; 0 without values."""
        return self._sum / self._recorded if self._recorded else 0.0

    def percentile(self, percent: float) -> int:
        """Return the value that this percentage of all values does not exceed; 0 without values."""
        wanted = max(round(percent / 100 * self._recorded), 1)
        reached = 0
        for index in sorted(self._counts):
            reached += self._counts[index]
            if reached >= wanted:
                return min(_highest_of(index), self.highest)
        return 0

    def encode(self) -> str:
        """Return the compressed V2 encoding in base64, as HdrHistogram's tools read it."""
        payload, end = bytearray(), 0
        for index in sorted(self._counts):
            if index > end:
                # A run of empty buckets.
                payload += _zigzag(end - index)
            payload += _zigzag(self._counts[index])
            end = index + 1
        header = _HEADER.pack(_ENCODED, len(payload), 0, _DIGITS, 1, _HIGHEST, 1.0)
        compressed = zlib.compress(header + payload)
        return base64.b64encode(struct.pack(">ii", _COMPRESSED, len(compressed)) + compressed).decode()


def _index(value: int) -> int:
    bucket = max(value.bit_length() - _HALF_BITS - 1, 0)
    return (bucket << _HALF_BITS) + (value >> bucket)


def _highest_of(index: int) -> int:
    """Return the highest value of a bucket."""
    bucket = max((index >> _HALF_BITS) - 1, 0)
    return ((index - (bucket << _HALF_BITS) + 1) << bucket) - 1


def _zigzag(number: int) -> bytes:
    """Return a number as ZigZag LEB128, of which the ninth byte has eight bits."""
    value = (number << 1) if number >= 0 else ((-number << 1) - 1)
    encoded = bytearray()
    while value >= 0x80 and len(encoded) < 8:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
