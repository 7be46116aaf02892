"""What is removed: files that are too old, the oldest of too many, and what crashed writers have left."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from proxy.observability.records.store import Store, Stored


class Reason(StrEnum):
    """Why a file was removed; the values are metric labels."""

    AGE = "age"
    SIZE = "size"
    LEFTOVER = "leftover"


class Retention:
    """Keeps files for `time` seconds, and `size` bytes of them; 0: whatever there is.

    patience: seconds without a change after which nobody is writing a file any more. Replicas may share a store: all
    of them do the same.
    """

    def __init__(self, time: float, size: int, patience: float, removed: Counter[str]) -> None:
        self._time = time
        self._size = size
        self._patience = patience
        self._removed = removed

    def apply(self, store: Store, now: float) -> int:
        """Remove what is due at a time (seconds since 1970); returns how many files. Raises OSError."""
        due = list(self.due(store.files(), now))
        for stored, reason in due:
            store.remove(stored)
            self._removed[reason] += 1
        return len(due)

    def due(self, files: Iterable[Stored], now: float) -> Iterator[tuple[Stored, Reason]]:
        """Which files are to be removed, and why."""
        kept: list[Stored] = []
        for stored in files:
            if not stored.complete:
                if stored.changed is not None and now - stored.changed > self._patience:
                    yield stored, Reason.LEFTOVER
            elif self._time and now - (stored.hour + 1) * 3600 > self._time:
                yield stored, Reason.AGE
            else:
                kept.append(stored)
        if not self._size:
            return
        too_much = sum(stored.size for stored in kept) - self._size
        for stored in sorted(kept, key=lambda each: (each.hour, each.path.rpartition("/")[2])):
            if too_much <= 0:
                return
            too_much -= stored.size
            yield stored, Reason.SIZE
