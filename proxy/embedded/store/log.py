"""The append log: consecutive segments, written at the end, read anywhere."""

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from proxy.embedded.store import frame, segment
from proxy.embedded.store.errors import StorageBusy, StorageError, StorageFailed, StorageFull
from proxy.embedded.store.files import Files
from proxy.embedded.store.frame import HEAD, Frame, Hole
from proxy.embedded.store.segment import Segment

_log = logging.getLogger(__name__)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
# The process or the machine is short of something else; these say nothing about the disk.
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_WINDOW = 1 << 20
# Bytes of free space with which a full disk has room again: for some messages, not for the next one only.
_ROOM = 1 << 20
_OPEN_FILES = 64


class Log:
    """Frames in segments. `end` is the position of the next frame.

    `synced` is the position up to which the log is durable, `needed` the end of the last frame that is not a mark, up
    to which it has to be.
    """

    def __init__(self, directory: Path, files: Files, segment_size: int) -> None:
        self.directory = directory
        self._files = files
        # Open all the time: a name is made durable after its file was created, when no descriptor may be left.
        self._directory_file = files.open_directory(directory)
        self._segment_size = segment_size
        self._segments = segment.existing(directory)
        self._starts = [part.start for part in self._segments]
        self.start = self._starts[0] if self._starts else 0
        self.end = self._segments[-1].end if self._segments else 0
        self.synced = 0
        self.needed = 0
        self.failed: StorageFailed | None = None
        # A write found no room, and there has not been enough since.
        self.full = False
        self.seed = 0
        self._tail: Segment | None = None
        self._tail_file = -1
        self._full_at = 0
        # Open files of segments to be synced, oldest first, and whether the directory is to be synced.
        self._unsynced: dict[int, Segment] = {}
        self._sealed: list[int] = []
        self._names_changed = bool(self._segments)
        self._readers: dict[int, int] = {}
        if self._segments:
            self._open_tail()

    @property
    def size(self) -> int:
        """Size of the segments in bytes."""
        return sum(part.size for part in self._segments)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    # Writing.

    def prepare(self) -> int:
        """Return the position of the next frames, which are encoded with `seed` and written together.

        Raises StorageFull, StorageFailed, StorageBusy.
        """
        if self.failed is not None:
            raise self.failed
        if self._tail is None or self.end >= self._full_at:
            self.roll(self.end)
        return self.end

    def write(self, data: bytes, newest: int = 0, counts: bool = True) -> None:
        """Write frames at the end, all or none. Raises StorageFull, StorageFailed, StorageBusy.

        newest: store timestamp (ms) of their last message. counts: whether they have to be durable.
        """
        if self.failed is not None:
            raise self.failed
        tail = self._tail
        assert tail is not None
        size = tail.size
        try:
            self._files.write_all(self._tail_file, data, size)
        except OSError as error:
            self._undo(size)
            raise self._storage_error(error) from error
        self._unsynced[self._tail_file] = tail
        tail.size += len(data)
        if newest:
            tail.newest = newest
        self.end += len(data)
        if counts:
            self.needed = self.end

    def roll(self, start: int) -> None:
        """Begin a new segment at a position. Raises StorageFull, StorageFailed, StorageBusy."""
        tail = segment.new(self.directory, start)
        try:
            file = self._files.create(tail.path)
        except OSError as error:
            raise self._storage_error(error) from error
        self._seal()
        self._tail, self._tail_file = tail, file
        self._segments.append(tail)
        self._starts.append(start)
        self._names_changed = True
        self.end = start
        if len(self._segments) == 1:
            self.start = start
        self.seed = tail.seed
        self._full_at = start + self._segment_size

    def _seal(self) -> None:
        if self._tail is not None:
            # Closed by the next flush, because the one in progress may use it.
            self._sealed.append(self._tail_file)
            self._tail = None

    def _open_tail(self) -> None:
        tail = self._segments[-1]
        self._tail, self._tail_file = tail, self._files.open(tail.path, writable=True)
        self.seed = tail.seed
        self._full_at = tail.start + self._segment_size

    def _undo(self, size: int) -> None:
        """Remove a partial write. If that fails, the next write overwrites it or the next start removes it."""
        try:
            self._files.truncate(self._tail_file, size)
        except OSError:
            _log.warning("a partly written record could not be removed immediately")

    def _storage_error(self, error: OSError) -> StorageError:
        if error.errno in _SHORTAGES:
            return _busy(error)
        if error.errno in _NO_ROOM:
            if not self.full:
                self.full = True
                _log.error("no room for messages in %s: %s; sends are refused until there is", self.directory, error)
            return StorageFull(f"no room for messages in {self.directory}: {error.strerror}; free some or add to it")
        self.fail(f"the log in {self.directory} cannot be written: {error}")
        assert self.failed is not None
        return self.failed

    def look_for_room(self) -> None:
        """End the state `full` if space can be allocated again. Free space would not show quotas."""
        if not self.full:
            return
        path = self.directory.parent / "probe"
        try:
            path.unlink(missing_ok=True)
            file = self._files.create(path)
            try:
                self._files.allocate(file, _ROOM)
            finally:
                self._files.close(file)
                self._files.unlink(path)
        except OSError:
            return
        self.full = False
        _log.info("there is room for messages in %s again", self.directory)

    def fail(self, reason: str) -> StorageFailed:
        """Reject all further writes for this reason; return the error."""
        if self.failed is None:
            _log.error("%s; nothing more is stored until a restart", reason)
            self.failed = StorageFailed(f"{reason}; nothing more is stored until a restart")
        return self.failed

    # Durability.

    def flush(self) -> tuple[int, Callable[[], None]]:
        """Return the position up to which the log will be durable, and the function that makes it so.

        The function may run in a thread and raises OSError.
        """
        files, names_changed = self._files, self._names_changed
        unsynced, sealed = list(self._unsynced), self._sealed
        self._unsynced, self._sealed, self._names_changed = {}, [], False

        def sync() -> None:
            for file in unsynced:
                files.sync(file)
            if names_changed:
                files.sync_names(self._directory_file, self.directory)
            for file in sealed:
                files.close(file)

        return self.end, sync

    def distrust(self, position: int) -> None:
        """Treat everything from a position on as not synced: after a crash it may be in memory only."""
        self.synced = position
        self.needed = self.end
        for part in self._segments[self._segment_index(position) :]:
            if part is self._tail:
                self._unsynced[self._tail_file] = part
            else:
                file = self._files.open(part.path, writable=True)
                self._unsynced[file] = part
                self._sealed.append(file)

    # Reading.

    def read(self, position: int, size: int) -> bytes | None:
        """Return the payload of the message frame of this size at a position; None if it is damaged or removed.

        Raises StorageBusy.
        """
        part = self._at(position)
        if part is None:
            return None
        try:
            data = self._read(part, size, position)
        except OSError as error:
            _report_unreadable(position, error)
            return None
        return frame.payload_of(data, position, part.seed)

    def read_head(self, position: int, size: int) -> bytes | None:
        """Return the first bytes of the payload of the message frame at a position, which may be damaged, or None.

        Raises StorageBusy.
        """
        part = self._at(position)
        if part is None:
            return None
        try:
            data = self._read(part, HEAD.size + size, position)
        except OSError as error:
            _report_unreadable(position, error)
            return None
        return data[HEAD.size :] if len(data) == HEAD.size + size and frame.measure(data, 0) >= len(data) else None

    def read_at(self, position: int) -> bytes | None:
        """Return the payload of the intact message frame that begins at a position, or None. Raises StorageBusy."""
        part = self._at(position)
        if part is None:
            return None
        try:
            data = self._read(part, 4096, position)
            size = frame.measure(data, 0) if len(data) >= HEAD.size else 0
            if size > len(data):
                data = self._read(part, size, position)
        except OSError as error:
            _report_unreadable(position, error)
            return None
        return frame.payload_of(data[:size], position, part.seed)

    def scan(self, position: int) -> Iterator[Frame | Hole]:
        """Yield all frames from a frame's position on, and the holes between them."""
        for part in self._segments[self._segment_index(position) :]:
            if part.start > position:
                yield Hole(position, part.start)
                position = part.start
            yield from self._scan(part, position)
            position = max(position, part.end)

    def _scan(self, part: Segment, position: int) -> Iterator[Frame | Hole]:
        data, base = b"", position
        while position < part.end:
            start = position - base
            left = len(data) - start
            size = frame.measure(data, start) if left >= HEAD.size else HEAD.size
            if left < max(size, HEAD.size) and base + len(data) < part.end:
                data, base = self._read(part, max(_WINDOW, size), position), position
                continue
            found = frame.decode(data, start, position, part.seed) if HEAD.size <= size <= left >= HEAD.size else None
            if found is None:
                after = self._next_frame(part, position + 1)
                yield Hole(position, after)
                position, base, data = after, after, b""
            else:
                yield found
                position = found.end

    def _next_frame(self, part: Segment, position: int) -> int:
        """Return the position of the next intact frame after damage, or the segment's end."""
        while position < part.end:
            data = self._read(part, _WINDOW, position)
            start = data.find(frame.MAGIC_BYTES)
            while start >= 0:
                if self._is_frame(part, position + start):
                    return position + start
                start = data.find(frame.MAGIC_BYTES, start + 1)
            # The magic may extend across the end of the window.
            position += max(len(data) - 1, 1)
        return part.end

    def _is_frame(self, part: Segment, position: int) -> bool:
        head = self._read(part, HEAD.size, position)
        size = frame.measure(head, 0) if len(head) == HEAD.size else 0
        if not HEAD.size <= size <= part.end - position:
            return False
        return frame.decode(self._read(part, size, position), 0, position, part.seed) is not None

    def _read(self, part: Segment, size: int, position: int) -> bytes:
        """Return `size` bytes from a position on, fewer at the segment's end."""
        file = self._readers.get(part.start)
        if file is None:
            file = self._reader(part)
        return self._files.read(file, min(size, part.end - position), position - part.start)

    def _reader(self, part: Segment) -> int:
        file = self._readers[part.start] = self._files.open(part.path)
        while len(self._readers) > _OPEN_FILES:
            self._files.close(self._readers.pop(next(iter(self._readers))))
        return file

    def _at(self, position: int) -> Segment | None:
        """Return the segment that contains a position, or None."""
        if not self.start <= position < self.end:
            return None
        part = self._segments[bisect_right(self._starts, position) - 1]
        return part if position < part.end else None

    def _segment_index(self, position: int) -> int:
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
        self._files.sync_names(self._directory_file, self.directory)
        self.end = self.needed = tail.end
        self.synced = min(self.synced, self.end)

    def trim(self, count: int) -> None:
        """Remove the oldest segments. Raises OSError."""
        for _ in range(count):
            self._remove(0)
        self.start = self._starts[0]
        self._files.sync_names(self._directory_file, self.directory)

    def _remove(self, index: int) -> None:
        part = self._segments[index]
        file = self._readers.pop(part.start, None)
        if file is not None:
            self._files.close(file)
        self._files.unlink(part.path)
        del self._segments[index], self._starts[index]

    def close(self) -> None:
        """Close the files, synced or not."""
        self._close_tail()
        for file in (*self._readers.values(), *self._sealed, self._directory_file):
            self._files.close(file)
        self._readers.clear()
        self._sealed.clear()

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._unsynced.pop(self._tail_file, None)
            self._files.close(self._tail_file)
            self._tail = None


def _busy(error: OSError) -> StorageBusy:
    return StorageBusy(f"a file of the log cannot be used now: {error.strerror}")


def _report_unreadable(position: int, error: OSError) -> None:
    """Log that the disk does not return data. Raises StorageBusy if the disk is not the cause: nothing is lost then."""
    if error.errno in _SHORTAGES:
        raise _busy(error) from error
    _log.error("the log cannot be read at %d: %s", position, error)
