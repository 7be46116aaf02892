"""Options of a store."""

from dataclasses import dataclass
from enum import StrEnum


class SyncPolicy(StrEnum):
    """When a write is reported as durable: after its fsync, or at once, with fsyncs by interval or by the OS."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Sizes in bytes, times in milliseconds."""

    sync: SyncPolicy = SyncPolicy.ALWAYS
    # Between fsyncs with SyncPolicy.INTERVAL.
    sync_interval: int = 1000
    # A segment ends after the write that reaches this size.
    segment_size: int = 256 << 20
    # The oldest segments are removed when the log is larger, or their messages are older; None: never.
    retention_size: int | None = None
    retention_time: int | None = 72 * 3600 * 1000
    # Disk space kept for tables, so that they can be written when there is no room for messages.
    reserve: int = 16 << 20
    # Limits of the data that only memory and the log have: higher ones make a restart after a crash longer, lower ones
    # cause more writes.
    checkpoint_changes: int = 32768
    checkpoint_bytes: int = 64 << 20
    checkpoint_age: int = 60_000
    # Continue without the contents of tables if the index file is lost and the beginning of the log is gone.
    rebuild: bool = False
