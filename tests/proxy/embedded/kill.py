"""Repeated kill -9 of a broker under load: `python -m tests.proxy.embedded.kill [--rounds 50]`.

Clients send, commit offsets, pop, acknowledge, end transactions and send delayed messages, all through the one port of
`gantry serve --embedded DIR`. It is killed at a random time and restarted on its directory; then all acknowledged
writes must be present. The last line contains their number.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from remoting import messages, pop
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, SysFlag
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import real_topic
from tests.cluster.client import BROKER, Client, create_topic, described, ok, pull_fields, queue_fields
from tests.cluster.servers import HOST, Gantry, accepts
from tests.ports import free_port

QUEUES = 4
SENDERS = 8
# Distance between the first message numbers of two rounds.
ROUND = 1_000_000
# Milliseconds: the invisible time of pops, and the part of it in which a message is certainly invisible.
INVISIBLE = 4_000
SURE = 2_000
DELAY = 700
# Seconds within which all delayed and redelivered messages must arrive.
TIMEOUT = 120.0
# Segment size of the log, so that it has several files.
SEGMENT = 2 * 2**20

_GROUP = "killed"
_READER = "reader"
_PRODUCERS = "killed-producers"
_COMMIT, _ROLLBACK = int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_ROLLBACK)


def body(kind: str, sender: int, number: int) -> bytes:
    """Return the body of a message: its kind, sender and number, and random bytes that follow from them."""
    return f"{kind} {sender} {number} ".encode() + random.Random(number).randbytes(number % 500)


def check(found: bytes) -> tuple[str, int, int]:
    """Return kind, sender and number of a body, which must be as it was sent."""
    kind, sender, number = found.split(b" ", 3)[:3]
    one = (kind.decode(), int(sender), int(number))
    assert found == body(*one), f"not what was sent as {one}"
    return one


@dataclass
class Topics:
    """One topic for each kind of load."""

    plain: str
    popped: str
    ended: str
    delayed: str


@dataclass
class Acknowledged:
    """The acknowledged writes of all rounds."""

    # Bodies by queue and queue offset.
    sent: dict[tuple[int, int], bytes] = field(default_factory=dict)
    # By queue: the last acknowledged offset, and the last requested one.
    committed: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    # Bodies sent for pops, popped ones, and ones acknowledged while they were certainly invisible.
    to_pop: set[bytes] = field(default_factory=set)
    popped: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    # Bodies of resolved transactions, and of delayed messages.
    commits: set[bytes] = field(default_factory=set)
    rollbacks: set[bytes] = field(default_factory=set)
    delayed: set[bytes] = field(default_factory=set)
    # The offset up to which each queue was checked, and the last number of each sender there.
    read: Counter[int] = field(default_factory=Counter)
    last: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def something_of_all(self) -> bool:
        """Return whether every kind of request was acknowledged at least once."""
        return all((self.sent, self.committed, self.acked, self.commits, self.rollbacks, self.delayed))

    @property
    def answers(self) -> int:
        """Return the number of acknowledged writes that can be checked."""
        kept = (self.sent, self.to_pop, self.acked, self.commits, self.rollbacks, self.delayed)
        return sum(map(len, kept))


class Load:
    """The clients of one round: loops that end with the broker."""

    def __init__(self, address: str, topics: Topics, acknowledged: Acknowledged, start: int) -> None:
        self._address = address
        self._topics = topics
        self._told = acknowledged
        self._start = start

    async def run(self, kill: Callable[[], Awaitable[None]]) -> None:
        """Load the broker until `kill` ends it."""
        works: list[Callable[[Client, int], Awaitable[None]]] = [
            *[self._send] * SENDERS,
            *[self._send_to_pop] * 2,
            *[self._pop] * 2,
            self._commit_offsets,
            *[self._transact] * 2,
            self._delay,
        ]
        async with asyncio.TaskGroup() as group:
            for number, work in enumerate(works):
                group.create_task(self._until_lost(work, number))
            await kill()

    async def _until_lost(self, work: Callable[[Client, int], Awaitable[None]], number: int) -> None:
        with suppress(RemotingError, OSError):
            async with Client(self._address) as client:
                await work(client, number)

    async def _send(self, client: Client, sender: int) -> None:
        queue, number = sender % QUEUES, self._start
        while True:
            number += 1
            content = body("plain", sender, number)
            reply = await client.send(self._topics.plain, content, {"UNIQ_KEY": f"{sender}-{number}"}, queue)
            self._told.sent[queue, int(reply.fields["queueOffset"])] = content

    async def _send_to_pop(self, client: Client, sender: int) -> None:
        number = self._start
        while True:
            number += 1
            content = body("pop", sender, number)
            await client.send(self._topics.popped, content, {"UNIQ_KEY": f"{sender}-{number}"}, number % QUEUES)
            self._told.to_pop.add(content)

    async def _pop(self, client: Client, _: int) -> None:
        while True:
            await pop_and_ack(client, self._topics.popped, self._told, wait=500)

    async def _commit_offsets(self, client: Client, _: int) -> None:
        acknowledged = self._told
        while True:
            for queue in range(QUEUES):
                offset = max((at for where, at in acknowledged.sent if where == queue), default=-1) + 1
                if offset <= acknowledged.asked.get(queue, 0):
                    continue
                acknowledged.asked[queue] = offset
                fields = queue_fields(self._topics.plain, queue, consumerGroup=_GROUP, commitOffset=offset)
                await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
                acknowledged.committed[queue] = offset
            await anyio.sleep(0.01)

    async def _transact(self, client: Client, sender: int) -> None:
        number = self._start
        while True:
            number += 1
            content = body("transaction", sender, number)
            unique_id = f"{sender}-{number}"
            reply = await client.send(
                self._topics.ended,
                content,
                {"TRAN_MSG": "true", "PGROUP": _PRODUCERS, "UNIQ_KEY": unique_id},
                producerGroup=_PRODUCERS,
                sysFlag=int(SysFlag.TRANSACTION_PREPARED),
            )
            how, ended = (_ROLLBACK, self._told.rollbacks) if number % 3 == 0 else (_COMMIT, self._told.commits)
            end = {
                "topic": self._topics.ended,
                "producerGroup": _PRODUCERS,
                "tranStateTableOffset": reply.fields["queueOffset"],
                "commitLogOffset": OffsetMessageId.parse(reply.fields["msgId"]).offset,
                "commitOrRollback": how,
                "fromTransactionCheck": False,
                "msgId": unique_id,
                "transactionId": unique_id,
            }
            await client.get(RequestCode.END_TRANSACTION, client.named(end))
            ended.add(content)

    async def _delay(self, client: Client, sender: int) -> None:
        number = self._start
        while True:
            number += 1
            content = body("delay", sender, number)
            pairs = {"UNIQ_KEY": f"{sender}-{number}", "TIMER_DELAY_MS": str(DELAY)}
            await client.send(self._topics.delayed, content, pairs)
            self._told.delayed.add(content)


async def pop_and_ack(client: Client, topic: str, acknowledged: Acknowledged, wait: int) -> bool:
    """Pop and acknowledge messages once; return whether there were any."""
    fields = queue_fields(
        topic,
        -1,
        consumerGroup=_GROUP,
        maxMsgNums=32,
        invisibleTime=INVISIBLE,
        pollTime=wait,
        bornTime=int(time.time() * 1000),
        initMode=0,
        order=False,
    )
    reply = await client.ask(RequestCode.POP_MESSAGE, fields, timeout=10)
    if reply.code == ResponseCode.POLLING_TIMEOUT:
        return False
    assert reply.code == ResponseCode.SUCCESS, described(reply)
    popped = pop.popped(messages.decode_messages(reply.body), topic, reply.fields, BROKER)
    for one in popped:
        check(one.message.body)
        assert one.message.body not in acknowledged.acked, "what was acknowledged was delivered again"
        acknowledged.popped.add(one.message.body)
    await asyncio.gather(*(_ack(client, topic, one, acknowledged) for one in popped))
    return True


async def _ack(client: Client, topic: str, one: PoppedMessage, acknowledged: Acknowledged) -> None:
    handle = one.extra_info
    fields = {
        "consumerGroup": _GROUP,
        "topic": real_topic(topic, _GROUP, handle.retry),
        "queueId": handle.queue_id,
        "extraInfo": handle,
        "offset": handle.queue_offset,
    }
    ok(await client.ask(RequestCode.ACK_MESSAGE, fields))
    if time.time() * 1000 < handle.pop_time + SURE:
        acknowledged.acked.add(one.message.body)


# Checks after a restart.


async def look(client: Client, topics: Topics, acknowledged: Acknowledged) -> None:
    """Check that the queues contain the acknowledged messages in order, and that offsets are as committed."""
    for queue in range(QUEUES):
        async for message in _new(client, topics.plain, queue, acknowledged.read[queue]):
            assert (message.queue_id, message.queue_offset) == (queue, acknowledged.read[queue]), "out of place"
            _, sender, number = check(message.body)
            assert acknowledged.last.get((queue, sender), -1) < number, "a sender's messages changed places"
            acknowledged.last[queue, sender] = number
            answered = acknowledged.sent.get((queue, message.queue_offset), message.body)
            assert answered == message.body, "another message is where one was acknowledged"
            acknowledged.read[queue] += 1
        lost = [at for where, at in acknowledged.sent if where == queue and at >= acknowledged.read[queue]]
        assert not lost, f"{len(lost)} acknowledged messages are gone"
        await _look_at_offset(client, topics.plain, queue, acknowledged)


async def _look_at_offset(client: Client, topic: str, queue: int, acknowledged: Acknowledged) -> None:
    fields = queue_fields(topic, queue, consumerGroup=_GROUP)
    reply = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    offset = int(reply.fields["offset"]) if reply.code == ResponseCode.SUCCESS else 0
    assert acknowledged.committed.get(queue, 0) <= offset <= acknowledged.asked.get(queue, 0), (
        "an offset was lost, or made up"
    )
    assert offset <= acknowledged.read[queue], "an offset is ahead"


async def look_at_all(client: Client, topics: Topics, acknowledged: Acknowledged) -> None:
    """Check all queues from their beginning, and all delayed and redelivered messages."""
    acknowledged.read.clear()
    acknowledged.last.clear()
    await look(client, topics, acknowledged)
    await _wait_for_bodies(client, topics.delayed, acknowledged.delayed)
    ended = await _wait_for_bodies(client, topics.ended, acknowledged.commits)
    assert not ended & acknowledged.rollbacks, "what was rolled back is there"
    deadline = time.monotonic() + TIMEOUT
    while not acknowledged.to_pop <= acknowledged.popped:
        assert time.monotonic() < deadline, (
            f"{len(acknowledged.to_pop - acknowledged.popped)} messages cannot be popped"
        )
        await pop_and_ack(client, topics.popped, acknowledged, wait=1000)


async def _wait_for_bodies(client: Client, topic: str, expected: set[bytes]) -> set[bytes]:
    """Wait until a topic contains each of these bodies once; return all its bodies."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        found = [message.body async for message in _new(client, topic, 0, 0)]
        if expected <= set(found):
            break
        assert time.monotonic() < deadline, f"{len(expected - set(found))} messages of {topic} are missing"
        await anyio.sleep(0.5)
    for each in found:
        check(each)
    assert len(found) == len(set(found)), "a message was delivered twice"
    return set(found)


async def _new(client: Client, topic: str, queue: int, offset: int) -> AsyncIterator[StoredMessage]:
    while True:
        reply = await client.ask(
            RequestCode.PULL_MESSAGE, client.named(pull_fields(topic, _READER, queue, offset)), timeout=30
        )
        if reply.code != ResponseCode.SUCCESS:
            assert reply.code == ResponseCode.PULL_NOT_FOUND, described(reply)
            return
        for message in messages.decode_messages(reply.body):
            assert messages.crc(message.body) == message.body_crc, "the body does not match its CRC"
            yield message
            offset += 1


async def run(rounds: int, directory: Path, seed: int) -> Acknowledged:
    """Run rounds on one directory; return the acknowledged writes."""
    chance = random.Random(seed)
    acknowledged = Acknowledged()
    # Creation of topics.
    door = f"{HOST}:{free_port()}"
    config = f"""
        [embedded]
        directory = "{directory / "store"}"
        listen = "{door}"
        segment_size = {SEGMENT}
    """
    gantry = Gantry(directory, "", config)
    await anyio.to_thread.run_sync(gantry.start)
    try:
        names = [await create_topic(door, kind, QUEUES) for kind in ("plain", "popped", "ended", "delayed")]
        topics = Topics(*names)
        for number in range(rounds):

            async def kill() -> None:
                await anyio.sleep(chance.uniform(0.3, 1.3))
                with anyio.fail_after(TIMEOUT):
                    while not acknowledged.something_of_all:
                        await anyio.sleep(0.05)
                assert accepts(gantry.port), f"it ended by itself:\n{gantry.tail()}"
                gantry.kill()

            before = acknowledged.answers
            await Load(gantry.address, topics, acknowledged, number * ROUND).run(kill)
            assert acknowledged.answers > before, f"nothing was answered in a round:\n{gantry.tail()}"
            await anyio.to_thread.run_sync(gantry.start)
            async with Client(gantry.address) as client:
                await look(client, topics, acknowledged)
        async with Client(gantry.address) as client:
            await look_at_all(client, topics, acknowledged)
        assert "Traceback" not in gantry.log.read_text(), gantry.tail()
    finally:
        await anyio.to_thread.run_sync(gantry.stop)
    return acknowledged


def closing_line(rounds: int, seed: int, acknowledged: Acknowledged) -> str:
    """Return the figures of a successful run."""
    ends = len(acknowledged.commits) + len(acknowledged.rollbacks)
    counts = (
        f"{len(acknowledged.sent):,} messages sent, {len(acknowledged.to_pop):,} to pop, {len(acknowledged.acked):,} "
        f"acknowledged, {ends:,} transactions ended, {len(acknowledged.delayed):,} delayed"
    )
    return (
        f"{rounds} rounds (seed {seed}): {counts}: nothing lost, changed, out of order or duplicated, no offset ahead"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantry-kill-") as directory:
        acknowledged = asyncio.run(run(arguments.rounds, Path(directory), arguments.seed))
    print(closing_line(arguments.rounds, arguments.seed, acknowledged))
    return 0


if __name__ == "__main__":
    sys.exit(main())
