"""`gantry import`."""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proxy.tools.cli import archive, messages, offset_map, reading
from proxy.tools.cli.archive import End, GroupLine, Head, MessageLine, OffsetLine, TopicLine
from proxy.tools.cli.arguments import Filter
from proxy.tools.cli.client import Client, CommandError, Refused, connected
from proxy.tools.cli.definitions import Definitions
from proxy.tools.cli.offset_map import OffsetMap
from proxy.tools.cli.output import Output, progress, warn
from proxy.tools.cli.reading import Queue, Reader
from remoting import properties
from remoting.codes import RequestCode, ResponseCode

ORIGIN = "GANTRY_ORIGIN"
# Maximum number of queued messages per queue.
_AHEAD = 64
# Properties that brokers wrote: they no longer apply, and some would change the message's type. A server that
# authenticates refuses a producer's address that is not the client's.
_OF_BROKERS = frozenset(
    (
        *(properties.DELAY_TIME_LEVEL, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC),
        *(properties.TIMER_DELAY_MS, properties.TIMER_OUT_MS, properties.TIMER_DEL_UNIQKEY),
        *(properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.RETRY_TOPIC),
        *(properties.TRANSACTION_PREPARED, properties.TRANSACTION_PREPARED_QUEUE_OFFSET, properties.PRODUCER_GROUP),
        *(properties.TRANSACTION_CHECK_TIMES, properties.CHECK_IMMUNITY_TIME_IN_SECONDS),
        *(properties.POP_CK, properties.FIRST_POP_TIME, properties.MIN_OFFSET, properties.MAX_OFFSET),
        *(properties.INNER_NUM, properties.INNER_BASE, properties.INNER_MULTI_DISPATCH),
        *(properties.INNER_MULTI_QUEUE_OFFSET, properties.CRC32, properties.BORN_HOST, ORIGIN),
    )
)


@dataclass(slots=True)
class _Survey:
    """A file before its import: last message of each queue, offsets of groups by queue, number of messages."""

    last_messages: dict[Queue, MessageLine] = field(default_factory=dict)
    offsets: dict[Queue, set[int]] = field(default_factory=dict)
    total: int = 0


async def run(options: argparse.Namespace) -> int:
    survey = _survey(options.file)
    async with connected(options) as client:
        if not options.into_source:
            await _refuse_source(client, survey.last_messages)
        counts = await _Import(client, options, survey).run()
    output = Output(options.json)
    if output.json:
        output.dump({"file": str(options.file), **counts})
    else:
        there = f"; {counts['skipped']:,} messages were there already" if counts["skipped"] else ""
        done = f"{counts['topics']:,} topics, {counts['groups']:,} groups, {counts['messages']:,} messages"
        output.line("imported ", (done, "green"), f" from {options.file}{there}")
    return 0


def _survey(file: Path) -> _Survey:
    """Read the whole file without effects: one with an invalid line changes nothing. Raises CommandError."""
    survey = _Survey()
    for _, line in archive.read(file):
        if isinstance(line, MessageLine):
            survey.last_messages[Queue(line.topic, line.broker, line.queue)] = line
            survey.total += 1
        elif isinstance(line, GroupLine):
            for at in line.offsets:
                survey.offsets.setdefault(_source(at), set()).add(at.offset)
    return survey


def _source(at: OffsetLine) -> Queue:
    return Queue(at.topic, at.broker, at.queue)


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

    def __init__(self, client: Client, options: argparse.Namespace, survey: _Survey) -> None:
        self._client = client
        self._file: Path = options.file
        self._survey = survey
        self._definitions = Definitions(client, options.overwrite)
        self._counts = {"topics": 0, "groups": 0, "messages": 0, "skipped": 0}
        self._groups: list[GroupLine] = []
        self._targets: dict[Queue, _Target] = {}
        # Our queues by queue of the source.
        self._homes: dict[Queue, _Target] = {}
        self._writable: dict[str, list[Queue]] = {}

    async def run(self) -> dict[str, int]:
        """Run the import; return the numbers of topics and groups created or changed, and of messages."""
        with progress("importing") as bar:
            shown = bar.add_task("", total=self._survey.total, note="")
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
                self._counts["topics"] += await self._definitions.put_topic(line)
            case GroupLine():
                self._counts["groups"] += await self._definitions.put_group(line)
                self._groups.append(line)
            case MessageLine():
                target = await self._target_queue(Queue(line.topic, line.broker, line.queue), tasks, done)
                await target.waiting.put((number, line))

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
        target.maps[source] = OffsetMap(self._survey.offsets.get(source, ()))
        self._homes[source] = target
        return target

    async def _commit(self, group: GroupLine) -> None:
        """Commit the offsets of a group in the queues where it has none yet; warn of those that are not set."""
        offsets: dict[_Target, dict[Queue, int]] = {}
        empty: dict[str, list[Queue]] = {}
        for at in group.offsets:
            source = _source(at)
            home = self._homes.get(source)
            if home is None:
                empty.setdefault(source.topic, []).append(source)
            else:
                offsets.setdefault(home, {})[source] = at.offset
        for queues in empty.values():
            _warn_not_set(group, queues, "the file has no messages from there")
        for target, theirs in offsets.items():
            await self._commit_at(group, target, theirs)

    async def _commit_at(self, group: GroupLine, target: "_Target", theirs: Mapping[Queue, int]) -> None:
        """Commit a group's offset in one queue. theirs: its offsets in the source queues."""
        offset = offset_map.translate(target.maps, theirs)
        fields = {**target.queue.fields, "consumerGroup": group.group}
        unknown = frozenset((int(ResponseCode.QUERY_NOT_FOUND),))
        reply = await self._client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, accept=unknown)
        current = reply.integer("offset") if reply.code == ResponseCode.SUCCESS else 0
        if current <= 0:
            await self._client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": offset})
        elif current != offset:
            _warn_not_set(group, [target.queue], f"it is {current} already, by the file {offset}")


def _warn_not_set(group: GroupLine, queues: Sequence[Queue], reason: str) -> None:
    """Warn that a group's offset was not set in queues of one topic."""
    names = ", ".join(map(str, sorted(queues)))
    warn(f"the offset of consumer group {group.group} in topic {queues[0].topic} was not set at {names}: {reason}")


class _Target:
    """A queue of the target, and the messages for it."""

    def __init__(self, client: Client, file: Path, queue: Queue) -> None:
        self.queue = queue
        self.waiting: asyncio.Queue[tuple[int, MessageLine] | None] = asyncio.Queue(_AHEAD)
        self.counts = {"sent": 0, "skipped": 0}
        # By source queue of its messages.
        self.maps: dict[Queue, OffsetMap] = {}
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
            self.maps[Queue(line.topic, line.broker, line.queue)].add(line.offset, offset)
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
