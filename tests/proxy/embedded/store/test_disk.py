"""Behaviour with disks that are full, fail, or write partially."""

import asyncio
import errno
import sqlite3
from pathlib import Path

import pytest

from proxy.embedded.store import StorageBusy, StorageFailed, StorageFull
from proxy.embedded.store.durable import DurableStore
from proxy.embedded.store.index import IndexUpdate
from remoting.messages import decode_message
from tests.proxy.embedded.store.fakes import Clock, Disk, abandon, bodies, message, open_store


def fill(store: DurableStore, most: int, reason: str) -> list[bytes]:
    """Append messages until the store is full; return them."""
    taken: list[bytes] = []
    for number in range(most):
        try:
            store.append(message(b"%d" % number))
        except StorageFull as error:
            assert reason in str(error)  # noqa: PT017
            return taken
        taken.append(b"%d" % number)
    raise AssertionError("it never runs full")


@pytest.mark.parametrize("room", range(0, 400, 7))
def test_a_full_disk_rejects_a_write_completely_until_there_is_room(tmp_path: Path, room: int) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk)
    store.append(message(b"first"))
    store.table("t").put(b"key", b"value")
    disk.room = room
    kept = [b"first"]
    kept += fill(store, 9, "no room")
    disk.room = min(room, 10)
    with pytest.raises(StorageFull):
        store.table("t").put(b"key", b"other value")
    with pytest.raises(StorageFull), store.transaction():  # noqa: PT012
        store.append(message(b"in a transaction"))
        store.table("t").delete(b"key")
    with pytest.raises(StorageFull):
        store.append_all([message(b"one"), message(b"two")])
    with pytest.raises(StorageFull):
        store.drop_topic("T")
    assert bodies(store) == kept
    assert dict(store.table("t").items()) == {b"key": b"value"}
    disk.room = None
    assert store.append(message(b"again")).queue_offset == len(kept)
    store.sync()
    abandon(store)
    store = open_store(tmp_path)
    assert bodies(store) == [*kept, b"again"]
    assert dict(store.table("t").items()) == {b"key": b"value"}
    assert store.corrupt == 0
    store.close()


def is_full(store: DurableStore) -> bool:
    """Return the current value, which mypy would otherwise narrow."""
    return store.full


def test_tables_are_written_from_a_reserve_when_the_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk, reserve=4096, segment_size=1500)
    assert not is_full(store)
    disk.room = 300
    kept = fill(store, 9, "no room")
    assert (tmp_path / "reserve").exists(), "only tables take the reserve"
    assert is_full(store)
    table = store.table("offsets")
    for number in range(20):
        table.put(b"key", b"%d" % number)
    assert is_full(store)
    assert [each.getMessage() for each in caplog.records if "is full" in each.getMessage()]
    with store.transaction():
        table.put(b"other", b"value")
    for refused in (
        lambda: store.append(message(b"no")),
        lambda: store.append_all([message(b"no")]),
    ):
        with pytest.raises(StorageFull, match="no room for messages"):
            refused()
    store.upkeep()
    assert is_full(store), "there is still no room"
    with pytest.raises(StorageFull):  # noqa: PT012
        for number in range(200):
            table.put(b"key", b"%d" % number)
    last = table.get(b"key")
    assert bodies(store) == kept
    abandon(store)

    # The same after a restart on the full disk, which then gets room.
    store = open_store(tmp_path, disk, reserve=4096, segment_size=1500)
    assert is_full(store)
    assert bodies(store) == kept
    assert dict(store.table("offsets").items()) == {b"key": last, b"other": b"value"}
    with pytest.raises(StorageFull):
        store.append(message(b"no"))
    disk.room = None
    store.upkeep()
    assert not is_full(store)
    store.append(message(b"yes"))
    assert bodies(store) == [*kept, b"yes"]
    store.close()


def test_a_checkpoint_without_room_uses_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, reserve=4096)
    commit, tries = store._index.commit, 0

    def fail_once(batch: IndexUpdate) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            commit(batch)
            return
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(store._index, "commit", fail_once)
    store.append(message(b"first"))
    store.checkpoint()
    assert is_full(store)
    assert (tries, store._checkpointer.position) == (2, store._log.needed)
    store.upkeep()
    assert not is_full(store)
    store.close()


def test_a_segment_without_room_is_rejected(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk, segment_size=100)
    store.append(message(b"first"))
    disk.room = 0
    with pytest.raises(StorageFull):
        store.append(message(b"second"))
    disk.room = None
    store.append(message(b"second"))
    store.close()
    store = open_store(tmp_path)
    assert bodies(store) == [b"first", b"second"]
    store.close()


def test_short_writes_are_completed(tmp_path: Path) -> None:
    disk = Disk()
    disk.longest_write = 13
    store = open_store(tmp_path, disk)
    for number in range(5):
        store.append(message(b"%d" % number))
    store.close()
    store = open_store(tmp_path)
    assert bodies(store) == [b"0", b"1", b"2", b"3", b"4"]
    store.close()


def test_after_a_failed_write_writes_are_rejected_and_reads_served(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk)
    store.append(message(b"first"))
    disk.broken = errno.EIO
    with pytest.raises(StorageFailed):
        store.append(message(b"second"))
    disk.broken = None
    with pytest.raises(StorageFailed):
        store.append(message(b"third"))
    assert bodies(store) == [b"first"]
    with pytest.raises(StorageFailed):
        store.sync()
    with pytest.raises(StorageFailed), store.transaction():
        pass
    store.upkeep()
    store.close()
    store = open_store(tmp_path)
    assert bodies(store) == [b"first"]
    store.close()


@pytest.mark.anyio
async def test_after_a_failed_fsync_no_write_is_reported_as_durable(tmp_path: Path) -> None:
    """Not even if a second fsync succeeds: the kernel may have dropped the pages that the first could not write."""
    disk = Disk()
    store = open_store(tmp_path, disk)
    store.append(message(b"first"))
    await store.synced()
    disk.broken_sync = errno.EIO
    waiting = []
    for number in range(5):
        store.append(message(b"%d" % number))
        waiting.append(store.synced())
    for each in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(each, StorageFailed)
    disk.broken_sync = None
    with pytest.raises(StorageFailed):
        await store.synced()
    for write in (lambda: store.append(message(b"more")), lambda: store.table("t").put(b"", b"")):
        with pytest.raises(StorageFailed):
            write()
    assert bodies(store)[0] == b"first"
    store.close()


def test_a_failed_checkpoint_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock, checkpoint_changes=10)
    commit = store._index.commit
    tries = 0

    def fail(batch: object) -> None:
        nonlocal tries
        tries += 1
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store._index, "commit", fail)
    for number in range(40):
        store.append(message(b"%d" % number, KEYS="k"))
        store.table("t").put(b"%d" % (number % 3), b"%d" % number)
        store.table("t").delete(b"1")
    assert tries == 1
    fill(store, 200, "index")
    assert bodies(store)[:40] == [b"%d" % number for number in range(40)]
    clock.now += 10_000
    store.upkeep()
    monkeypatch.setattr(store._index, "commit", commit)
    clock.now += 10_000
    with pytest.raises(StorageFull):
        # This starts a checkpoint.
        store.append(message(b"too much"))
    store.append(message(b"after"))
    assert store._checkpointer.position > 0
    assert dict(store.table("t").items()) == {b"0": b"39", b"2": b"38"}
    assert len(store.by_key("T", "k", 0, 1 << 60, 1000)) == 40
    store.close()
    store = open_store(tmp_path)
    assert bodies(store)[:40] == [b"%d" % number for number in range(40)]
    assert bodies(store)[-1] == b"after"
    store.close()


def test_an_unreadable_record_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk)
    stored = [store.append(message(b"%d" % number)) for number in range(3)]
    read = disk.read

    def bad_sector(file: int, size: int, position: int) -> bytes:
        if position == stored[1].commit_log_offset:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, size, position)

    monkeypatch.setattr(disk, "read", bad_sector)
    assert [decode_message(record).body for record in store.read("T", 0, 0, 9, 999)] == [b"0"]
    assert [decode_message(record).body for record in store.read("T", 0, 2, 9, 999)] == [b"2"]
    assert store.record(stored[1].commit_log_offset) is None
    store.close()


@pytest.mark.anyio
async def test_without_free_descriptors_nothing_is_lost_and_writes_continue_later(tmp_path: Path) -> None:
    """Clients' connections may use all of the process's descriptors; the disk is well."""
    disk = Disk()
    store = open_store(tmp_path, disk, segment_size=100)
    sent = [store.append(message(b"%d" % number)) for number in range(4)]
    assert len(store._log.segments) == 4
    disk.no_descriptors = True
    # The names of the last segments are made durable.
    await store.synced()
    with pytest.raises(StorageBusy):
        store.append(message(b"refused"))
    with pytest.raises(StorageBusy):
        store.table("t").put(b"key", b"value")
    with pytest.raises(StorageBusy):
        store.read("T", 0, 0, 9, 999)
    with pytest.raises(StorageBusy):
        store.record(sent[0].commit_log_offset)
    assert (store.corrupt, store.failed, store.full) == (0, None, False)
    disk.no_descriptors = False
    store.append(message(b"4"))
    store.table("t").put(b"key", b"value")
    await store.synced()
    assert bodies(store) == [b"0", b"1", b"2", b"3", b"4"]
    store.close()
