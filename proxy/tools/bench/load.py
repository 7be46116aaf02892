"""The load: senders on a schedule, receivers, and what they measure.

With a rate, the load is open: each message is due at its time, whether or not earlier ones are answered, and its
latency counts from that time. A server that stalls is charged for all messages that were due meanwhile.
"""

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from proxy.tools.bench.drivers import Connector, Delivery, Driver, Fault
from proxy.tools.bench.histogram import Histogram
from proxy.tools.cli.client import CommandError

# Seconds in which the members of the group must have received what was sent before the run.
_CATCH_UP = 60.0
# Seconds of a receive without a message.
_POLL = 1.0
# Seconds without a message after which receivers end when all messages are sent.
_QUIET = 3.0
# Seconds after a fault, so that a server that is away is not asked in a busy loop.
_FAULT_PAUSE = 0.1


@dataclass
class Side:
    """Results of one direction, from the end of the warm-up on.

    latency: of sends from the time at which they were due; of deliveries from the due time of their send.
    errors: failed requests by text.
    """

    messages: int = 0
    bytes: int = 0
    latency: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)


@dataclass
class Result:
    """Results of a run. seconds: measured time. cpu: CPU seconds of this process for each of them."""

    sent: Side = field(default_factory=Side)
    received: Side = field(default_factory=Side)
    acknowledged: Side = field(default_factory=Side)
    # Messages of the whole run with its warm-up.
    all_sent: int = 0
    all_received: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


class Load:
    """One run of the load generator."""

    def __init__(self, options: argparse.Namespace, connector: Connector, body: bytes) -> None:
        self.result = Result()
        self._options = options
        self._connector = connector
        self._body = body
        self._run = os.urandom(4).hex()
        self._turn = 0
        self._ends = asyncio.Event()
        self._received_at = 0.0
        self._begin = self._measured = self._end = 0.0

    async def run(self, shown: Callable[[float], None]) -> Result:
        """Run the load; call `shown` each second with the seconds that have passed. Raises CommandError."""
        options, clock = self._options, time.perf_counter
        async with AsyncExitStack() as stack:
            drivers = {
                role: [await stack.enter_async_context(self._connector(options, role)) for _ in range(options.clients)]
                for role in ("send", "receive")
                if options.action in (role, "both")
            }
            if options.action == "both":
                await self._catch_up(drivers["receive"])
            self._begin = clock()
            self._measured = self._begin + options.warmup
            self._end = self._measured + options.duration
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(shown))
                receiving = [
                    tasks.create_task(self._receive(driver, source))
                    for driver in drivers.get("receive", ())
                    for source in driver.sources
                ]
                sending = [
                    tasks.create_task(self._send(driver))
                    for driver in drivers.get("send", ())
                    for _ in range(options.in_flight)
                ]
                if sending:
                    await asyncio.wait(sending)
                self._ends.set()
                if receiving:
                    await asyncio.wait(receiving)
        return self.result

    async def _catch_up(self, drivers: list[Driver]) -> None:
        """Receive the messages before the run, whose age would be measured. Raises CommandError if it takes long."""
        try:
            async with asyncio.timeout(_CATCH_UP), asyncio.TaskGroup() as tasks:
                for driver in drivers:
                    for source in driver.sources:
                        tasks.create_task(self._empty(driver, source))
        except TimeoutError:
            raise CommandError(
                f"the group {self._options.group} is still behind after {_CATCH_UP:g} s: use a topic without other "
                "messages, or reset the group"
            ) from None

    async def _empty(self, driver: Driver, source: str) -> None:
        try:
            while batch := await driver.receive(source, 0.0):
                await asyncio.gather(*(driver.acknowledge(source, one) for one in batch))
        except Fault as fault:
            raise CommandError(str(fault)) from None

    async def _watch(self, shown: Callable[[float], None]) -> None:
        """Measure the CPU time between warm-up and end, and report the progress."""
        clock = time.perf_counter
        await asyncio.sleep(max(self._measured - clock(), 0))
        begin, cpu = clock(), time.process_time()
        while (left := self._end - clock()) > 0:
            await asyncio.sleep(min(left, 1.0))
            shown(clock() - self._begin)
        self.result.seconds = clock() - begin
        self.result.cpu = (time.process_time() - cpu) / self.result.seconds

    # Sending.

    async def _send(self, driver: Driver) -> None:
        """Send the messages that are due, one at a time."""
        clock, rate, sent = time.perf_counter, self._options.rate, self.result.sent
        while True:
            turn = self._turn
            due = clock() if rate is None else self._begin + turn / rate
            if due >= self._end:
                return
            self._turn += 1
            if (early := due - clock()) > 0:
                await asyncio.sleep(early)
            measured = due >= self._measured
            stamp = f"{self._run}:{measured:d}:{time.time_ns() - int((clock() - due) * 1e9)}"
            try:
                await driver.send(self._body, stamp, turn)
            except Fault as fault:
                if measured:
                    sent.errors[str(fault)] += 1
                await asyncio.sleep(_FAULT_PAUSE)
                continue
            self.result.all_sent += 1
            if measured:
                sent.messages += 1
                sent.bytes += len(self._body)
                sent.latency.record(int((clock() - due) * 1e6))

    # Receiving.

    async def _receive(self, driver: Driver, source: str) -> None:
        """Receive and acknowledge until the end, and in a run that sends until all is received."""
        received = self.result.received
        while self._wanted():
            try:
                batch = await driver.receive(source, _POLL)
            except Fault as fault:
                received.errors[str(fault)] += 1
                await asyncio.sleep(_FAULT_PAUSE)
                continue
            arrived, wall = time.perf_counter(), time.time_ns()
            for delivery in batch:
                self._count(delivery, arrived, wall)
            if batch:
                self._received_at = arrived
                await asyncio.gather(*(self._acknowledge(driver, source, one) for one in batch))

    def _wanted(self) -> bool:
        if self._options.action == "receive":
            return time.perf_counter() < self._end
        missing = self.result.all_received < self.result.all_sent
        quiet = time.perf_counter() - max(self._received_at, self._end)
        return not self._ends.is_set() or (missing and quiet < _QUIET)

    def _count(self, delivery: Delivery, arrived: float, wall: int) -> None:
        run, _, rest = delivery.stamp.partition(":")
        measured, _, text = rest.partition(":")
        received, own = self.result.received, run == self._run
        self.result.all_received += own
        # A run that sends counts the messages that it has measured.
        counted = own and measured == "1" if self._options.action == "both" else self._measured <= arrived < self._end
        if not counted:
            return
        received.messages += 1
        received.bytes += delivery.size
        due = int(text) if text.isdecimal() else 0
        # The latency of a backlog would be its age.
        if own or due >= wall - int((arrived - self._begin) * 1e9):
            received.latency.record((wall - due) // 1000)

    async def _acknowledge(self, driver: Driver, source: str, delivery: Delivery) -> None:
        acknowledged, begin = self.result.acknowledged, time.perf_counter()
        try:
            await driver.acknowledge(source, delivery)
        except Fault as fault:
            acknowledged.errors[str(fault)] += 1
            return
        if begin >= self._measured:
            acknowledged.messages += 1
            acknowledged.latency.record(int((time.perf_counter() - begin) * 1e6))
