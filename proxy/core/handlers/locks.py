"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks, which each broker holds for its own queues."""

import asyncio
from collections import defaultdict
from typing import Any

import orjson

from proxy.core.context import Context
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import load_object, load_request
from remoting.outcomes import Reply

# Bounds of one request: a request has one part for each broker.
_MAX_QUEUES = 10_000
_MAX_BROKERS = 256
# Fields of RocketMQ's LockBatchRequestBody and of its message queues.
_BODY_FIELDS = ("consumerGroup", "clientId", "onlyThisBroker")
_QUEUE_FIELDS = ("topic", "brokerName", "queueId")


async def lock(core: Messaging, context: Context) -> RemotingCommand:
    """Lock queues at their brokers and return the locks that all of them granted.

    An unavailable broker grants nothing, and the client retries in its next round. Raises the first failure only if
    every broker failed.
    """
    replies = await asyncio.gather(*_split(core, context), return_exceptions=True)
    granted: list[Any] = []
    failures: list[BaseException] = []
    for reply in replies:
        if isinstance(reply, BaseException):
            failures.append(reply)
        elif reply.code != 0:
            failures.append(RemotingError(f"a broker rejected the locks with {reply.code}: {reply.remark}"))
        else:
            granted += load_object(reply.body).get("lockOKMQSet") or ()
    if failures and not granted and len(failures) == len(replies):
        raise failures[0]
    return commands.success(body=orjson.dumps({"lockOKMQSet": granted}))


async def unlock(core: Messaging, context: Context) -> RemotingCommand:
    """Unlock queues at their brokers."""
    replies = await asyncio.gather(*_split(core, context), return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
        if reply.code != 0:
            return reply
    return commands.success()


def _split(core: Messaging, context: Context) -> list[Reply]:
    """Split the request by broker, send the parts, and return the futures of their replies."""
    body = load_request(context.command.body)
    by_broker: defaultdict[str, list[Any]] = defaultdict(list)
    queues = body.get("mqSet") or []
    if not isinstance(queues, list):
        raise BodyError("mqSet is not a list of queues")
    if len(queues) > _MAX_QUEUES:
        raise BodyError(f"mqSet has {len(queues)} queues; at most {_MAX_QUEUES} are allowed")
    for queue in queues:
        broker = queue.get("brokerName") if isinstance(queue, dict) else None
        if not isinstance(broker, str) or not broker:
            raise BodyError("a queue to lock has no brokerName")
        by_broker[broker].append({name: queue.get(name) for name in _QUEUE_FIELDS})
    if len(by_broker) > _MAX_BROKERS:
        raise BodyError(f"mqSet names {len(by_broker)} brokers; at most {_MAX_BROKERS} are allowed")
    # Other fields are dropped: each part of the request repeats these.
    common = {name: body[name] for name in _BODY_FIELDS if name in body}
    timeout = core.settings.cluster.request_timeout
    # A part needs a new signature. For a member of the group, it is Gantry's: the brokers have accepted its heartbeat,
    # which needs the same permissions. Locks belong to client ids, and to brokers Gantry may unlock those of all.
    member = core.registry.member(context.channel)
    own = (
        member is not None
        and body.get("consumerGroup") in member.groups.consumers
        and body.get("clientId") == member.client_id
    )
    signer = core.signing.signer if own else None
    replies = []
    for broker, share in by_broker.items():
        if len(by_broker) == 1:
            # Unchanged: it may be signed.
            part = context.command.copy_with_response()
        else:
            part = commands.request(context.code, dict(context.fields), orjson.dumps({**common, "mqSet": share}))
            part.fields["bname"] = broker
            if signer is not None:
                signer.sign_changed(part)
        replies.append(core.backend.request(broker, context.known_spec, part, timeout, context.channel))
    return replies
