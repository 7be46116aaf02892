"""`gantry send`."""

import argparse
import asyncio
import os
import random
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from typing import BinaryIO

import anyio

from proxy.tools.cli import messages
from proxy.tools.cli.client import Client, CommandError, UsageError, connected
from proxy.tools.cli.output import Output, progress
from remoting import properties
from remoting.codes import STORED, RequestCode
from remoting.frame import MAX_FRAME
from remoting.routes import TopicRoute

# The text that `--size` repeats.
_FILLING = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"


@dataclass
class _Tally:
    """Statistics of a bulk send; latencies in seconds."""

    bytes: int = 0
    latencies: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies in milliseconds."""
        ordered = sorted(self.latencies)
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3) if ordered else 0.0


async def run(options: argparse.Namespace) -> int:
    _check(options)
    single = options.count is None and not options.lines
    body = b"" if options.lines else await _body(options)
    async with connected(options) as client:
        route = await client.route(options.topic)
        if not route.writable:
            raise CommandError(f"no queue of topic {options.topic} takes messages now")
        producer = _Producer(client, route, options)
        if single:
            sent = await producer.send(body, 0)
            _show(Output(options.json), sent)
            return 0
        bodies = _lines(sys.stdin.buffer) if options.lines else _copies(body, options.count)
        return await _bulk(producer, bodies, options)


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for contradictory arguments."""
    given = [name for name, value in (("BODY", options.body), ("--size", options.size)) if value is not None]
    given += ["--lines"] if options.lines else []
    if len(given) != 1:
        what = "a message needs BODY, --size or --lines" if not given else f"{' and '.join(given)} exclude each other"
        raise UsageError(what)
    if options.lines and options.count is not None:
        raise UsageError("--lines and --count exclude each other")
    if options.size is not None and options.size > MAX_FRAME:
        raise UsageError(f"--size {options.size}: a message has at most {MAX_FRAME:,} bytes")
    if (options.lines or options.body == "-") and sys.stdin is None:
        raise UsageError("stdin is closed")


async def _body(options: argparse.Namespace) -> bytes:
    if options.size is not None:
        size: int = options.size
        return (_FILLING * (size // len(_FILLING) + 1))[:size]
    if options.body == "-":
        return b"".join([chunk async for chunk in _chunks(sys.stdin.buffer)])
    if options.body.startswith("@"):
        return await anyio.Path(options.body[1:]).read_bytes()
    return os.fsencode(str(options.body))


# Read stdin so that Ctrl-C still works.


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    reader = await _reader(file)
    while chunk := await reader.read(1 << 16):
        yield chunk


async def _lines(file: BinaryIO) -> AsyncIterator[bytes]:
    reader = await _reader(file)
    number = 1
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise CommandError(f"line {number} of stdin is longer than {MAX_FRAME:,} bytes") from None
        if not line:
            return
        number += 1
        # Brokers refuse empty bodies.
        if body := line.removesuffix(b"\n").removesuffix(b"\r"):
            yield body


async def _reader(file: BinaryIO) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MAX_FRAME)
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty():
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    else:
        # The loop cannot watch regular files and some devices.
        reader.feed_data(await asyncio.to_thread(file.read))
        reader.feed_eof()
    return reader


async def _copies(body: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield body


# Sending.


@dataclass(frozen=True)
class _Sent:
    id: str
    topic: str
    broker: str
    queue: int
    # None: a delayed message has no offset yet.
    offset: int | None


class _Producer:
    """Send bodies with the command's options, to the topic's queues in turn, or to that of the message group."""

    def __init__(self, client: Client, route: TopicRoute, options: argparse.Namespace) -> None:
        self._client = client
        self._queues = _queues(route, options.group)
        self._topic = route.topic
        self._delay: float | None = options.delay
        self._pairs = {
            **dict(options.property),
            **({properties.TAGS: options.tag} if options.tag else {}),
            **({properties.KEYS: " ".join(options.key)} if options.key else {}),
            **({properties.SHARDING_KEY: options.group} if options.group else {}),
            properties.WAIT_STORE_MSG_OK: "true",
        }

    async def send(self, body: bytes, turn: int) -> _Sent:
        """Send one message. Raises CommandError."""
        broker, queue = self._queues[turn % len(self._queues)]
        name = messages.message_id()
        pairs = {**self._pairs, properties.UNIQ_CLIENT_MESSAGE_ID: name}
        if self._delay:
            pairs[properties.TIMER_DELIVER_MS] = str(int((time.time() + self._delay) * 1000))
        fields = messages.send_fields(self._topic, broker, queue, pairs)
        reply = await self._client.ask(RequestCode.SEND_MESSAGE_V2, fields, body, accept=STORED)
        offset = None if self._delay else reply.integer("queueOffset")
        return _Sent(name, self._topic, broker, queue, offset)


def _queues(route: TopicRoute, message_group: str | None) -> tuple[tuple[str, int], ...]:
    """Return the queues to use in turn: that of the message group, the same as for a gRPC producer, or all."""
    if message_group is not None:
        from grpc_gateway.producing.queue_selection import queue_of_sharding_key

        return (queue_of_sharding_key(route, message_group),)
    # A random start: commands that send one message each use different queues.
    turn = random.randrange(len(route.writable))  # noqa: S311  # chooses a queue
    return (*route.writable[turn:], *route.writable[:turn])


async def _bulk(producer: _Producer, bodies: AsyncIterator[bytes], options: argparse.Namespace) -> int:
    """Send all messages with bounded concurrency, and report the result, also after an error."""
    tally = _Tally()
    begin = time.perf_counter()
    try:
        with progress(f"sending to {options.topic}") as bar:
            shown = bar.add_task("", total=options.count, note="")

            def sent() -> None:
                speed = len(tally.latencies) / (time.perf_counter() - begin)
                bar.update(shown, completed=len(tally.latencies), note=f"{speed:,.0f}/s")

            await _pump(producer, bodies, options, tally, sent)
    except* CommandError as errors:
        # A lost connection fails all requests in flight with the same reason: report one.
        raise errors.exceptions[0] from None
    finally:
        _summarize(Output(options.json), options.topic, tally, time.perf_counter() - begin)
    return 0


async def _pump(
    producer: _Producer,
    bodies: AsyncIterator[bytes],
    options: argparse.Namespace,
    tally: _Tally,
    sent: Callable[[], None],
) -> None:
    # A retry behind a later message would break a message group's order.
    workers = 1 if options.group is not None else options.in_flight
    waiting: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(workers)

    async def work() -> None:
        while (item := await waiting.get()) is not None:
            turn, body = item
            start = time.perf_counter()
            await producer.send(body, turn)
            tally.latencies.append(time.perf_counter() - start)
            tally.bytes += len(body)
            sent()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
        turn = 0
        begin = time.perf_counter()
        async for body in bodies:
            if options.rate is not None:
                await asyncio.sleep(max(begin + turn / options.rate - time.perf_counter(), 0))
            await waiting.put((turn, body))
            turn += 1
        for _ in range(workers):
            await waiting.put(None)


def _show(output: Output, sent: _Sent) -> None:
    if output.json:
        output.dump(asdict(sent))
    else:
        where = "to be delivered later" if sent.offset is None else f"offset {sent.offset:,}"
        output.line("sent ", (sent.id, "green"), f" to {sent.broker}/{sent.queue}, {where}")


def _summarize(output: Output, topic: str, tally: _Tally, seconds: float) -> None:
    count = len(tally.latencies)
    summary = {
        "topic": topic,
        "sent": count,
        "bytes": tally.bytes,
        "seconds": round(seconds, 3),
        "messages_per_second": round(count / seconds, 1),
        "p50_ms": tally.quantile(0.5),
        "p99_ms": tally.quantile(0.99),
    }
    if output.json:
        output.dump(summary)
        return
    output.line(
        (f"{count:,}", "bold green"),
        f" {'message' if count == 1 else 'messages'} ({tally.bytes:,} bytes) sent to {topic} in {seconds:.2f} s: ",
        (f"{count / seconds:,.0f}/s", "bold"),
        f", p50 {tally.quantile(0.5):.1f} ms, p99 {tally.quantile(0.99):.1f} ms",
    )
