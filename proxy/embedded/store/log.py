"""The append log: segments one after the other, written at the end, read anywhere."""

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from proxy.embedded.store import frame, segment
from proxy.embedded.store.errors import StorageFailed, StorageFull
from proxy.embedded.store.files import Files
from proxy.embedded.store.frame import HEAD, Frame, Hole
from proxy.embedded.store.segment import Segment

_log = logging.getLogger(__name__)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_WINDOW = 1 << 20
_OPEN_FILES = 64


class Log:
    """Bytes in segments. `end` is where the next frame goes.

    `synced`: everything before it is on the disk. `needed`: everything before it matters, that is, it is the end of
    the last frame that is not a mark.
    """

    def __init__(self, directory: Path, files: Files, segment_size: int) -> None:
        self._directory = directory
        self._files = files
        self._segment_size = segment_size
        self._segments = segment.found(directory)
        self._starts = [each.start for each in self._segments]
        self.start = self._starts[0] if self._starts else 0
        self.end = self._segments[-1].end if self._segments else 0
        self.synced = 0
        self.needed = 0
        self.failed: StorageFailed | None = None
        self.seed = 0
        self._tail: Segment | None = None
        self._tail_file = -1
        self._full_at = 0
        # What has to be synced: open files of segments, oldest first, and whether the directory changed.
        self._unsynced: dict[int, Segment] = {}
        self._sealed: list[int] = []
        self._names_changed = bool(self._segments)
        self._readers: dict[int, int] = {}
        if self._segments:
            self._open_tail()

    @property
    def size(self) -> int:
        """Bytes kept."""
        return sum(each.size for each in self._segments)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    # Writing.

    def prepare(self) -> int:
        """Where the next frames go, however many are written together; `seed` is theirs.

        Raises StorageFull, StorageFailed.
        """
        if self.failed is not None:
            raise self.failed
        if self._tail is None or self.end >= self._full_at:
            self.roll(self.end)
        return self.end

    def write(self, data: bytes, newest: int = 0, counts: bool = True) -> None:
        """Put frames at the end, all of them or nothing. Raises StorageFull, StorageFailed."""
        if self.failed is not None:
            raise self.failed
        tail = self._tail
        assert tail is not None
        place = tail.size
        try:
            self._files.write_all(self._tail_file, data, place)
        except OSError as error:
            self._undo(place)
            raise self._refusal(error) from error
        self._unsynced[self._tail_file] = tail
        tail.size += len(data)
        if newest:
            tail.newest = newest
        self.end += len(data)
        if counts:
            self.needed = self.end

    def roll(self, start: int) -> None:
        """Begin a segment. Raises StorageFull, StorageFailed."""
        fresh = segment.new(self._directory, start)
        try:
            file = self._files.create(fresh.path)
        except OSError as error:
            raise self._refusal(error) from error
        self._seal()
        self._tail, self._tail_file = fresh, file
        self._segments.append(fresh)
        self._starts.append(start)
        self._names_changed = True
        self.end = start
        if len(self._segments) == 1:
            self.start = start
        self.seed = fresh.seed
        self._full_at = start + self._segment_size

    def _seal(self) -> None:
        if self._tail is not None:
            # Closed by the next flush, because the one under way may have it.
            self._sealed.append(self._tail_file)
            self._tail = None

    def _open_tail(self) -> None:
        tail = self._segments[-1]
        self._tail, self._tail_file = tail, self._files.open(tail.path, writable=True)
        self.seed = tail.seed
        self._full_at = tail.start + self._segment_size

    def _undo(self, size: int) -> None:
        """Take back what was partly written. Failing that, the next write or the next start does it."""
        try:
            self._files.truncate(self._tail_file, size)
        except OSError:
            _log.warning("a partly written record could not be taken back at once")

    def _refusal(self, error: OSError) -> StorageFull | StorageFailed:
        if error.errno in _NO_ROOM:
            return StorageFull(f"no room for messages in {self._directory}: {error.strerror}; free some or add to it")
        self.fail(f"the log in {self._directory} cannot be written: {error}")
        assert self.failed is not None
        return self.failed

    def fail(self, reason: str) -> StorageFailed:
        """Accept nothing any more."""
        if self.failed is None:
            _log.error("%s; nothing more is stored until a restart", reason)
            self.failed = StorageFailed(f"{reason}; nothing more is stored until a restart")
        return self.failed

    # Making it durable.

    def flush(self) -> tuple[int, Callable[[], None]]:
        """Up to where, and the work that makes it durable, which a thread may do. It raises OSError."""
        files, directory = self._files, self._directory if self._names_changed else None
        unsynced, sealed = list(self._unsynced), self._sealed
        self._unsynced, self._sealed, self._names_changed = {}, [], False

        def work() -> None:
            for file in unsynced:
                files.sync(file)
            if directory is not None:
                files.sync_directory(directory)
            for file in sealed:
                files.close(file)

        return self.end, work

    def distrust(self, position: int) -> None:
        """Take everything from here on as not synced: after a crash it may be in memory only."""
        self.synced = position
        self.needed = self.end
        for each in self._segments[self._index(position) :]:
            if each is self._tail:
                self._unsynced[self._tail_file] = each
            else:
                file = self._files.open(each.path, writable=True)
                self._unsynced[file] = each
                self._sealed.append(file)

    # Reading.

    def read(self, position: int, size: int) -> bytes | None:
        """The payload of the message frame of this size at a position; None where it is damaged or gone."""
        each = self._at(position)
        if each is None:
            return None
        try:
            data = self._read(each, size, position)
        except OSError as error:
            _log.error("the log cannot be read at %d: %s", position, error)
            return None
        return frame.payload_of(data, position, each.seed)

    def read_at(self, position: int) -> bytes | None:
        """The payload of the message frame that begins at a position, if one does."""
        each = self._at(position)
        if each is None:
            return None
        try:
            data = self._read(each, 4096, position)
            size = frame.measure(data, 0) if len(data) >= HEAD.size else 0
            if size > len(data):
                data = self._read(each, size, position)
        except OSError as error:
            _log.error("the log cannot be read at %d: %s", position, error)
            return None
        return frame.payload_of(data[:size], position, each.seed)

    def scan(self, position: int) -> Iterator[Frame | Hole]:
        """All frames from a frame's position on, and what is between them that is none."""
        for each in self._segments[self._index(position) :]:
            if each.start > position:
                yield Hole(position, each.start)
                position = each.start
            yield from self._scan(each, position)
            position = max(position, each.end)

    def _scan(self, each: Segment, position: int) -> Iterator[Frame | Hole]:
        data, base = b"", position
        while position < each.end:
            start = position - base
            left = len(data) - start
            size = frame.measure(data, start) if left >= HEAD.size else HEAD.size
            if left < max(size, HEAD.size) and base + len(data) < each.end:
                data, base = self._read(each, max(_WINDOW, size), position), position
                continue
            found = frame.decode(data, start, position, each.seed) if HEAD.size <= size <= left >= HEAD.size else None
            if found is None:
                after = self._next_frame(each, position + 1)
                yield Hole(position, after)
                position, base, data = after, after, b""
            else:
                yield found
                position = found.end

    def _next_frame(self, each: Segment, position: int) -> int:
        """Where an intact frame begins after damage, or the segment's end."""
        while position < each.end:
            data = self._read(each, _WINDOW, position)
            start = data.find(frame.MAGIC_BYTES)
            while start >= 0:
                if self._is_frame(each, position + start):
                    return position + start
                start = data.find(frame.MAGIC_BYTES, start + 1)
            # The magic may lie across the window's end.
            position += max(len(data) - 1, 1)
        return each.end

    def _is_frame(self, each: Segment, position: int) -> bool:
        head = self._read(each, HEAD.size, position)
        size = frame.measure(head, 0) if len(head) == HEAD.size else 0
        if not HEAD.size <= size <= each.end - position:
            return False
        return frame.decode(self._read(each, size, position), 0, position, each.seed) is not None

    def _read(self, each: Segment, size: int, position: int) -> bytes:
        """What is there of this many bytes."""
        file = self._readers.get(each.start)
        if file is None:
            file = self._reader(each)
        return self._files.read(file, min(size, each.end - position), position - each.start)

    def _reader(self, each: Segment) -> int:
        file = self._readers[each.start] = self._files.open(each.path)
        while len(self._readers) > _OPEN_FILES:
            self._files.close(self._readers.pop(next(iter(self._readers))))
        return file

    def _at(self, position: int) -> Segment | None:
        """The segment that holds a position."""
        if not self.start <= position < self.end:
            return None
        each = self._segments[bisect_right(self._starts, position) - 1]
        return each if position < each.end else None

    def _index(self, position: int) -> int:
        return max(bisect_right(self._starts, position) - 1, 0)

    # Removing.

    def cut(self, position: int) -> None:
        """Remove everything from a position on. Raises OSError."""
        while self._segments and self._segments[-1].start >= position and len(self._segments) > 1:
            self._close_tail()
            self._remove(len(self._segments) - 1)
            self._open_tail()
        tail = self._segments[-1]
        tail.size = min(max(position - tail.start, 0), tail.size)
        self._files.truncate(self._tail_file, tail.size)
        self._files.sync(self._tail_file)
        self._files.sync_directory(self._directory)
        self.end = self.needed = tail.end
        self.synced = min(self.synced, self.end)

    def trim(self, count: int) -> None:
        """Remove the oldest segments. Raises OSError."""
        for _ in range(count):
            self._remove(0)
        self.start = self._starts[0]
        self._files.sync_directory(self._directory)

    def _remove(self, index: int) -> None:
        each = self._segments[index]
        file = self._readers.pop(each.start, None)
        if file is not None:
            self._files.close(file)
        self._files.unlink(each.path)
        del self._segments[index], self._starts[index]

    def close(self) -> None:
        """Close the files, synced or not."""
        self._close_tail()
        for file in (*self._readers.values(), *self._sealed):
            self._files.close(file)
        self._readers.clear()
        self._sealed.clear()

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._unsynced.pop(self._tail_file, None)
            self._files.close(self._tail_file)
            self._tail = None
