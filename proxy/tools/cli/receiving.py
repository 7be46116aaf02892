"""`gantry receive`: POP and acknowledge."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from proxy.tools.cli import messages
from proxy.tools.cli.client import Client, CommandError, connected
from proxy.tools.cli.group_member import joined
from proxy.tools.cli.output import Output
from remoting import messages as wire
from remoting import pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import real_topic

_BATCH = 32
_NOTHING = frozenset(map(int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)))
# Seconds to wait for each of several brokers in turn, and the longest hold of a request at one broker.
_TURN, _LONGEST = 1.0, 20.0
# A new group begins with the first message (ConsumeInitMode.MIN).
_FROM_FIRST = 0


async def run(options: argparse.Namespace) -> int:
    output = Output(options.json)
    async with connected(options) as client, AsyncExitStack() as stack:
        brokers = (await client.route(options.topic)).readable()
        if not brokers:
            raise CommandError(f"topic {options.topic} has no queue that can be read now")
        member = None
        if options.follow:
            member = await stack.enter_async_context(joined(client, options.group, options.topic, options.filter))
            client.lasting = True
        async for broker, popped in _batches(client, options, brokers):
            wanted = [one for one in popped if options.filter.passes(one.message.get(properties.TAGS))]
            for one in wanted:
                messages.show(output, broker, one.message, {"attempt": one.reconsume_times + 1})
            if options.ack:
                await asyncio.gather(*(acknowledge(client, options, broker, one) for one in popped))
            if member is not None:
                member.consumed += len(popped)
    return 0


async def _batches(
    client: Client, options: argparse.Namespace, brokers: tuple[str, ...]
) -> AsyncIterator[tuple[str, list[PoppedMessage]]]:
    """Yield popped messages, broker by broker, until enough arrived or the wait time passed."""
    loop = asyncio.get_running_loop()
    left: int | None = options.max
    patience = loop.time() + options.wait
    waiting = 0.0
    turn = misses = 0
    while left is None or left > 0:
        broker = brokers[turn % len(brokers)]
        count = _BATCH if left is None else min(_BATCH, left)
        popped = await pop_messages(client, options, broker, count, waiting)
        if popped:
            left = None if left is None else left - len(popped)
            yield broker, popped
            misses, waiting, patience = 0, 0.0, loop.time() + options.wait
            continue
        turn += 1
        misses += 1
        if misses < len(brokers):
            continue
        # No broker has a message now.
        remaining = _LONGEST if options.follow else patience - loop.time()
        if remaining <= 0:
            return
        waiting = min(remaining, _LONGEST if len(brokers) == 1 else _TURN)


async def pop_messages(
    client: Client,
    options: argparse.Namespace,
    broker: str,
    count: int,
    waiting: float,
    *,
    mode: int = _FROM_FIRST,
) -> list[PoppedMessage]:
    """Pop up to `count` messages of the topic and group of the options from a broker; wait `waiting` seconds for one.

    mode: position at which a new group begins.
    """
    fields = {
        "consumerGroup": options.group,
        "topic": options.topic,
        "queueId": -1,
        "maxMsgNums": count,
        "invisibleTime": int(options.invisible * 1000),
        "pollTime": int(waiting * 1000),
        "bornTime": 0,
        "initMode": mode,
        "expType": options.filter.kind,
        "exp": options.filter.expression,
        "order": options.fifo,
        "bname": broker,
    }
    reply = await client.ask(RequestCode.POP_MESSAGE, fields, accept=_NOTHING, wait=waiting)
    if reply.code != ResponseCode.SUCCESS:
        return []
    return pop.popped(wire.decode_messages(reply.body), options.topic, reply.fields, broker)


async def acknowledge(client: Client, options: argparse.Namespace, broker: str, popped: PoppedMessage) -> None:
    """Acknowledge a message to the broker that it came from."""
    handle = popped.extra_info
    fields = {
        "consumerGroup": options.group,
        "topic": real_topic(options.topic, options.group, handle.retry),
        "queueId": handle.queue_id,
        "extraInfo": handle,
        "offset": handle.queue_offset,
        "bname": broker,
    }
    await client.ask(RequestCode.ACK_MESSAGE, fields)
