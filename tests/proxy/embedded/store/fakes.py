"""A manual clock, a faulty disk, and controlled background work of a store."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy.embedded.store.durable import DurableStore
from proxy.embedded.store.files import Files
from proxy.embedded.store.options import StoreOptions
from remoting import properties
from remoting.messages import StoredMessage, crc, decode_message


class Clock:
    """A clock in ms that advances by `step` with each call."""

    def __init__(self, now: int = 1_000_000, step: int = 1) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def message(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **pairs: str) -> StoredMessage:
    return StoredMessage(
        topic=topic, queue_id=queue_id, body=body, body_crc=crc(body), properties=properties.encode(pairs)
    )


def open_store(
    directory: Path, files: Files | None = None, clock: Clock | None = None, **options: object
) -> DurableStore:
    return DurableStore(directory, clock or Clock(), StoreOptions(**{"reserve": 0, **options}), files)  # type: ignore[arg-type]


def bodies(store: DurableStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Return the bodies of all messages of a queue."""
    first, after = store.bounds(topic, queue_id)
    found = [decode_message(record).body for record in store.read(topic, queue_id, first, 1 << 30, 1 << 30)]
    assert len(found) == after - first
    return found


def abandon(store: DurableStore) -> None:
    """Close a store like a kill -9: files remain as they are, the lock is released."""
    store._checkpointer._worker.wait()
    store._commit._worker.wait()
    store._checkpointer._worker.close()
    store._commit.close()
    store._index.close()
    store._log.close()
    store._lock.release()


class Outcome:
    """The result of background work."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def exception(self) -> Exception | None:
        return self._error


class Steps:
    """A worker that proceeds step by step, so that tests run code between the steps."""

    def __init__(self) -> None:
        self._work: Callable[[], object] | None = None
        self._done: Callable[[Any], None] | None = None

    @property
    def busy(self) -> bool:
        return self._done is not None

    def start(self, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        self._work, self._done = work, done

    def run(self, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        self.wait()
        self.start(work, done)
        self.wait()

    def step(self) -> None:
        """Do the work, or call its callback."""
        if self._work is not None:
            self._work()
            self._work = None
        else:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        done = self._done
        self.stop()
        assert done is not None
        done(Outcome(error))

    def stop(self) -> None:
        self._work = self._done = None

    def wait(self) -> None:
        while self.busy:
            self.step()

    def close(self) -> None:
        self.wait()


def by_steps(store: DurableStore) -> tuple[Steps, Steps]:
    """Replace the workers of the store's fsyncs and checkpoints by controlled ones."""
    syncing, checkpoint = Steps(), Steps()
    store._commit._worker.close()
    store._commit._worker = syncing  # type: ignore[assignment]
    store._checkpointer._worker.close()
    store._checkpointer._worker = checkpoint  # type: ignore[assignment]
    return syncing, checkpoint


class Disk(Files):
    """Files on a disk that can be full, fail, or lose its power.

    room: free bytes. broken: errno of writes and syncs. no_descriptors: no file can be opened. `crash` keeps a random
    part of the unsynced data.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken: int | None = None
        self.broken_sync: int | None = None
        self.longest_write: int | None = None
        self.no_descriptors = False
        self.syncs = 0
        self._paths: dict[int, Path] = {}
        self._durable: dict[Path, int] = {}
        self._names: set[Path] = set()

    def _need_descriptor(self) -> None:
        if self.no_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def create(self, path: Path) -> int:
        self._need_descriptor()
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file = super().create(path)
        self._paths[file] = path
        self._durable[path] = 0
        return file

    def open(self, path: Path, writable: bool = False) -> int:
        self._need_descriptor()
        file = super().open(path, writable)
        self._paths[file] = path
        return file

    def write(self, file: int, data: bytes, position: int) -> int:
        if self.broken is not None:
            raise OSError(self.broken, os.strerror(self.broken))
        size = min(len(data), self.longest_write or len(data))
        if self.room is not None:
            size = min(size, self.room)
            self.room -= size
            if not size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(file, data[:size], position)

    def allocate(self, file: int, size: int) -> None:
        if self.room is not None and size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(file, size)
        if self.room is not None:
            self.room -= size

    def unlink(self, path: Path) -> None:
        if self.room is not None:
            self.room += path.stat().st_size
        super().unlink(path)

    def truncate(self, file: int, size: int) -> None:
        super().truncate(file, size)
        self._durable[self._paths[file]] = min(self._durable.get(self._paths[file], size), size)

    def sync(self, file: int) -> None:
        if self.broken_sync is not None:
            raise OSError(self.broken_sync, os.strerror(self.broken_sync))
        self.syncs += 1
        super().sync(file)
        self._durable[self._paths[file]] = os.fstat(file).st_size

    def open_directory(self, path: Path) -> int:
        self._need_descriptor()
        return super().open_directory(path)

    def sync_names(self, file: int, path: Path) -> None:
        super().sync_names(file, path)
        self._names |= set(path.iterdir())

    def crash(self, chance: random.Random) -> None:
        """Lose power: unsynced files end at a random position after the synced data, perhaps in garbage."""
        for path, size in self._durable.items():
            if not path.exists():
                continue
            if path not in self._names and chance.random() < 0.5:
                path.unlink()
                continue
            written = path.stat().st_size
            left = chance.randint(size, written)
            os.truncate(path, left)
            if left > size and chance.random() < 0.5:
                with path.open("r+b") as file:
                    file.seek(chance.randint(size, left - 1))
                    file.write(bytes(min(left - file.tell(), chance.randint(1, 64))))
        self._durable.clear()
