"""ListSubscription, DescribeSubscription, ListConsumerConnection and DeleteSubscription."""

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterType, Resource, Status
from proxy.admin.grpc import answers, groups
from proxy.admin.grpc.groups import Group
from proxy.core.messaging import Messaging
from proxy.operations import broker_requests
from proxy.operations.broker_requests import SHORT_TIMEOUT
from proxy.operations.services import AdminServices
from remoting.codes import RequestCode
from remoting.fastjson import load_object

# Groups per turn of the event loop, and concurrent queries.
_AT_ONCE = 64


async def list_subscription(
    services: AdminServices, request: pb.ListSubscriptionRequest
) -> pb.ListSubscriptionResponse:
    """List subscriptions: of a group, to a topic, or, with neither, of all groups with members here.

    RocketMQ's dashboard sends neither to find groups. For a group without members, the topics that it consumed are
    listed as offline, without a filter. Raises Refused, RemotingError.
    """
    topic = answers.topic(request.topic) if request.topic.name else None
    found = await _groups(services, topic, answers.group(request.group) if request.group.name else None)
    infos: list[pb.SubscriptionInfo] = []
    for number, group in enumerate(found):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        if group.members:
            infos += group.subscriptions(topic)
        elif request.group.name:
            consumed = await groups.topics_of(services, group.name)
            infos += [_offline(group.name, name) for name in consumed if topic in (None, name)]
        else:
            # A broker reports that the group has consumed the topic.
            infos.append(_offline(group.name, request.topic.name))
    return pb.ListSubscriptionResponse(status=_well(found), subscription_info=infos)


async def describe_subscription(
    services: AdminServices, request: pb.DescribeSubscriptionRequest
) -> pb.DescribeSubscriptionResponse:
    """Describe the subscription of each connected client. Raises Refused, RemotingError."""
    topic = answers.topic(request.topic) if request.topic.name else None
    found = await _groups(services, topic, answers.group(request.group) if request.group.name else None)
    rows = []
    for number, group in enumerate(found):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        for whole in group.subscriptions(topic):
            rows += _each(group, whole)
    return pb.DescribeSubscriptionResponse(status=_well(found), client_subscription_info=rows)


def _well(groups: Iterable[Group]) -> Status:
    return answers.ok_status([text for group in groups for text in group.missing])


def _each(group: Group, whole: pb.SubscriptionInfo) -> list[pb.DescribeSubscriptionResponse.ClientSubscriptionInfo]:
    """Yield the group's subscription to a topic for each member."""
    rows = []
    for member in group.members:
        wish = member.wishes.get(whole.topic.name)
        if wish is not None:
            info = pb.SubscriptionInfo()
            info.CopyFrom(whole)
            info.expression.CopyFrom(wish.filter)
            info.last_update_timestamp.FromMilliseconds(wish.updated)
            info.message_model = member.info.message_model
            rows.append(
                pb.DescribeSubscriptionResponse.ClientSubscriptionInfo(client_info=member.info, subscription_info=info)
            )
    return rows


async def list_consumer_connection(
    services: AdminServices, request: pb.ListConsumerConnectionRequest
) -> pb.ListConsumerConnectionResponse:
    """List the members of a group, or those that subscribe to a topic; empty without any. Raises Refused."""
    if request.liteTopic:
        raise Refused(Code.NOT_IMPLEMENTED, "brokers do not tell who has subscribed to a lite topic")
    topic = answers.topic(request.topic) if request.topic.name else None
    group = await groups.everywhere(services, answers.group(request.group))
    infos = [member.info for member in group.members if topic is None or topic in member.wishes]
    return pb.ListConsumerConnectionResponse(status=_well([group]), client_info=infos)


async def _groups(services: AdminServices, topic: str | None, group: str | None) -> list[Group]:
    if group is None and topic is None:
        return await groups.here(services, None)
    names = [group] if group is not None else await groups.groups_of(services, topic or "")
    turn = asyncio.Semaphore(_AT_ONCE)

    async def find(name: str) -> Group:
        async with turn:
            return await groups.everywhere(services, name)

    return await asyncio.gather(*map(find, names))


def _offline(group: str, topic: str) -> pb.SubscriptionInfo:
    return pb.SubscriptionInfo(group=Resource(name=group), topic=Resource(name=topic), subscription_consistency=True)


async def delete_subscription(
    services: AdminServices, request: pb.DeleteSubscriptionRequest
) -> pb.DeleteSubscriptionResponse:
    """Remove a subscription from the group's configuration at the topic's brokers (`subscriptionDataSet`).

    Subscriptions of connected clients and offsets stay. Raises Refused, RemotingError.
    """
    group, topic = answers.group(request.group), answers.topic(request.topic)
    core = services.replica.core
    names = (await core.backend.route(topic)).brokers
    removed = await asyncio.gather(*(_remove(core, broker, group, topic, request) for broker in names))
    if not any(removed):
        raise Refused(
            Code.NOT_FOUND,
            f"the configuration of group {group} holds no such subscription to {topic}; those of connected clients end "
            "with their clients",
        )
    return pb.DeleteSubscriptionResponse(status=answers.ok_status())


async def _remove(core: Messaging, broker: str, group: str, topic: str, request: pb.DeleteSubscriptionRequest) -> bool:
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    reply = await broker_requests.ask(core, broker, code, {"group": group}, timeout=SHORT_TIMEOUT)
    config = load_object(reply.body)
    known = config.get("subscriptionDataSet") or []
    kept = [item for item in known if not _fits(item, topic, request)]
    if len(kept) == len(known):
        return False
    # An update changes only the attributes that it contains.
    changed = orjson.dumps({**config, "subscriptionDataSet": kept, "attributes": {}})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await broker_requests.ask(core, broker, code, {}, changed, timeout=SHORT_TIMEOUT)
    return True


def _fits(item: dict[str, Any], topic: str, request: pb.DeleteSubscriptionRequest) -> bool:
    """Return whether a SimpleSubscriptionData matches; without an expression every one of the topic does."""
    wanted = request.expression
    if item.get("topic") != topic or not wanted.expression:
        return item.get("topic") == topic
    kind = "SQL92" if wanted.type == FilterType.SQL else "TAG"
    return item.get("expression") == wanted.expression and item.get("expressionType") in (None, kind)
