"""Ordered tables: changes since the last checkpoint in memory, the rest in the index file."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from proxy.embedded.store.index import Index

_FEW = 64
_PAGES = (8, 32, 128, 512)
_ABSENT = b"absent"

# How a table's changes get into the log: table, key, value (None: delete). What is there is applied.
Write = Callable[["StoredTable", bytes, bytes | None], None]


class StoredTable:
    """One table of the store. A value of None in `_recent` says that the key, which the index file has, is gone."""

    def __init__(self, name: str, index: Index, write: Write) -> None:
        self.name = name
        self.encoded_name = name.encode()
        self._index = index
        self._write = write
        self._recent: dict[bytes, bytes | None] = {}
        # The keys of `_recent` in order, some of them perhaps no longer there; the newest are not yet in their place.
        self._order: list[bytes] = []
        self._unordered: list[bytes] = []
        # What a checkpoint is writing at this moment.
        self._staged: dict[bytes, bytes | None] = {}
        self._count: int | None = None
        # No key before this one is there: what was taken from the front is not passed over again and again.
        self._floor = b""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. Raises Corrupt."""
        try:
            return self._recent[key]
        except KeyError:
            return self._index.row(self.encoded_name, key)

    def has(self, key: bytes) -> bool:
        """Whether a key is there."""
        if key in self._recent:
            return self._recent[key] is not None
        return self._index.has_row(self.encoded_name, key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value. Raises StorageFull, StorageFailed."""
        self._write(self, key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key; nothing happens where it is not there. Raises StorageFull, StorageFailed."""
        self._write(self, key, None)

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on with their values, ascending; changes behind the reader do not disturb it.

        A damaged value is passed over, so that whoever works through a table is not stopped by it.
        """
        find, bound = bisect_left, max(start, self._floor)
        first = start <= self._floor
        pages = iter(_PAGES)
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
            if len(self._unordered) < _FEW:
                for key in self._unordered:
                    insort(self._order, key)
            else:
                self._order += self._unordered
                self._order.sort()
            self._unordered.clear()
        return self._order

    # From the log.

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take over a change that is in the log."""
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
        """These are about to go to the index file."""
        self._staged = changes

    def bury(self, key: bytes) -> None:
        """A key that may be among them was deleted later: the index file is about to have what is gone."""
        if key in self._staged and key not in self._recent:
            self._recent[key] = None
            self._unordered.append(key)

    def settle(self) -> None:
        """The index file has them: forget them, but what was changed meanwhile."""
        recent = self._recent
        for key, value in self._staged.items():
            if recent.get(key, _ABSENT) is value:
                del recent[key]
        self.unstage()
        self._order = sorted(recent)
        self._unordered.clear()

    def unstage(self) -> None:
        """The index file did not take them."""
        self._staged = {}
