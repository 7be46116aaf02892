"""The memory of this process: its size, and the release of freed memory to the system."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Parameter of mallopt(3), and bytes from which blocks are mapped alone, so that freeing one returns it to the system.
# glibc raises its threshold up to 32 MiB by itself: large frames would leave holes among small blocks.
_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD = 128 * 1024


class ProcessMemory:
    """Reads the resident memory, which counts against a container's limit. A read takes 5 µs."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
        self._trim = _malloc_trim()
        _keep_mmap_threshold()

    def read(self) -> int:
        """Return the bytes; 0 if the system does not report them."""
        if self._file is None:
            return 0
        fields = os.pread(self._file, 128, 0).split()
        return int(fields[1]) * _PAGE

    def trim(self, *, thorough: bool = False) -> None:
        """Return freed memory to the system, which glibc's malloc otherwise keeps. Takes about 0.1 ms per MiB.

        thorough: look for unused objects among the old ones as well, which takes some milliseconds.
        """
        # Exceptions and transports of closed connections refer to each other.
        gc.collect(2 if thorough else 1)
        if self._trim is not None:
            self._trim(0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _keep_mmap_threshold() -> None:
    """Set glibc's threshold of mapped blocks, which then stays; do nothing with another C library."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)


def _malloc_trim() -> Callable[[int], object] | None:
    """Return glibc's malloc_trim(3); None with another C library."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return trim
