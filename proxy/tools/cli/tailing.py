"""`gantry tail`."""

import argparse
import asyncio
from collections import deque

from proxy.tools.cli import messages, reading
from proxy.tools.cli.client import CommandError, connected
from proxy.tools.cli.output import Output
from proxy.tools.cli.reading import Queue, Reader
from remoting.routes import TopicRoute

# Seconds of a long poll of a queue.
_POLL = 15.0


async def run(options: argparse.Namespace) -> int:
    output = Output(options.json)
    async with connected(options) as client:
        queues = _chosen(await client.route(options.topic), options.queue)
        begins = await asyncio.gather(*(reading.begin_at(client, queue, options.start) for queue in queues))
        ends = [end for _, end in await asyncio.gather(*(reading.bounds(client, queue) for queue in queues))]
        readers = [Reader(client, queue, begin, options.filter) for queue, begin in zip(queues, begins, strict=True)]
        found = reading.merged(list(zip(readers, ends, strict=True)))
        if options.start.last is None:
            async for queue, message in found:
                messages.show(output, queue.broker, message)
        else:
            # Read this many of each queue: the last of all are among them.
            for queue, message in deque([item async for item in found], options.start.last):
                messages.show(output, queue.broker, message)
        if options.follow:
            client.lasting = True
            await asyncio.gather(*(_follow(reader, output) for reader in readers))
    return 0


def _chosen(route: TopicRoute, wanted: str | None) -> list[Queue]:
    queues = reading.queues_of(route)
    if wanted is not None:
        queues = [queue for queue in queues if wanted in (str(queue), str(queue.number))]
    if not queues:
        what = "has no queue that can be read now" if wanted is None else f"has no queue {wanted}"
        raise CommandError(f"topic {route.topic} {what}")
    return queues


async def _follow(reader: Reader, output: Output) -> None:
    while True:
        for message in await reader.page(_POLL):
            messages.show(output, reader.queue.broker, message)
