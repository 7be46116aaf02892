"""Benchmark of traffic records: `python -m tests.proxy.observability.records.bench [--requests N]`.

Measures the time per request on the event loop, the CPU time per written record, and the lag of the event loop while
records are converted in the writer thread.
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
from tests.proxy.observability.records.samples import client, observation

# Requests per turn of the loop, and seconds between turns.
_SLICE = 50
_PAUSE = 0.005


def observations(number: int) -> list[Observation]:
    """Return requests of 200 clients to 50 topics, every second one with a unique key."""
    rng = random.Random(7)
    clients = [client(f"client-{each}@192.0.2.{each % 250}@instance") for each in range(200)]
    started = time.monotonic()
    return [
        observation(
            f"topic-{rng.randrange(50)}",
            started=started + each / 10_000,
            channel=rng.choice(clients),
            key=f"order-{each}" if each % 2 else None,
            queue=each % 8,
            seconds=rng.expovariate(500),
            bytes_in=rng.randrange(100, 4_000),
        )
        for each in range(number)
    ]


def loop_cost(requests: list[Observation], recorder: Recorder) -> float:
    """Return the CPU seconds per request in the event loop's thread, less those of an empty observer."""

    def nothing(_: Observation) -> None:
        """Do nothing, to measure the cost of the loop."""

    def run(observe: object) -> float:
        started = time.thread_time()
        for each in requests:
            observe(each)  # type: ignore[operator]
        return time.thread_time() - started

    return min(run(recorder.observe) for _ in range(3)) / len(requests) - min(run(nothing) for _ in range(3)) / len(
        requests
    )


async def lateness(until: asyncio.Event) -> list[float]:
    """Return the sorted lags of the event loop in seconds, measured by timers of 1 ms."""
    late = []
    while not until.is_set():
        started = time.monotonic()
        await asyncio.sleep(0.001)
        late.append(time.monotonic() - started - 0.001)
    return sorted(late)


async def feed(requests: list[Observation], recorder: Recorder | None) -> tuple[float, list[float]]:
    """Record 10,000 requests per second; return the CPU seconds of the process and the lags of the loop."""
    done = asyncio.Event()
    ticking = asyncio.ensure_future(lateness(done))
    started = time.process_time()
    if recorder is not None:
        recorder.start()
    for start in range(0, len(requests), _SLICE):
        for each in requests[start : start + _SLICE]:
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
    requests = observations(number)
    # Starts the worker thread that closing needs.
    await anyio.to_thread.run_sync(int)
    # As a replica does once it is ready: objects that exist now are not collected again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    with tempfile.TemporaryDirectory() as directory:
        unread = recorder(directory)
        print(f"loop: {loop_cost(requests, unread) * 1e9:.0f} ns a request")
        del unread
        base, quiet = await feed(requests, None)
        kept = recorder(directory)
        used, late = await feed(requests, kept)
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
