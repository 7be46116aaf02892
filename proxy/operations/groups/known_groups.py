"""The consumer groups that brokers hold, whether or not they have members."""

import asyncio

from proxy.core.client_registry import Role
from proxy.operations import broker_requests
from proxy.operations.failures import Failure, FailureKind, OperationFailed, not_found
from proxy.operations.replica import Replica
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.fastjson import load_object
from remoting.names import SYSTEM_GROUPS, sync_group


async def consumer_groups(replica: Replica) -> tuple[set[str], list[str]]:
    """Return the names of all consumer groups but those of brokers and proxies, and the brokers without a reply.

    Groups with members here are among them.
    """
    groups = set(replica.registry.groups(Role.CONSUMER))
    bodies, unanswered = await table_bodies(replica, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    for body in bodies:
        groups.update(load_object(body).get("subscriptionGroupTable") or ())
    return groups.difference(SYSTEM_GROUPS, map(sync_group, replica.settings.sync.topics)), unanswered


async def table_bodies(replica: Replica, code: RequestCode) -> tuple[list[bytes], list[str]]:
    """Return the bodies of the brokers' replies to a request for one of their tables, and brokers without a reply."""
    core = replica.core
    brokers = sorted(await core.backend.brokers())
    requests = (broker_requests.ask(core, broker, code, {}) for broker in brokers)
    replies = await asyncio.gather(*requests, return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, RemotingError):
            raise reply
    bodies = [reply.body for reply in replies if not isinstance(reply, BaseException)]
    return bodies, [broker for broker, reply in zip(brokers, replies, strict=True) if isinstance(reply, BaseException)]


async def check_group(replica: Replica, group: str) -> None:
    """Raise OperationFailed if neither a broker nor this replica knows the consumer group.

    UNAVAILABLE if a broker that does not answer may know it.
    """
    groups, unanswered = await consumer_groups(replica)
    if group in groups:
        return
    if unanswered:
        detail = f"it is not known whether there is a consumer group {group}: no answer from {', '.join(unanswered)}"
        raise OperationFailed(Failure(FailureKind.UNAVAILABLE, detail))
    raise not_found(f"there is no consumer group {group}")
