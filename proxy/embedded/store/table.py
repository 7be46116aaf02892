"""Ordered tables, with the changes since the last checkpoint in memory and the rest in the index file."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from proxy.embedded.store.index import Index

# Maximum number of new keys that are inserted one by one instead of by sorting all.
_MAX_INSERTIONS = 64
# Rows read from the index file at once, by the number of the read.
_PAGE_SIZES = (8, 32, 128, 512)
_ABSENT = b"absent"

# Writes a table's change to the log and applies it: table, key, value (None: delete).
Write = Callable[["StoredTable", bytes, bytes | None], None]


class StoredTable:
    """One table of the store. A value of None in `_recent` marks a key of the index file as deleted."""

    def __init__(self, name: str, index: Index, write: Write) -> None:
        self.name = name
        self.encoded_name = name.encode()
        self._index = index
        self._write = write
        self._recent: dict[bytes, bytes | None] = {}
        # The keys of `_recent` in order, some perhaps already deleted; the newest are in `_unordered`.
        self._order: list[bytes] = []
        self._unordered: list[bytes] = []
        # The changes that the checkpoint in progress writes.
        self._staged: dict[bytes, bytes | None] = {}
        self._count: int | None = None
        # Lower bound of the keys, so that keys deleted at the front are not skipped by each iteration.
        self._floor = b""

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None. Raises Corrupt."""
        try:
            return self._recent[key]
        except KeyError:
            return self._index.row(self.encoded_name, key)

    def has(self, key: bytes) -> bool:
        """Return whether a key exists."""
        if key in self._recent:
            return self._recent[key] is not None
        return self._index.has_row(self.encoded_name, key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value. Raises StorageFull, StorageFailed."""
        self._write(self, key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key; a missing one is ignored. Raises StorageFull, StorageFailed."""
        self._write(self, key, None)

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `start` on with their values, ascending. The table may change during the iteration.

        Damaged values are skipped, so that they do not stop the iteration.
        """
        find, bound = bisect_left, max(start, self._floor)
        first = start <= self._floor
        pages = iter(_PAGE_SIZES)
        page, rows, at, version = 0, list[tuple[bytes, bytes | None]](), 0, -1
        more = True
        while True:
            if version != self._index.version or (at == len(rows) and more):
                page = next(pages, page)
                rows, at, version = (
                    self._index.rows(self.encoded_name, bound, page, find is bisect_left),
                    0,
                    self._index.version,
                )
                more = len(rows) == page
            order = self._ordered()
            place = find(order, bound)
            recent = order[place] if place < len(order) else None
            if at < len(rows) and (recent is None or rows[at][0] <= recent):
                bound, stored = rows[at]
                at += 1
                value = self._recent.get(bound, stored)
            elif recent is not None:
                bound = recent
                value = self._recent.get(bound)
            else:
                return
            find = bisect_right
            if value is None:
                continue
            if first:
                self._floor, first = bound, False
            yield bound, value

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._index.count(self.encoded_name)
            for key, value in self._recent.items():
                self._count += (value is not None) - self._index.has_row(self.encoded_name, key)
        return self._count

    def _ordered(self) -> list[bytes]:
        if self._unordered:
            if len(self._unordered) < _MAX_INSERTIONS:
                for key in self._unordered:
                    insort(self._order, key)
            else:
                self._order += self._unordered
                self._order.sort()
            self._unordered.clear()
        return self._order

    # Changes and checkpoints.

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a change that is in the log."""
        if self._count is not None:
            self._count += (value is not None) - self.has(key)
        if value is None and key not in self._staged and not self._index.has_row(self.encoded_name, key):
            self._recent.pop(key, None)
            return
        if key not in self._recent:
            self._unordered.append(key)
        self._recent[key] = value
        if key < self._floor:
            self._floor = key

    def stage(self, changes: dict[bytes, bytes | None]) -> None:
        """Note the changes that are about to be written to the index file."""
        self._staged = changes

    def mark_deleted(self, key: bytes) -> None:
        """Mark a key that was deleted after the checkpoint, whose staged value the index file is about to contain."""
        if key in self._staged and key not in self._recent:
            self._recent[key] = None
            self._unordered.append(key)

    def commit_staged(self) -> None:
        """Remove the staged changes from memory, which are in the index file, except keys that changed since."""
        recent = self._recent
        for key, value in self._staged.items():
            if recent.get(key, _ABSENT) is value:
                del recent[key]
        self.discard_staged()
        self._order = sorted(recent)
        self._unordered.clear()

    def discard_staged(self) -> None:
        """Forget the staged changes."""
        self._staged = {}
