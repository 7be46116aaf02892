"""SyncLiteSubscription: which lite topics a consumer wants, told to every broker of their parent topic.

Brokers from 5.5 on keep that by client id (RIP-83); a receive then names the parent topic only.
"""

import asyncio
from typing import Any

import orjson

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.settings import LITE
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, of_error, of_response
from protos.apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, OffsetOption, Status
from protos.apache.rocketmq.v2.service_pb2 import SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.properties import MessageType
from remoting.topic_group_config import TopicConfig

_ADDING = (LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.COMPLETE_ADD)
# Field of the option to its name at the brokers.
_OFFSETS = {"policy": "POLICY", "offset": "OFFSET", "tail_n": "TAIL_N", "timestamp": "TIMESTAMP"}


def is_lite(client: Client, topic: TopicConfig) -> bool:
    """Whether a receive from this topic is one from lite topics: the client says so, or else the topic does."""
    return client.kind in LITE or topic.message_type is MessageType.LITE


class Lite:
    """Subscriptions to lite topics."""

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options

    async def sync(self, call: Call, request: SyncLiteSubscriptionRequest) -> SyncLiteSubscriptionResponse:
        """Tell every broker of the parent topic; OK once all of them know."""
        topic, group = validation.topic(request.topic), validation.group(request.group)
        if request.action not in LiteSubscriptionAction.values():
            raise Refused(Code.BAD_REQUEST, f"there is no action {request.action}")
        if request.action in _ADDING:
            for name in request.lite_topic_set:
                validation.lite_topic(name, self._options)
        route = self._core.cached_route(topic) or await self._core.route(topic)
        brokers = route.readable()
        if not brokers:
            raise Refused(Code.FORBIDDEN, f"topic {topic} has no readable queue")
        body = orjson.dumps({"subscriptionSet": [_subscription(call.client.client_id, topic, group, request)]})
        statuses = await asyncio.gather(*(self._tell(call, broker, body) for broker in brokers))
        # A broker that does not know is one whose messages are missed.
        return SyncLiteSubscriptionResponse(status=next((one for one in statuses if one.code != Code.OK), OK))

    async def _tell(self, call: Call, broker: str, body: bytes) -> Status:
        try:
            command = commands.request(RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": broker}, body)
            return of_response(await call.ask(self._core, command, broker))
        except RemotingError as error:
            return of_error(error)


def _subscription(client_id: str, topic: str, group: str, request: SyncLiteSubscriptionRequest) -> dict[str, Any]:
    """LiteSubscriptionDTO."""
    subscription: dict[str, Any] = {
        "action": LiteSubscriptionAction.Name(request.action),
        "clientId": client_id,
        "group": group,
        "topic": topic,
        "liteTopicSet": list(request.lite_topic_set),
        "version": request.version,
    }
    if request.action == LiteSubscriptionAction.PARTIAL_ADD and request.HasField("offset_option"):
        offset = _offset(request.offset_option)
        if offset is not None:
            subscription["offsetOption"] = offset
    return subscription


def _offset(option: OffsetOption) -> dict[str, Any] | None:
    name = option.WhichOneof("offset_type")
    return None if name is None else {"type": _OFFSETS[name], "value": getattr(option, name)}
