"""DescribeTopicStatus and GetTopicRoute."""

import orjson

from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import MessageType
from proxy.admin.grpc import answers
from proxy.operations import broker_requests, topics
from proxy.operations.services import AdminServices
from remoting.codes import RequestCode
from remoting.fastjson import load_object
from remoting.topic_group_config import MESSAGE_TYPE_ATTRIBUTE

# Topics with mixed messages have none.
_TYPES = {
    "NORMAL": MessageType.NORMAL,
    "FIFO": MessageType.FIFO,
    "DELAY": MessageType.DELAY,
    "TRANSACTION": MessageType.TRANSACTION,
    "PRIORITY": MessageType.PRIORITY,
    "LITE": MessageType.LITE,
}


async def describe_topic_status(
    services: AdminServices, request: pb.DescribeTopicStatusRequest
) -> pb.DescribeTopicStatusResponse:
    """Describe a topic from all of its brokers; its type is UNSPECIFIED if they disagree, or for mixed messages.

    Brokers do not record its creation time. Raises Refused, RemotingError.
    """
    name = answers.topic(request.topic)
    detail = await topics.get_topic(services, name)
    asked = await broker_requests.ask_each(
        services.replica.core,
        [row.broker for row in detail.brokers],
        RequestCode.GET_TOPIC_CONFIG,
        {"topic": name},
    )
    attributes = [load_object(reply.body).get("attributes") or {} for reply in asked.replies.values()]
    kinds = {str(found.get(MESSAGE_TYPE_ATTRIBUTE) or "NORMAL").upper() for found in attributes}
    return pb.DescribeTopicStatusResponse(
        status=answers.ok_status(asked.missing),
        topic_message_type=_TYPES.get(kinds.pop()) if len(kinds) == 1 else None,
        description="; ".join(
            f"{row.broker}: {row.read_queues} queues to read, {row.write_queues} to write, permission {row.permission}"
            for row in detail.brokers
        ),
        tags={key: str(value) for found in attributes for key, value in found.items()},
    )


async def get_topic_route(services: AdminServices, request: pb.GetTopicRouteRequest) -> pb.GetTopicRouteResponse:
    """Return the route of the name servers (TopicRouteData), with the brokers' own addresses.

    Clients get other addresses, which depend on their listener; the request names none. Raises Refused, RemotingError.
    """
    route = await services.replica.core.backend.route(answers.topic(request.topic))
    data = orjson.dumps(route.data, option=orjson.OPT_NON_STR_KEYS).decode()
    return pb.GetTopicRouteResponse(status=answers.ok_status(), topic_route_data=data)
