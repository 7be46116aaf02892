"""Requests that concern all brokers, each of which has a copy of the data: changes go to all, queries to one.

At a listener of one broker, both go to that broker.
"""

import asyncio
from collections.abc import Sequence

from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, ServiceUnavailable
from remoting.outcomes import Reply


async def brokers(core: Messaging, context: Context) -> Sequence[str]:
    """Return the brokers that the request concerns, sorted. Raises ServiceUnavailable if none is known."""
    only = context.channel.peer.broker
    names = sorted(await core.backend.brokers()) if only is None else [only]
    if not names:
        raise ServiceUnavailable(f"no broker is available for {context.known_spec.name}")
    return names


async def concerned(core: Messaging, context: Context, of_topic: bool) -> Sequence[str]:
    """Return the broker that the request names, else the brokers of its topic (`of_topic`), else all.

    Raises RemotingError.
    """
    named = context.fields.get(context.known_spec.broker)
    if named:
        return (named,)
    if context.channel.peer.broker is None and of_topic and context.topic:
        return sorted((await core.backend.route(context.topic)).brokers)
    return await brokers(core, context)


async def ask_one(core: Messaging, context: Context, names: Sequence[str]) -> RemotingCommand:
    """Return the reply of the first broker that replies. Raises the last broker's error."""
    failure: RemotingError | None = None
    for broker in names:
        context.broker = broker
        try:
            return await _send(core, context, broker)
        except RemotingError as error:
            failure = error
    assert failure is not None
    raise failure


async def ask_all(core: Messaging, context: Context, names: Sequence[str]) -> Sequence[RemotingCommand]:
    """Return the replies of all brokers, or only the first one that is not SUCCESS, whose remark names its broker.

    Raises ServiceUnavailable, which names the broker, if one does not reply. Brokers that could be changed stay
    changed: a repeated request changes the others.
    """
    replies = await results(core, context, names)
    successes: list[RemotingCommand] = []
    for broker, reply in zip(names, replies, strict=True):
        if isinstance(reply, RemotingError):
            raise ServiceUnavailable(f"{broker}: {reply}")
        if reply.code != ResponseCode.SUCCESS:
            if len(names) > 1:
                reply.header["remark"] = f"{broker}: {reply.remark}"
            return (reply,)
        successes.append(reply)
    return successes


async def ask_each(core: Messaging, context: Context, names: Sequence[str]) -> Sequence[RemotingCommand]:
    """Return the replies of all brokers, refusals too. Raises ServiceUnavailable, which names a broker without one."""
    replies: list[RemotingCommand] = []
    for broker, reply in zip(names, await results(core, context, names), strict=True):
        if isinstance(reply, RemotingError):
            raise ServiceUnavailable(f"{broker}: {reply}")
        replies.append(reply)
    return replies


async def results(core: Messaging, context: Context, names: Sequence[str]) -> Sequence[RemotingCommand | RemotingError]:
    """Return the reply of each broker, or the error of one that does not reply."""
    context.broker = names[0]
    found: list[RemotingCommand | RemotingError] = []
    for reply in await asyncio.gather(*(_send(core, context, broker) for broker in names), return_exceptions=True):
        if isinstance(reply, BaseException) and not isinstance(reply, RemotingError):
            raise reply
        found.append(reply)
    return found


def _send(core: Messaging, context: Context, broker: str) -> Reply:
    timeout = core.settings.cluster.request_timeout
    return core.backend.request(broker, context.known_spec, context.command.copy(), timeout, context.channel)
