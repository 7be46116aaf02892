"""Retention: removal of files over the age or size limit, and of files that crashed writers left."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from proxy.observability.records.store import Store, StoredFile


class RemovalReason(StrEnum):
    """Reasons for which a file is removed; the values are metric labels."""

    AGE = "age"
    SIZE = "size"
    LEFTOVER = "leftover"


class Retention:
    """Keeps files for `time` seconds and at most `size` bytes of them; 0: no limit.

    abandoned_after: seconds without a change after which an incomplete file has no writer. removed: counts removed
    files by reason. Replicas that share a store all remove files from it.
    """

    def __init__(self, time: float, size: int, abandoned_after: float, removed: Counter[str]) -> None:
        self._time = time
        self._size = size
        self._abandoned_after = abandoned_after
        self._removed = removed

    def apply(self, store: Store, now: float) -> int:
        """Remove the files that are due at `now` (seconds since 1970) and return their number. Raises OSError."""
        due = list(self.due(store.files(), now))
        for file, reason in due:
            store.remove(file)
            self._removed[reason] += 1
        return len(due)

    def due(self, files: Iterable[StoredFile], now: float) -> Iterator[tuple[StoredFile, RemovalReason]]:
        """Yield the files to remove, with the reason."""
        kept: list[StoredFile] = []
        for file in files:
            if not file.complete:
                if file.changed is not None and now - file.changed > self._abandoned_after:
                    yield file, RemovalReason.LEFTOVER
            elif self._time and now - (file.hour + 1) * 3600 > self._time:
                yield file, RemovalReason.AGE
            else:
                kept.append(file)
        if not self._size:
            return
        excess = sum(file.size for file in kept) - self._size
        for file in sorted(kept, key=lambda each: (each.hour, each.path.rpartition("/")[2])):
            if excess <= 0:
                return
            excess -= file.size
            yield file, RemovalReason.SIZE
