"""Group commit: shared fsyncs, sync policies, slow disks."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from proxy.embedded.store.errors import StorageFailed
from proxy.embedded.store.options import SyncPolicy
from tests.proxy.embedded.store.fakes import Clock, Disk, abandon, bodies, message, open_store

pytestmark = pytest.mark.anyio


class SlowDisk(Disk):
    """Files whose fsyncs block until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.held = False

    def sync(self, file: int) -> None:
        self.held = not self.go.is_set()
        assert self.go.wait(60)
        super().sync(file)

    async def holds(self) -> None:
        """Wait until a blocked fsync has begun."""
        async with asyncio.timeout(30):
            while not self.held:
                await asyncio.sleep(0.001)


async def test_many_senders_share_an_fsync(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = open_store(tmp_path, disk)
    disk.go.clear()
    store.append(message(b"first"))
    first = store.synced()
    await disk.holds()
    waiting = []
    for number in range(500):
        store.append(message(b"%d" % number))
        waiting.append(store.synced())
    await asyncio.sleep(0.01)
    assert not first.done()
    assert not any(each.done() for each in waiting)
    before = disk.syncs
    disk.go.set()
    await first
    await asyncio.gather(*waiting)
    assert disk.syncs - before == 2
    store.close()


async def test_a_slow_disk_does_not_block_the_event_loop(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = open_store(tmp_path, disk)
    disk.go.clear()
    store.append(message(b"first"))
    waiting = store.synced()
    await disk.holds()
    # Waiting for the disk now would be a deadlock: only this task releases it.
    for number in range(100):
        store.append(message(b"%d" % number))
    assert len(bodies(store)) == 101, "what is not durable yet can be read"
    assert not waiting.done()
    disk.go.set()
    await waiting
    store.close()


async def test_a_segment_may_end_during_its_fsync(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = open_store(tmp_path, disk, segment_size=1)
    disk.go.clear()
    store.append(message(b"first"))
    waiting = store.synced()
    await disk.holds()
    for number in range(10):
        store.append(message(b"%d" % number))
    disk.go.set()
    await waiting
    await store.synced()
    store.close()


async def test_synced_without_pending_writes_is_done_immediately(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.synced().done()
    store.append(message())
    await store.synced()
    assert store.synced().done()
    store.close()


async def test_a_cancelled_waiter_does_not_affect_others(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(message())
    gone, stays = store.synced(), store.synced()
    gone.cancel()
    await stays
    store.close()


@pytest.mark.parametrize("policy", [SyncPolicy.INTERVAL, SyncPolicy.OS])
async def test_synced_does_not_wait_with_other_policies(tmp_path: Path, policy: SyncPolicy) -> None:
    disk, clock = Disk(), Clock()
    store = open_store(tmp_path, disk, clock, sync=policy, sync_interval=500)
    before = disk.syncs
    store.append(message())
    assert store.synced().done()
    store.upkeep()
    assert disk.syncs == before
    clock.now += 1000
    store.upkeep()
    store._commit._worker.wait()
    assert disk.syncs - before == (policy is SyncPolicy.INTERVAL)
    store.close()


async def test_checkpoints_are_written_during_appends(tmp_path: Path) -> None:
    store = open_store(tmp_path, checkpoint_changes=50)
    for number in range(1000):
        store.append(message(b"%d" % number, KEYS=f"k{number}"))
        store.table("t").put(b"%d" % (number % 100), b"%d" % number)
        if number % 10 == 0:
            await store.synced()
    while store._checkpointer.position < store._log.needed - 50_000:
        await asyncio.sleep(0.01)
    assert store._checkpointer.position > 0
    assert bodies(store) == [b"%d" % number for number in range(1000)]
    assert len(store.table("t")) == 100
    await store.synced()
    abandon(store)
    store = open_store(tmp_path)
    assert bodies(store) == [b"%d" % number for number in range(1000)]
    assert len(store.by_key("T", "k123", 0, 1 << 60, 9)) == 1
    store.close()


async def test_close_makes_unawaited_writes_durable(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(10):
        store.append(message(b"%d" % number))
    waiting = store.synced()
    store.close()
    await waiting
    store = open_store(tmp_path)
    assert len(bodies(store)) == 10
    store.close()


async def test_a_failed_write_fails_those_that_wait_for_an_fsync(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, disk)
    store.append(message(b"first"))
    waiting = store.synced()
    disk.broken = errno.EIO
    with pytest.raises(StorageFailed):
        store.append(message(b"second"))
    async with asyncio.timeout(10):
        with pytest.raises(StorageFailed):
            await waiting
    abandon(store)
