"""Removal of the lite subscriptions of a consumer that has left.

Brokers keep them by client id, and go on to assign messages to that client: other members of the group get these about
10 s later. The official proxy removes them too (GrpcClientSettingsManager.offlineClientLiteSubscription).
"""

import asyncio

from grpc_gateway.clients import heartbeat_data
from grpc_gateway.clients.client import Client
from grpc_gateway.core import Core, dispatch
from remoting import command as commands
from remoting import lite_subscription
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ConsumerNotOnline
from remoting.fastjson import load_object


async def remove_subscriptions(core: Core, client: Client, group: str) -> None:
    """Remove a client's lite subscriptions at every broker of their parent topic, after it has left its group.

    Nothing is removed if a client of that id is a member elsewhere: it has come back on another connection, here or at
    another replica, with the same subscriptions. Raises RemotingError, also if the members are unknown.
    """
    # A lite group has a single parent topic.
    topic = next(iter(heartbeat_data.subscriptions(client)), None)
    if topic is None or await _is_member(core, client, group):
        return
    route = core.cached_route(topic) or await core.route(topic)
    body = lite_subscription.encode(lite_subscription.COMPLETE_REMOVE, client.client_id, group, topic)
    replies = [
        dispatch(core, client, commands.request(RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": broker}, body))
        for broker in route.readable()
    ]
    await asyncio.gather(*replies, return_exceptions=True)


async def _is_member(core: Core, client: Client, group: str) -> bool:
    """Return whether a client of this id is a member of the group. Raises RemotingError."""
    command = commands.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    try:
        reply = await dispatch(core, client, command)
    except ConsumerNotOnline:
        return False
    if reply.code == ResponseCode.SYSTEM_ERROR:
        # No member at all (ConsumerManageProcessor.getConsumerListByGroup).
        return False
    return reply.code != ResponseCode.SUCCESS or client.client_id in (
        load_object(reply.body).get("consumerIdList") or ()
    )
