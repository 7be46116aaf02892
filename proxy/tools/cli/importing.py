"""`gantry import`."""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from proxy.tools.cli import archive, messages, reading, topics
from proxy.tools.cli.archive import End, GroupLine, Head, MessageLine, OffsetLine, TopicLine
from proxy.tools.cli.arguments import Filter
from proxy.tools.cli.client import Client, CommandError, Refused, connected
from proxy.tools.cli.output import Output, progress
from proxy.tools.cli.reading import Queue, Reader
from remoting import properties
from remoting.codes import RequestCode, ResponseCode

ORIGIN = "GANTRY_ORIGIN"
# Maximum number of queued messages per queue.
_AHEAD = 64
# Properties that brokers wrote: they no longer apply, and some would change the message's type.
_OF_BROKERS = frozenset(
    (
        *(properties.DELAY_TIME_LEVEL, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC),
        *(properties.TIMER_DELAY_MS, properties.TIMER_OUT_MS, properties.TIMER_DEL_UNIQKEY),
        *(properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.RETRY_TOPIC),
        *(properties.TRANSACTION_PREPARED, properties.TRANSACTION_PREPARED_QUEUE_OFFSET, properties.PRODUCER_GROUP),
        *(properties.TRANSACTION_CHECK_TIMES, properties.CHECK_IMMUNITY_TIME_IN_SECONDS),
        *(properties.POP_CK, properties.FIRST_POP_TIME, properties.MIN_OFFSET, properties.MAX_OFFSET),
        *(properties.INNER_NUM, properties.INNER_BASE, properties.INNER_MULTI_DISPATCH),
        *(properties.INNER_MULTI_QUEUE_OFFSET, properties.CRC32, ORIGIN),
    )
)


async def run(options: argparse.Namespace) -> int:
    # A first pass without effects: a file with an invalid line changes nothing.
    messages_by_queue: dict[Queue, MessageLine] = {}
    total = 0
    for _, line in archive.read(options.file):
        if isinstance(line, MessageLine):
            messages_by_queue[Queue(line.topic, line.broker, line.queue)] = line
            total += 1
    async with connected(options) as client:
        if not options.into_source:
            await _refuse_source(client, messages_by_queue)
        counts = await _Import(client, options).run(total)
    output = Output(options.json)
    if output.json:
        output.dump({"file": str(options.file), **counts})
    else:
        there = f"; {counts['skipped']:,} messages were there already" if counts["skipped"] else ""
        done = f"{counts['topics']:,} topics, {counts['groups']:,} groups, {counts['messages']:,} messages"
        output.line("imported ", (done, "green"), f" from {options.file}{there}")
    return 0


async def _refuse_source(client: Client, last_messages: dict[Queue, MessageLine]) -> None:
    """Raise CommandError if a queue still has the message that the file has from it: it would be there twice."""
    for queue, line in last_messages.items():
        if line.stored and await _holds(client, queue, line):
            raise CommandError(
                f"{queue.topic} at {queue} is where these messages were exported from, and all of them would be there "
                "twice; --into-source imports them all the same"
            )


async def _holds(client: Client, queue: Queue, line: MessageLine) -> bool:
    if queue.broker not in await client.brokers():
        return False
    missing = frozenset((int(ResponseCode.TOPIC_NOT_EXIST),))
    reply = await client.ask(RequestCode.GET_MAX_OFFSET, queue.fields, accept=missing)
    if reply.code != ResponseCode.SUCCESS or reply.integer("offset") <= line.offset:
        return False
    found = await Reader(client, queue, line.offset, Filter()).page()
    return any(item.queue_offset == line.offset and item.store_timestamp == line.stored for item in found)


@contextmanager
def _naming_line(file: Path, number: int) -> Iterator[None]:
    """Add the line number to the server's error."""
    try:
        yield
    except Refused as refusal:
        raise CommandError(f"{file}, line {number}: {refusal}") from None


class _Import:
    """One import of a file. Messages of one queue are sent one after the other, all queues concurrently."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self._client = client
        self._file: Path = options.file
        self._counts = {"topics": 0, "groups": 0, "messages": 0, "skipped": 0}
        self._groups: list[GroupLine] = []
        self._targets: dict[Queue, _Target] = {}
        # Our queues by queue of the source.
        self._homes: dict[Queue, _Target] = {}
        self._writable: dict[str, list[Queue]] = {}

    async def run(self, total: int) -> dict[str, int]:
        """Run the import; return the number of done items by kind."""
        with progress("importing") as bar:
            shown = bar.add_task("", total=total, note="")
            try:
                async with asyncio.TaskGroup() as tasks:
                    for number, line in archive.read(self._file):
                        with _naming_line(self._file, number):
                            await self._take(number, line, tasks, lambda: bar.advance(shown))
                    for target in self._targets.values():
                        await target.waiting.put(None)
            except* CommandError as errors:
                raise errors.exceptions[0] from None
        for group in self._groups:
            await self._commit(group)
        sent = [target.counts for target in self._targets.values()]
        self._counts["messages"] = sum(count["sent"] for count in sent)
        self._counts["skipped"] = sum(count["skipped"] for count in sent)
        return self._counts

    async def _take(self, number: int, line: archive.Line, tasks: asyncio.TaskGroup, done: Callable[[], None]) -> None:
        match line:
            case Head() | End():
                pass
            case TopicLine():
                kind, written, read = line.type, line.write_queues, line.read_queues
                await topics.create(self._client, line.topic, kind, written, read, line.permission)
                self._counts["topics"] += 1
            case GroupLine():
                await self._create(line)
                self._counts["groups"] += 1
            case MessageLine():
                target = await self._target_queue(Queue(line.topic, line.broker, line.queue), tasks, done)
                await target.waiting.put((number, line))

    async def _create(self, line: GroupLine) -> None:
        attributes = line.configuration.get("attributes") or {}
        # As a change: brokers expect each attribute's name with a sign.
        changes = {f"+{name.removeprefix('+')}": value for name, value in attributes.items()}
        body = orjson.dumps({**line.configuration, "groupName": line.group, "attributes": changes})
        for broker in await self._client.brokers():
            await self._client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"bname": broker}, body)
        self._groups.append(line)

    async def _target_queue(self, source: Queue, tasks: asyncio.TaskGroup, done: Callable[[], None]) -> "_Target":
        """Return the target of a source queue: the queue of the same name, else the others in turn."""
        known = self._homes.get(source)
        if known is not None:
            return known
        queues = self._writable.get(source.topic)
        if queues is None:
            route = await self._client.route(source.topic)
            queues = self._writable[source.topic] = [Queue(source.topic, *queue) for queue in route.writable]
        if not queues:
            raise CommandError(f"no queue of topic {source.topic} takes messages now")
        elsewhere = sum(home.topic == source.topic for home in self._homes)
        queue = source if source in queues else queues[elsewhere % len(queues)]
        target = self._targets.get(queue)
        if target is None:
            target = self._targets[queue] = _Target(self._client, self._file, queue)
            tasks.create_task(target.run(done))
        target.sources.add(source)
        self._homes[source] = target
        return target

    async def _commit(self, group: GroupLine) -> None:
        """Commit the offsets of a group that has none yet."""
        for at in group.offsets:
            home = self._homes.get(Queue(at.topic, at.broker, at.queue))
            offset = None if home is None else home.translate(at)
            if home is None or offset is None:
                continue
            fields = {**home.queue.fields, "consumerGroup": group.group}
            unknown = frozenset((int(ResponseCode.QUERY_NOT_FOUND),))
            reply = await self._client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, accept=unknown)
            if reply.code != ResponseCode.SUCCESS or reply.integer("offset") <= 0:
                await self._client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": offset})


class _Target:
    """A queue of the target, and the messages for it."""

    def __init__(self, client: Client, file: Path, queue: Queue) -> None:
        self.queue = queue
        self.waiting: asyncio.Queue[tuple[int, MessageLine] | None] = asyncio.Queue(_AHEAD)
        self.counts = {"sent": 0, "skipped": 0}
        # Source queues of its messages.
        self.sources: set[Queue] = set()
        # Offsets of the last message, at the source and here.
        self._last: tuple[int, int] | None = None
        self._client = client
        self._file = file

    async def run(self, done: Callable[[], None]) -> None:
        """Send queued messages in order, until None."""
        known = await self._origins()
        while (item := await self.waiting.get()) is not None:
            number, line = item
            offset = known.get(line.origin)
            if offset is None:
                offset = await self._send(number, line)
                self.counts["sent"] += 1
            else:
                self.counts["skipped"] += 1
            self._last = line.offset, offset
            done()

    async def _origins(self) -> dict[str, int]:
        """Return the offset of each message here that an earlier import sent, by its origin."""
        first, end = await reading.bounds(self._client, self.queue)
        reader = Reader(self._client, self.queue, first, Filter())
        return {
            origin: message.queue_offset
            async for message in reader.until(end)
            if (origin := message.get(ORIGIN)) is not None
        }

    async def _send(self, number: int, line: MessageLine) -> int:
        pairs = {name: value for name, value in line.properties.items() if name not in _OF_BROKERS}
        pairs[ORIGIN] = line.origin
        queue = self.queue
        fields = messages.send_fields(queue.topic, queue.broker, queue.number, pairs, line.born, line.flag)
        with _naming_line(self._file, number):
            # One attempt: a busy server may have stored it, and the next import detects that.
            reply = await self._client.ask(RequestCode.SEND_MESSAGE_V2, fields, line.content(), attempts=1)
        return reply.integer("queueOffset")

    def translate(self, at: OffsetLine) -> int | None:
        """Translate an offset of the source; return None if it is unknown here."""
        if self._last is None or len(self.sources) != 1:
            return None
        theirs, ours = self._last
        return max(min(at.offset - theirs + ours, ours + 1), 0)
