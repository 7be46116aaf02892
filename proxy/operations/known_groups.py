"""The consumer groups that brokers hold, whether or not they have members."""

import asyncio

from proxy.core.client_registry import Role
from proxy.embedded.broker.names import SYSTEM_GROUPS
from proxy.operations import operator_channel
from proxy.operations.failures import not_found
from proxy.operations.replica import Replica
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.fastjson import load_object


async def consumer_groups(replica: Replica) -> set[str]:
    """Return the names of all consumer groups but the brokers' own, with those that have members here.

    Brokers that do not answer are left out.
    """
    groups = set(replica.registry.groups(Role.CONSUMER))
    for body in await table_bodies(replica, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
        groups.update(load_object(body).get("subscriptionGroupTable") or ())
    return groups.difference(SYSTEM_GROUPS)


async def table_bodies(replica: Replica, code: RequestCode) -> list[bytes]:
    """Return the body of each broker's reply to a request for one of its tables."""
    core = replica.core
    brokers = sorted(await core.backend.brokers())
    requests = (operator_channel.ask(core, broker, code, {}) for broker in brokers)
    replies = await asyncio.gather(*requests, return_exceptions=True)
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, RemotingError):
            raise reply
    return [reply.body for reply in replies if not isinstance(reply, BaseException)]


async def check_group(replica: Replica, group: str) -> None:
    """Raise OperationFailed if neither a broker nor this replica knows the consumer group."""
    if group not in await consumer_groups(replica):
        raise not_found(f"there is no consumer group {group}")
