"""Benchmark of the store and of the disk: `python -m tests.proxy.embedded.store.bench [--gigabytes 1]`."""

import argparse
import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from proxy.embedded.store.durable import DurableStore
from proxy.embedded.store.options import StoreOptions, SyncPolicy
from remoting import properties
from remoting.messages import StoredMessage, crc

BODY = b"x" * 300


def _message(number: int, body: bytes = BODY, queues: int = 8) -> StoredMessage:
    text = properties.encode({"UNIQ_KEY": f"7F00000100002A9F1C{number:014X}", "TAGS": "A", "WAIT": "true"})
    return StoredMessage(topic="bench", queue_id=number % queues, body=body, body_crc=crc(body), properties=text)


def _memory() -> int:
    """Return the anonymous memory of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _clock() -> int:
    return int(time.time() * 1000)


def disk(directory: Path, seconds: float = 2.0) -> tuple[float, float]:
    """Return appends of 4 KiB with an fsync each per second, and bytes per second of large writes with one fsync."""
    path = directory / "probe"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        os.pwrite(file, b"x" * 4096, count * 4096)
        os.fdatasync(file)
        count += 1
    begin = time.perf_counter()
    for number in range(128):
        os.pwrite(file, b"x" * (1 << 20), number << 20)
    os.fdatasync(file)
    rate = (128 << 20) / (time.perf_counter() - begin)
    os.close(file)
    path.unlink()
    return count / seconds, rate


async def send(store: DurableStore, senders: int, count: int) -> tuple[float, float, float]:
    """Return messages per second, CPU seconds per message, and the longest blocking of the event loop."""
    per_sender = count // senders
    late = 0.0
    messages = [_message(number) for number in range(per_sender)]

    async def one() -> None:
        for each in messages:
            store.append(each)
            await store.synced()

    async def watch() -> None:
        nonlocal late
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late = max(late, time.perf_counter() - before - 0.001)

    watcher = asyncio.ensure_future(watch())
    begin, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(senders)))
    took = time.perf_counter() - begin
    cpu = time.process_time() - cpu
    watcher.cancel()
    return senders * per_sender / took, cpu / (senders * per_sender), late


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _read_all(store: DurableStore, count: int) -> int:
    read = 0
    for queue_id in range(8):
        offset, end = store.bounds("bench", queue_id)
        while offset < end and read < count:
            got = len(store.read("bench", queue_id, offset, 32, 1 << 20))
            offset += got
            read += got
    return read


def sends(directory: Path) -> None:
    """Print the rate of appends by sync policy and number of senders."""
    for policy, senders in (
        (SyncPolicy.ALWAYS, 1),
        (SyncPolicy.ALWAYS, 128),
        (SyncPolicy.ALWAYS, 1024),
        (SyncPolicy.OS, 1),
    ):
        path = directory / f"{policy}-{senders}"
        store = DurableStore(path, _clock, StoreOptions(sync=policy))
        count = 10_000 if (policy, senders) == (SyncPolicy.ALWAYS, 1) else 200_000
        speed, cpu, late = asyncio.run(send(store, senders, count))
        print(
            f"send, sync {policy}, {senders} at a time: {speed:,.0f} messages/s, {cpu * 1e6:.1f} µs of CPU each, "
            f"loop held up for {late * 1e3:.1f} ms at most"
        )
        store.close()
        shutil.rmtree(path)


def large(path: Path, gigabytes: float) -> None:
    """Create a store with a log of this size, and print the cost of reads."""
    store = DurableStore(path, _clock, StoreOptions(sync=SyncPolicy.OS))
    before, begin, count = _memory(), time.perf_counter(), 0
    body = b"x" * 1024
    while store.log_bytes < gigabytes * (1 << 30):
        for number in range(count, count + 1000):
            store.append(_message(number, body))
        count += 1000
    took = time.perf_counter() - begin
    print(
        f"log of {store.log_bytes / (1 << 30):.1f} GiB, {count:,} messages of {len(body)} B, without a loop: "
        f"{count / took:,.0f} messages/s"
    )
    print(f"memory: {(_memory() - before) / count * 1e6 / (1 << 20):.1f} MiB per million messages")
    read = min(count, 200_000)
    print(f"read, 32 at a time: {read / timed(lambda: _read_all(store, read)):,.0f} messages/s")
    key = f"7F00000100002A9F1C{count // 2:014X}"
    print(f"by key: {timed(lambda: store.by_key('bench', key, 0, 1 << 60, 32)) * 1e3:.2f} ms")
    print(f"by time: {timed(lambda: store.offset_at('bench', 0, _clock() - 5000)) * 1e3:.2f} ms")
    index = sum(each.stat().st_size for each in path.glob("index.db*"))
    print(f"index file: {index / count:.0f} bytes per message")
    print(f"close: {timed(store.close):.2f} s")


def crash(path: Path) -> None:
    """Leave a store like a kill -9 at the worst time: just before a checkpoint."""
    store = DurableStore(path, _clock)
    for number in range(StoreOptions().checkpoint_changes - 1):
        store.append(_message(number))
    store._lock.release()


def restarts(path: Path) -> None:
    """Print the duration of opening a large store."""
    stores: list[DurableStore] = []
    print(f"open after a clean stop: {timed(lambda: stores.append(DurableStore(path, _clock))):.3f} s")
    stores[0].close()
    crash(path)
    print(f"open after a crash: {timed(lambda: stores.append(DurableStore(path, _clock))):.3f} s")
    stores[1].close()


def run(directory: Path, gigabytes: float) -> None:
    rate, throughput = disk(directory)
    print(f"disk: {rate:,.0f} appends with fsync/s, {throughput / 1e6:,.0f} MB/s")
    sends(directory)
    large(directory / "large", gigabytes)
    restarts(directory / "large")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=arguments.directory))
    try:
        run(directory, arguments.gigabytes)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
