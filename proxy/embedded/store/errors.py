"""What can go wrong with the store."""


class StorageError(Exception):
    """Base of all."""


class StorageFull(StorageError):
    """There is no room on the disk; nothing was written, and another try may succeed once there is."""


class StorageFailed(StorageError):
    """The disk refused to keep what it was given. Nothing more is accepted; reads go on.

    After a failed fsync the kernel may have dropped what it could not write, so that a second fsync
    that succeeds proves nothing (PostgreSQL's "fsyncgate", 2018): only a restart reads what is there.
    """


class Corrupt(StorageError):
    """What is on the disk is not what was written.

    `position` is that in the log, where it is known; a reader of a queue goes on at `next_offset`.
    """

    def __init__(self, message: str, position: int | None = None, next_offset: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.next_offset = next_offset


class StoreLocked(StorageError):
    """Another process has the directory."""


class UnknownFormat(StorageError):
    """The directory was written by a later version, or is none of ours."""
