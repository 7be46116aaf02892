"""A good client beside an attack: its failures and stalls, and the growth of the server's memory."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from remoting import send_message
from remoting.codes import RequestCode, ResponseCode
from tests.attacks import figures
from tests.benchmark.processes import rss_mb, tree
from tests.cluster.client import Client, unique, wait_until
from tests.cpu_use import CpuUse, CpuWaits, lengthen

# Seconds between two requests of the good client.
_PERIOD = 0.02
# The longest stall of the good client on a machine without other work, in seconds.
_MAX_STALL = 1.0
# Timeout of a request in seconds. `check` bounds its time without waits for a processor, which may be much longer.
_TIMEOUT = 60.0


@dataclass
class Observation:
    """The good client's requests during an attack, and the server's memory.

    latencies: seconds of each request. waits: seconds of each request in which the server, or the test, had no
    processor. failures: requests without a success. growth: MiB, peak during the attack less the value before it.
    processes: those that serve, over which attackers' connections are spread. others: share of the machine's CPU time
    that other processes than the server and the test used.
    """

    latencies: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    growth: float = 0.0
    processes: int = 1
    others: float = 0.0

    @property
    def longest_stall(self) -> float:
        """The longest time of a request without its wait for a processor, in seconds."""
        waits = self.waits or [0.0] * len(self.latencies)
        return max((latency - wait for latency, wait in zip(self.latencies, waits, strict=True)), default=0.0)

    @property
    def p99(self) -> float:
        """The 99th percentile of the latency, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else 0.0

    def check(self, growth: float, stall: float = _MAX_STALL) -> None:
        """Fail if the good client had a failure or a longer stall, or memory grew by more (seconds, MiB a process)."""
        summary = (
            f"{len(self.latencies)} requests, {len(self.failures)} failures, longest {self.longest_stall:.3f} s"
            f" ({max(self.latencies, default=0.0):.3f} s with waits for a processor), p99 {self.p99:.3f} s,"
            f" memory +{self.growth:.0f} MiB,"
            f" {self.others:.0%} of the CPU time used by other processes"
        )
        assert self.latencies, summary
        assert not self.failures, f"{summary}: {self.failures[0]}"
        assert self.longest_stall <= self.allowed(stall), summary
        assert self.growth <= growth * self.processes, summary

    def allowed(self, seconds: float) -> float:
        """Return a limit of a machine without other work, lengthened by the CPU share of other processes."""
        return lengthen(seconds, self.others)


def send_fields(topic: str, queue: int = 0) -> dict[str, str]:
    """Return the ext fields of a SEND_MESSAGE_V2 to a message queue."""
    return send_message.send_fields(
        producer_group="good", topic=topic, born_timestamp=time.time_ns() // 1_000_000, queue_id=queue
    )


@asynccontextmanager
async def observed(address: str, pid: int, topic: str) -> AsyncIterator[Observation]:
    """Send messages to the topic, one each 20 ms over a connection of their own, and watch the process's memory."""
    # With several processes, one of them supervises.
    observation = Observation(processes=max(len(tree(pid)) - 1, 1))
    before = rss_mb(pid)
    async with Client(address, unique("good")) as client:
        fields = send_fields(topic)
        # The topic and the connection exist before the attack.
        await wait_until(lambda: _sent(client, fields), "the first send")

        waits = CpuWaits(pid)

        async def send() -> None:
            while True:
                waits.restart()
                start = time.monotonic()
                try:
                    reply = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"good", timeout=_TIMEOUT)
                    if reply.code != ResponseCode.SUCCESS:
                        observation.failures.append(f"code {reply.code}: {reply.header.get('remark')}")
                except Exception as error:
                    observation.failures.append(repr(error))
                observation.latencies.append(time.monotonic() - start)
                observation.waits.append(waits.elapsed())
                await asyncio.sleep(_PERIOD)

        async def watch() -> None:
            while True:
                observation.growth = max(observation.growth, rss_mb(pid) - before)
                await asyncio.sleep(0.05)

        used = CpuUse(pid)
        tasks = [asyncio.create_task(task()) for task in (send, watch, waits.pulse)]
        try:
            # Some requests before the attack, and some after it.
            await asyncio.sleep(0.2)
            yield observation
            await asyncio.sleep(0.5)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            observation.others = used.others()
            figures.record_good_client(
                observation.latencies, len(observation.failures), observation.p99, observation.growth
            )


async def _sent(client: Client, fields: dict[str, str]) -> bool:
    """Send the first message. Another worker with the embedded broker, or a new topic's route, may not be ready."""
    return (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"first")).code == ResponseCode.SUCCESS


async def memory_released(pid: int, limit: float, timeout: float = 10.0) -> None:
    """Wait until the process's memory is at most `limit` MiB; fail after `timeout` seconds without other work."""
    used = CpuUse(pid)
    while rss_mb(pid) > limit:
        in_time = used.seconds < used.lengthen(timeout)
        assert in_time, f"{rss_mb(pid):.0f} MiB are still in use, {limit:.0f} allowed"
        await asyncio.sleep(0.1)
    figures.record_release(used.seconds)
