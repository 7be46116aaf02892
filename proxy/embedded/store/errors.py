"""Errors of the store."""

from protocol_negotiation.start_error import StartError


class StorageError(Exception):
    """Base of the store's errors."""


class StorageFull(StorageError):
    """The disk is full. Nothing was written; a retry may succeed once there is room."""


class StorageFailed(StorageError):
    """The disk failed to store data. No further writes are accepted; reads continue.

    After a failed fsync the kernel may have dropped the pages that it could not write, so that a second fsync that
    succeeds proves nothing (PostgreSQL's "fsyncgate", 2018): only a restart reads the actual contents of the disk.
    """


class StorageBusy(StorageError):
    """The process has no descriptor or memory for a file now. Nothing was written or lost; a retry may succeed."""


class Corrupt(StorageError):
    """Data on the disk is not as it was written.

    `position` is its position in the log, if known; a reader of a queue continues at `next_offset`.
    """

    def __init__(self, message: str, position: int | None = None, next_offset: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.next_offset = next_offset


class StoreUnusable(StartError):
    """The store could not be opened, or its last writes failed."""


class StoreLocked(StorageError, StartError):
    """Another process uses the directory."""


class UnknownFormat(StorageError, StartError):
    """The directory was written by a later version, or by another program."""
