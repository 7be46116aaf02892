"""Repeated kill -9 of a store under load: `python -m tests.proxy.embedded.store.kill [--rounds 50]`.

A process appends to several queues and prints the messages that are reported as durable. It is killed at a random time;
then all printed messages must be present, unchanged and in order.
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from proxy.embedded.store.durable import DurableStore
from proxy.embedded.store.options import StoreOptions
from remoting.messages import decode_message
from tests.proxy.embedded.store.fakes import message

QUEUES = 4
SENDERS = 16
# Small, so that the kill occurs during all kinds of work.
OPTIONS = StoreOptions(segment_size=200_000, checkpoint_changes=300)


def _clock() -> int:
    return int(time.time() * 1000)


# Minimum number of lines of a round, also on a slow disk.
LEAST = 100


def body(queue_id: int, sender: int, number: int) -> bytes:
    return b"%d %d %d " % (queue_id, sender, number) + random.Random(number).randbytes(number % 500)


async def load(directory: Path, start: int) -> None:
    """Append until the process is killed."""
    store = DurableStore(directory, _clock, OPTIONS)
    table = store.table("progress")

    async def send(sender: int) -> None:
        number = start
        queue_id = sender % QUEUES
        while True:
            number += 1
            stored = store.append(message(body(queue_id, sender, number), "T", queue_id, UNIQ_KEY=f"{sender}-{number}"))
            table.put(b"%d" % sender, b"%d" % stored.queue_offset)
            await store.synced()
            print(f"message {queue_id} {stored.queue_offset} {sender} {number}", flush=True)

    async def send_units() -> None:
        while True:
            with store.transaction():
                offsets = [each.queue_offset for each in store.append_all([message(b"one", "U"), message(b"two", "U")])]
                table.put(b"units", b"%d" % (offsets[-1] + 1))
            await store.synced()
            print(f"units {offsets[-1] + 1}", flush=True)

    print("ready", flush=True)
    await asyncio.gather(send_units(), *(send(sender) for sender in range(SENDERS)))


@dataclass
class PrintedMessages:
    """The messages that the processes printed."""

    messages: dict[tuple[int, int], bytes] = field(default_factory=dict)
    units: int = 0

    def take(self, output: str) -> None:
        # The last line may be incomplete.
        for line in output.split("\n")[:-1]:
            kind, *numbers = line.split()
            if kind == "message":
                queue_id, offset, sender, number = map(int, numbers)
                self.messages[queue_id, offset] = body(queue_id, sender, number)
            elif kind == "units":
                self.units = int(numbers[0])


def run_round(directory: Path, printed: PrintedMessages, start: int, chance: random.Random) -> None:
    """Load a process, kill it, and check the store."""
    command = [sys.executable, "-m", "tests.proxy.embedded.store.kill", "--load", str(directory), "--start", str(start)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        # A file instead of a pipe, on which the process would block.
        timer = subprocess.Popen(["sleep", f"{chance.uniform(0.05, 0.8):.3f}"])
        lines: list[str] = []
        while timer.poll() is None or len(lines) < LEAST:
            lines.append(process.stdout.readline())
        assert process.poll() is None, "it ended by itself"
    finally:
        process.send_signal(signal.SIGKILL)
    printed.take("".join(lines) + process.stdout.read())
    process.stdout.close()
    process.wait()
    store = DurableStore(directory, _clock, OPTIONS)
    try:
        check_store(store, printed)
    finally:
        store.close()


def check_store(store: DurableStore, printed: PrintedMessages) -> None:
    """Check that all printed messages are present, and that all messages were written in this order."""
    assert store.corrupt == 0
    last: dict[int, int] = {}
    for queue_id in range(QUEUES):
        offset, after = store.bounds("T", queue_id)
        assert offset == 0
        while offset < after:
            for record in store.read("T", queue_id, offset, 256, 1 << 20):
                found = decode_message(record)
                assert (found.queue_id, found.queue_offset) == (queue_id, offset)
                _, sender, number = map(int, found.body.split(b" ", 3)[:3])
                assert found.body == body(queue_id, sender, number)
                assert last.get(sender, -1) < number, "a sender's messages changed places"
                last[sender] = number
                assert printed.messages.pop((queue_id, offset), found.body) == found.body
                offset += 1
    assert not printed.messages, f"{len(printed.messages)} durable messages are lost"
    table = store.table("progress")
    for sender in last:
        progress = table.get(b"%d" % sender)
        assert progress is None or int(progress) < store.bounds("T", sender % QUEUES)[1], "an offset is ahead"
    _, after = store.bounds("U", 0)
    assert after >= printed.units
    assert int(table.get(b"units") or 0) == after, "a transaction is incomplete"


def run(rounds: int, directory: Path, seed: int) -> int:
    """Run rounds on one directory; return the number of messages at the end."""
    chance = random.Random(seed)
    printed = PrintedMessages()
    for number in range(rounds):
        run_round(directory, printed, number * 1_000_000, chance)
    store = DurableStore(directory, _clock, OPTIONS)
    count = sum(store.bounds("T", queue_id)[1] for queue_id in range(QUEUES))
    store.close()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        asyncio.run(load(arguments.load, arguments.start))
    with tempfile.TemporaryDirectory() as directory:
        count = run(arguments.rounds, Path(directory), arguments.seed)
    print(
        f"{arguments.rounds} rounds (seed {arguments.seed}), {count:,} messages: nothing lost, changed or out of order"
    )


if __name__ == "__main__":
    main()
