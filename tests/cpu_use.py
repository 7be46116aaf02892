"""CPU time of a test and its servers, and waits for a processor: for time bounds that hold on a busy machine."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.benchmark.processes import cpu_seconds, cpu_wait_seconds, machine_cpu_seconds

# The largest share of the machine's CPU time that is taken to be other processes'.
_MAX_OTHERS = 0.8
# Seconds between two looks at the test's own delay.
_PULSE = 0.01


def lengthen(seconds: float, others: float) -> float:
    """Return a limit of a machine without other work, lengthened by the share of CPU time that others use."""
    return seconds / (1 - min(others, _MAX_OTHERS))


class CpuUse:
    """CPU time used since its creation by the test and the processes `pids`, and by all other processes."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._created = time.monotonic()
        self._start = self._read()

    @property
    def seconds(self) -> float:
        """The seconds since the creation."""
        return time.monotonic() - self._created

    def others(self) -> float:
        """Return the share of the machine's CPU time that other processes used."""
        own, used, total = (now - then for now, then in zip(self._read(), self._start, strict=True))
        return max(0.0, used - own) / total if total else 0.0

    def lengthen(self, seconds: float) -> float:
        """Return a limit of a machine without other work, lengthened by the others' share since the creation."""
        return lengthen(seconds, self.others())

    def _read(self) -> tuple[float, float, float]:
        return sum(map(cpu_seconds, self._pids)) + sum(os.times()[:2]), *machine_cpu_seconds()


class CpuWaits:
    """The wait for a processor: of the server's process that waited longest, and of the test's event loop."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._late = 0.0
        self._slept = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """Count from here on."""
        self._late = 0.0
        self._start = cpu_wait_seconds(self._pid)

    def elapsed(self) -> float:
        """Return the seconds since `restart`; without the server's, of which one process ended meanwhile."""
        waits = cpu_wait_seconds(self._pid)
        same = len(waits) == len(self._start)
        server = [now - then for now, then in zip(waits, self._start, strict=True)] if same else []
        # The answer may be read before `pulse` notices that the loop is late.
        return max(server, default=0.0) + self._late + self._lateness()

    async def pulse(self) -> None:
        """Add up how late the event loop runs."""
        while True:
            self._slept = time.monotonic()
            await asyncio.sleep(_PULSE)
            self._late += self._lateness()

    def _lateness(self) -> float:
        return max(time.monotonic() - self._slept - 2 * _PULSE, 0.0)


@asynccontextmanager
async def counting_waits(pid: int) -> AsyncIterator[CpuWaits]:
    """Yield the waits for a processor inside the context."""
    waits = CpuWaits(pid)
    pulse = asyncio.create_task(waits.pulse())
    try:
        yield waits
    finally:
        pulse.cancel()
