"""Benchmark of the embedded broker and of the disk: `python -m tests.proxy.embedded.measure [--gigabytes 5]`.

It measures sends in process and over the port, restarts on a large log, and cold starts. Every send is durable before
its response, unless noted otherwise. `per core` is per second of the broker's CPU time, with fsyncs and without the
load generator. The disk's limit is its number of fsyncs per second, which senders share.
"""

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.embedded.backend import EmbeddedBackend, wall_clock
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.durable import DurableStore
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.benchmark import generator
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import Attributes
from tests.cluster.client import Client, create_topic, send_fields, strings, v2
from tests.cluster.servers import HOST, ROOT
from tests.ports import free_port
from tests.proxy.embedded.store import bench
from tests.proxy.fakes import FakeChannel

_STARTS = 9
# Connections and requests in flight on each.
_LOADS = (("send-sync", 16, 1), ("send-async", 4, 32), ("grpc-send-sync", 16, 1), ("grpc-send-async", 4, 32))


def in_process(directory: Path, senders: int, count: int) -> None:
    """Measure sends by calls of the backend: the cost of broker and store without a protocol."""
    per_sender = count // senders
    spec = REQUESTS[RequestCode.SEND_MESSAGE_V2]

    def request(sender: int, number: int) -> RemotingCommand:
        text = properties.encode({"UNIQ_KEY": f"7F00000100002A9F{sender:04X}{number:012X}", "WAIT": "true"})
        fields = send_fields("bench", text, sender % 8, defaultTopicQueueNums=8)
        return commands.request(spec.code, strings(v2(fields)), bench.BODY)

    async def run() -> tuple[float, float]:
        store = DurableStore(directory, wall_clock)
        backend = EmbeddedBackend(BrokerSettings(), store, lambda channel, command: None, wall_clock)
        channel = FakeChannel()
        requests = [[request(sender, number) for number in range(per_sender)] for sender in range(senders)]

        async def send(mine: list[RemotingCommand]) -> None:
            for command in mine:
                reply = await backend.request("broker-a", spec, command, 3, channel)
                assert reply.code == ResponseCode.SUCCESS, reply.remark

        begin, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(send, requests))
        took, cpu = time.perf_counter() - begin, time.process_time() - cpu
        backend.close()
        return took, cpu

    took, cpu = asyncio.run(run())
    sent = senders * per_sender
    print(f"in process, {senders} senders: {sent / took:,.0f} messages/s, {sent / cpu:,.0f} per core")


def over_the_port(directory: Path, seconds: float) -> None:
    """Measure sends of remoting and gRPC clients through the port of `gantry serve --embedded`."""
    generator.build()
    door = f"{HOST}:{free_port()}"
    with serving(directory, "--embedded-listen", door) as (process, address):
        subject = Attributes("gantry", address, address, process.pid, address)
        for operation, connections, window in _LOADS:
            topic = asyncio.run(create_topic(door, "bench", 16))
            generator.run(operation, subject, topic=topic, connections=connections, window=window, seconds=0.5)
            before = cpu_seconds(process.pid)
            result = generator.run(
                operation, subject, topic=topic, connections=connections, window=window, seconds=seconds
            ).checked(operation)
            spent = cpu_seconds(process.pid) - before
            print(
                f"over the port, {operation}, {connections} connections with {window} in flight: "
                f"{result.messages_per_second:,.0f} messages/s, {result.all_messages / spent:,.0f} per core, "
                f"p50 {result.latency.p50:.1f} ms, p99 {result.latency.p99:.1f} ms"
            )
        asyncio.run(_batches(address, asyncio.run(create_topic(door, "bench", 16)), process.pid, seconds))
        print(f"memory after that: {rss_mb(process.pid):,.0f} MB")


async def _batches(address: str, topic: str, pid: int, seconds: float, size: int = 32, senders: int = 8) -> None:
    """Send batches of 32 messages, as producers do."""
    text = properties.encode({"TAGS": "A"}).encode()
    # A message of a batch: size, magic, CRC, flag, body, properties.
    one = bytes(12) + len(bench.BODY).to_bytes(4, "big") + bench.BODY + len(text).to_bytes(2, "big") + text
    body = ((len(one) + 4).to_bytes(4, "big") + one) * size
    sent, end = 0, time.perf_counter() + seconds

    async def send(number: int) -> None:
        nonlocal sent
        async with Client(address) as client:
            fields = client.named(send_fields(topic, properties.encode({}), number % 16, batch=True))
            while time.perf_counter() < end:
                await client.get(RequestCode.SEND_BATCH_MESSAGE, v2(fields), body)
                sent += size

    before = cpu_seconds(pid)
    await asyncio.gather(*(send(number) for number in range(senders)))
    spent = cpu_seconds(pid) - before
    print(
        f"over the port, batches of {size}, {senders} connections: {sent / seconds:,.0f} messages/s, "
        f"{sent / spent:,.0f} per core"
    )


# Starts.


@contextmanager
def serving(directory: Path, *words: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Run `gantry serve` on a directory; it accepts connections when the context begins."""
    port = free_port()
    command = [sys.executable, "-m", "proxy", "serve", "--listen", f"{HOST}:{port}", "--embedded", str(directory)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_")}
    process = subprocess.Popen([*command, *words, "--log-level", "warning"], cwd=ROOT, env=environment)
    try:
        while not _accepts(port):
            assert process.poll() is None, "gantry did not start"
            time.sleep(0.002)
        yield process, f"{HOST}:{port}"
    finally:
        process.terminate()
        process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def start(directory: Path) -> float:
    """Return the seconds from the start of the process to the first accepted connection."""
    begin = time.perf_counter()
    with serving(directory):
        return time.perf_counter() - begin


def starts(what: str, directory: Path, count: int = _STARTS) -> None:
    """Print the durations of several starts."""
    found = [start(directory) for _ in range(count)]
    print(f"{what}: {min(found):.2f} s at best, {statistics.median(found):.2f} s in the middle of {count}")


def run(directory: Path, gigabytes: float, seconds: float) -> None:
    rate, throughput = bench.disk(directory)
    print(f"disk: {rate:,.0f} fsyncs/s of one writer, {throughput / 1e6:,.0f} MB/s")
    bench.sends(directory)
    for senders, count in ((1, 5_000), (128, 60_000), (1024, 60_000)):
        in_process(directory / f"broker-{senders}", senders, count)
    over_the_port(directory / "port", seconds)
    starts("cold start, empty directory", directory / "empty")
    path = directory / "large"
    bench.large(path, gigabytes)
    bench.restarts(path)
    starts("start on that log after a clean stop", path, 5)
    bench.crash(path)
    print(f"start on that log after a crash: {start(path):.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of log to start on")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load over the port")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="gantry-measure-", dir=options.directory))
    try:
        run(directory, options.gigabytes, options.seconds)
    finally:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
