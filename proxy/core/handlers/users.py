"""AUTH_CREATE_USER to AUTH_LIST_ACL: users and ACLs, of which each broker keeps its own copy.

The access point stands for all brokers: changes go to each of them, queries to one. At a listener of one broker, both
go to that broker.
"""

import asyncio
from collections.abc import Sequence

from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, RemotingError, ServiceUnavailable

READS = (
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
WRITES = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
)


async def ask_one(core: Messaging, context: Context) -> RemotingCommand:
    """Return the reply of the first broker, by name, that replies. Raises the last broker's error."""
    failure: RemotingError = ServiceUnavailable("no broker is available that keeps users")
    for broker in await brokers(core, context):
        context.broker = broker
        try:
            return await _send(core, context, broker)
        except RemotingError as error:
            failure = error
    raise failure


async def ask_all(core: Messaging, context: Context) -> RemotingCommand:
    """Change all brokers; return the first error, which names its broker. Raises ServiceUnavailable without a broker.

    Brokers that could be changed stay changed: repeating the request completes it, except for AUTH_CREATE_USER, which
    the others then refuse.
    """
    names = await brokers(core, context)
    if not names:
        raise ServiceUnavailable("no broker is available that keeps users")
    context.broker = names[0]
    replies = await asyncio.gather(*(_send(core, context, broker) for broker in names), return_exceptions=True)
    for broker, reply in zip(names, replies, strict=True):
        if isinstance(reply, RemotingError):
            raise ServiceUnavailable(f"{broker}: {reply}")
        if isinstance(reply, BaseException):
            raise reply
        if reply.code != ResponseCode.SUCCESS:
            if len(names) > 1:
                reply.header["remark"] = f"{broker}: {reply.remark}"
            return reply
    reply = replies[0]
    assert isinstance(reply, RemotingCommand)
    return reply


async def brokers(core: Messaging, context: Context) -> Sequence[str]:
    """Return the brokers that a request about users concerns. Raises NotPermitted."""
    if core.signer is not None and core.signer.resigns and context.principal.failure is not None:
        # Brokers would take the request for one of Gantry's own.
        raise NotPermitted("users can be managed only while authentication is on")
    only = context.channel.peer.broker
    return sorted(await core.backend.brokers()) if only is None else (only,)


def _send(core: Messaging, context: Context, broker: str) -> "asyncio.Future[RemotingCommand]":
    timeout = core.settings.cluster.request_timeout
    return core.backend.request(broker, context.known_spec, context.command.copy(), timeout, context.channel)
