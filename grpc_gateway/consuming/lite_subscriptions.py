"""SyncLiteSubscription: lite topics of a consumer, sent to every broker of their parent topic.

Brokers since 5.5 store them by client id (RIP-83), so a receive names only the parent topic.
"""

import asyncio
from typing import Any

from grpc_gateway import validation
from grpc_gateway.clients import lite_groups
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_settings import LITE_CONSUMERS
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import OK, Refused, status_from_error, status_from_reply
from protos.apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, Status
from protos.apache.rocketmq.v2.service_pb2 import SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse
from remoting import command as commands
from remoting import lite_subscription
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.properties import MessageType
from remoting.topic_group_config import TopicConfig

_ADD_ACTIONS = (LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.COMPLETE_ADD)
# Names of the offset types in the brokers' OffsetOption, by field of the v2 message.
_OFFSET_TYPES = {"policy": "POLICY", "offset": "OFFSET", "tail_n": "TAIL_N", "timestamp": "TIMESTAMP"}


def is_lite(client: Client, topic: TopicConfig) -> bool:
    """Return whether a client receives lite topics from this topic, by the client's type or the topic's."""
    return client.client_type in LITE_CONSUMERS or topic.message_type is MessageType.LITE


class LiteSubscriptionService:
    """Serves SyncLiteSubscription."""

    def __init__(self, core: Core, options: GatewayOptions) -> None:
        self._core = core
        self._options = options

    async def sync(self, rpc: Rpc, request: SyncLiteSubscriptionRequest) -> SyncLiteSubscriptionResponse:
        """Send the subscriptions to every broker of the parent topic; OK if all of them accept.

        Raises Refused, RemotingError.
        """
        topic, group = validation.topic(request.topic), validation.group(request.group)
        if request.action not in LiteSubscriptionAction.values():
            raise Refused(Code.BAD_REQUEST, f"action {request.action} is unknown")
        if request.action in _ADD_ACTIONS:
            for name in request.lite_topic_set:
                validation.lite_topic(name, self._options)
        config = self._core.cached_group(group) or await self._core.group(group)
        lite_groups.check_parent_topic(topic, config)
        lite_groups.check_quota(len(set(request.lite_topic_set)), config)
        route = self._core.cached_route(topic) or await self._core.route(topic)
        brokers = route.readable()
        if not brokers:
            raise Refused(Code.FORBIDDEN, "no readable queue")
        body = lite_subscription.encode(
            LiteSubscriptionAction.Name(request.action),
            rpc.client.client_id,
            group,
            topic,
            request.lite_topic_set,
            request.version,
            _offset_option(request),
        )
        statuses = await asyncio.gather(*(self._send(rpc, broker, body) for broker in brokers))
        # The consumer gets no messages from a broker without its subscription.
        return SyncLiteSubscriptionResponse(status=next((status for status in statuses if status.code != Code.OK), OK))

    async def _send(self, rpc: Rpc, broker: str, body: bytes) -> Status:
        try:
            command = commands.request(RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": broker}, body)
            return status_from_reply(await rpc.request(self._core, command, broker))
        except RemotingError as error:
            return status_from_error(error)


def _offset_option(request: SyncLiteSubscriptionRequest) -> dict[str, Any] | None:
    """Return the brokers' OffsetOption, which only a partial add has."""
    option = request.offset_option
    name = option.WhichOneof("offset_type")
    if request.action != LiteSubscriptionAction.PARTIAL_ADD or name is None:
        return None
    return {"type": _OFFSET_TYPES[name], "value": getattr(option, name)}
