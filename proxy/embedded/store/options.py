"""How a store is kept."""

from dataclasses import dataclass

from proxy.embedded.store.group_commit import SyncPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Sizes in bytes, times in milliseconds."""

    sync: SyncPolicy = SyncPolicy.ALWAYS
    # Between fsyncs by SyncPolicy.INTERVAL.
    sync_interval: int = 1000
    # A segment ends after the write that reaches this.
    segment_size: int = 256 << 20
    # The oldest segments go when the log is larger, or their messages are older; None: never.
    retention_size: int | None = None
    retention_time: int | None = 72 * 3600 * 1000
    # Kept for tables, so that they can be written to when the disk has no room for messages.
    reserve: int = 16 << 20
    # What may be in memory and the log only: more makes a restart after a crash longer, less means more writing.
    checkpoint_changes: int = 32768
    checkpoint_bytes: int = 64 << 20
    checkpoint_age: int = 60_000
    # Go on without what was in the tables where the index file is lost and the log's beginning is gone.
    rebuild: bool = False
