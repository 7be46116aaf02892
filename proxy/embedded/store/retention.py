"""Removal of segments of the log that are too old, or that exceed the size of the log."""

import logging

from proxy.embedded.store.errors import StorageError
from proxy.embedded.store.log import Log
from proxy.embedded.store.options import StoreOptions

_log = logging.getLogger(__name__)


def remove_old_segments(log: Log, options: StoreOptions, checkpoint: int, now: int) -> None:
    """Remove the oldest segments that exceed the retention size or time, once the index file does not need them.

    `checkpoint` is the position of the log up to which the index file is written, `now` in ms.
    """
    size, count = log.size, 0
    oldest = None if options.retention_time is None else now - options.retention_time
    for segment in log.segments[:-1]:
        too_much = options.retention_size is not None and size > options.retention_size
        too_old = oldest is not None and segment.newest < oldest
        if segment.end > checkpoint or not (too_much or too_old):
            break
        size -= segment.size
        count += 1
    try:
        if count:
            log.trim(count)
        if oldest is not None and log.segments and 0 < log.segments[-1].newest < oldest:
            # So that it can be removed next time.
            log.roll(log.end)
    except (OSError, StorageError) as error:
        _log.error("old messages in %s cannot be removed: %s", log.directory.parent, error)
