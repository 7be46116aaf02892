"""The lock on a file that several processes change by replacing it."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from proxy.auth.stores.store import StoreError

# Seconds in which others must finish their changes, and between attempts.
_TIMEOUT = 5.0
_INTERVAL = 0.01


@asynccontextmanager
async def locked(path: Path, timeout: float = _TIMEOUT) -> AsyncIterator[bool]:
    """Hold the lock, from before the file is read until after it was replaced; yield whether there is a file.

    The lock is that of the present file (flock), so that no other file remains whose owner could lock others out. A
    file that does not exist cannot be locked. timeout: in seconds. Raises StoreError if others hold the lock for
    longer, OSError.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            yield False
            return
        try:
            if _lock(descriptor) and _is_current(descriptor, path):
                yield True
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise StoreError(f"{path}: others have been changing it for {timeout:g} s: try again")
        await anyio.sleep(_INTERVAL)


def _open(path: Path) -> int:
    # NFS locks only files that are open for writing. A pipe must not block; it is refused later.
    access = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
    return os.open(path, access | os.O_CLOEXEC | os.O_NONBLOCK)


def _lock(descriptor: int) -> bool:
    # Windows, where the commands for brokers run, does not have this module.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the file was not replaced before it was locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
