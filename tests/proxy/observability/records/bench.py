"""What traffic records cost: `python -m tests.proxy.observability.records.bench [--requests N]`.

The event loop's part (a call per request), the CPU time of everything for a record on the disk, and how late the loop
is while records are converted beside it.
"""

import argparse
import asyncio
import gc
import random
import tempfile
import time

import anyio.to_thread

from proxy.core.events import Observation
from proxy.observability.records.recorder import Recorder
from proxy.settings.traffic_records import TrafficSettings
from tests.proxy.observability.records.kit import client, seen

# Requests per turn of the loop, and seconds between turns.
_SLICE = 50
_PAUSE = 0.005


def observations(number: int) -> list[Observation]:
    """Requests of 200 clients to 50 topics, every second one with a key of its own."""
    chance = random.Random(7)
    clients = [client(f"client-{each}@192.0.2.{each % 250}@instance") for each in range(200)]
    started = time.monotonic()
    return [
        seen(
            f"topic-{chance.randrange(50)}",
            started=started + each / 10_000,
            channel=chance.choice(clients),
            key=f"order-{each}" if each % 2 else None,
            queue=each % 8,
            seconds=chance.expovariate(500),
            bytes_in=chance.randrange(100, 4_000),
        )
        for each in range(number)
    ]


def loop_cost(made: list[Observation], recorder: Recorder) -> float:
    """Seconds of the loop's thread for one request: the observer, hand-over included, less an empty one."""

    def nothing(_: Observation) -> None:
        """What the measurement itself costs."""

    def run(observe: object) -> float:
        started = time.thread_time()
        for each in made:
            observe(each)  # type: ignore[operator]
        return time.thread_time() - started

    return min(run(recorder.observe) for _ in range(3)) / len(made) - min(run(nothing) for _ in range(3)) / len(made)


async def lateness(until: asyncio.Event) -> list[float]:
    """By how much the loop is late, in seconds, for a timer of a millisecond."""
    late = []
    while not until.is_set():
        started = time.monotonic()
        await asyncio.sleep(0.001)
        late.append(time.monotonic() - started - 0.001)
    return sorted(late)


async def feed(made: list[Observation], recorder: Recorder | None) -> tuple[float, list[float]]:
    """CPU seconds of the process, and lateness, while all are recorded, 10,000 a second."""
    done = asyncio.Event()
    ticking = asyncio.ensure_future(lateness(done))
    started = time.process_time()
    if recorder is not None:
        recorder.start()
    for start in range(0, len(made), _SLICE):
        for each in made[start : start + _SLICE]:
            if recorder is not None:
                recorder.observe(each)
        await asyncio.sleep(_PAUSE)
    if recorder is not None:
        await recorder.close()
    used = time.process_time() - started
    done.set()
    return used, await ticking


def recorder(directory: str, buffer: int = 100_000_000) -> Recorder:
    return Recorder(TrafficSettings(directory=directory, interval=5.0, buffer=buffer), "bench")


async def measure(number: int) -> None:
    made = observations(number)
    # Loads what closing needs.
    await anyio.to_thread.run_sync(int)
    # As a replica does once it is ready: what is there now is not looked through again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    with tempfile.TemporaryDirectory() as directory:
        unread = recorder(directory)
        print(f"loop: {loop_cost(made, unread) * 1e9:.0f} ns a request")
        del unread
        base, quiet = await feed(made, None)
        kept = recorder(directory)
        used, late = await feed(made, kept)
        written = kept.counts.written["requests"]
        size = kept.counts.bytes["requests"]
        assert written == number, kept.counts
        print(f"all:  {(used - base) / number * 1e6:.2f} us of CPU a record, {size / number:.1f} bytes on the disk")
        for name, values in (("without", quiet), ("with", late)):
            middle, high = values[len(values) // 2], values[len(values) * 99 // 100]
            print(
                f"late: {middle * 1e6:.0f} us median, {high * 1e6:.0f} us p99, {values[-1] * 1e6:.0f} us most, {name}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    asyncio.run(measure(parser.parse_args().requests))


if __name__ == "__main__":
    main()
