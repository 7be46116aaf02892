"""Consumer groups: members and their subscriptions."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from grpc_gateway.message_decoding import timestamp
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, Resource
from proxy.admin.grpc import answers
from proxy.core import client_registry
from proxy.core.client_registry import Role
from proxy.core.handlers.groups import consumer_connections
from proxy.operations import broker_requests, operator_channel
from proxy.operations.broker_requests import SHORT_TIMEOUT
from proxy.operations.groups.groups import skew
from proxy.operations.operation import operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries
from proxy.operations.values import Answer, Mergeable, Rules, concatenation
from remoting.codes import RequestCode, version_text
from remoting.errors import RemotingError
from remoting.fastjson import load_object

_LITE = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)
_MODELS = {
    "CLUSTERING": pb.MessageModel.CLUSTERING,
    "BROADCASTING": pb.MessageModel.BROADCASTING,
    "LITE_SELECTIVE": pb.MessageModel.LITE_SELECTIVE,
}


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription to a topic. updated: time of the last change, ms since 1970."""

    expression: str
    kind: str
    updated: int

    @property
    def filter(self) -> FilterExpression:
        return answers.expression(self.expression, self.kind)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, with its subscriptions by topic."""

    info: pb.ClientInfo
    wishes: dict[str, MemberSubscription]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group with the selected members. missing: sources that did not answer."""

    name: str
    members: list[Member]
    missing: tuple[str, ...] = ()

    @property
    def topics(self) -> list[str]:
        """Return the topics that members subscribe to."""
        return sorted({topic for member in self.members for topic in member.wishes})

    def subscriptions(self, topic: str | None = None) -> list[pb.SubscriptionInfo]:
        """Return the group's subscription to each topic, or to one: the latest, if members disagree."""
        wanted = {
            member.info.client_id: {name: (wish.expression, wish.kind) for name, wish in member.wishes.items()}
            for member in self.members
        }
        uneven = {one.topic for one in skew(wanted)}
        return [self._subscription(name, name not in uneven) for name in self.topics if topic in (None, name)]

    def _subscription(self, topic: str, consistent: bool) -> pb.SubscriptionInfo:
        wishing = [member for member in self.members if topic in member.wishes]
        newest = max(wishing, key=lambda member: member.wishes[topic].updated)
        wish = newest.wishes[topic]
        return pb.SubscriptionInfo(
            group=Resource(name=self.name),
            topic=Resource(name=topic),
            expression=wish.filter,
            online=True,
            last_update_timestamp=timestamp(wish.updated),
            message_model=newest.info.message_model,
            subscription_consistency=consistent,
        )


# Members.


class MemberEntry(Answer):
    """A member at one worker. info: the serialised ClientInfo, in hex."""

    client_id: str
    info: str
    wishes: dict[str, MemberSubscription]


def merge_members(values: list[list[MemberEntry]]) -> list[MemberEntry]:
    """Merge members by client id, the first entry of each."""
    members: dict[str, MemberEntry] = {}
    for member in concatenation(values):
        members.setdefault(member.client_id, member)
    return list(members.values())


class GroupEntry(Mergeable):
    """A consumer group with its members at one worker, or at all."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {"members": merge_members}

    name: str
    members: list[MemberEntry]


@operation("admin_grpc.members")
async def find_members(services: AdminServices, group: str | None) -> Entries[GroupEntry]:
    """Return a group's members, connected here or to proxies that share theirs; None: of all groups."""
    names = services.replica.registry.groups(Role.CONSUMER) if group is None else [group]
    return Entries(services.workers.number, [GroupEntry(name=name, members=_members(services, name)) for name in names])


def _members(services: AdminServices, name: str) -> list[MemberEntry]:
    # The most recently active connection of a client with two.
    members = sorted(
        services.replica.registry.members(Role.CONSUMER, name), key=lambda member: member.last_heartbeat_at
    )
    known = {member.client_id: _known(member, name) for member in members}
    return [
        MemberEntry(client_id=client_id, info=member.info.SerializeToString().hex(), wishes=member.wishes)
        for client_id, member in known.items()
    ]


async def here(services: AdminServices, group: str | None) -> list[Group]:
    """Return a group with its members at all workers; None: all groups."""
    merged = await services.workers.gather(find_members, group)
    missing = tuple(f"worker {worker} does not answer" for worker in merged.missing)
    return [
        Group(
            entry.name,
            [
                Member(pb.ClientInfo.FromString(bytes.fromhex(member.info)), member.wishes)
                for member in sorted(entry.members, key=lambda member: member.client_id)
            ],
            missing,
        )
        for entry in sorted(merged.value.items, key=lambda entry: entry.name)
    ]


async def everywhere(services: AdminServices, name: str) -> Group:
    """Return the members at this replica, and those that only brokers know."""
    (known,) = await here(services, name)
    ids = {member.info.client_id for member in known.members}
    data = await _connections(services, name)
    others = [
        item for item in data.get("connectionSet") or () if isinstance(item, dict) and item.get("clientId") not in ids
    ]
    # Brokers keep one subscription for all members of a group.
    wishes = _member_subscriptions((data.get("subscriptionTable") or {}).values())
    return Group(name, [*known.members, *(Member(_info(item, data), wishes) for item in others)], known.missing)


async def _connections(services: AdminServices, name: str) -> dict[str, Any]:
    """Return ConsumerConnection; empty if the group is unknown, or no broker replies."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    try:
        reply = await operator_channel.handle(
            services.replica.core,
            consumer_connections,
            code,
            {"consumerGroup": name},
            timeout=SHORT_TIMEOUT,
        )
        return load_object(reply.body) if reply.code == 0 else {}
    except (RemotingError, TimeoutError):
        return {}


def _known(member: client_registry.Member, group: str) -> Member:
    data = member.consumer_data[group].data if group in member.consumer_data else {}
    channel = member.channel
    who = None if channel is None else channel.identity
    lite = getattr(channel, "kind", None) in _LITE
    info = pb.ClientInfo(
        client_id=member.client_id,
        version=(who and who.version) or version_text(member.version),
        language=(who and who.language) or member.language,
        hostname=_hostname(member.client_id),
        egress_ip=_ip(member.address),
        message_model=pb.MessageModel.LITE_SELECTIVE if lite else _model(data),
    )
    updated = round((time.time() - max(time.monotonic() - member.last_heartbeat_at, 0.0)) * 1000)
    return Member(info, _member_subscriptions(data.get("subscriptionDataSet") or (), updated))


def _info(item: dict[str, Any], group: dict[str, Any]) -> pb.ClientInfo:
    version, client_id = item.get("version"), str(item.get("clientId") or "")
    return pb.ClientInfo(
        client_id=client_id,
        version=version_text(version) if isinstance(version, int) else "",
        language=str(item.get("language") or ""),
        hostname=_hostname(client_id),
        egress_ip=_ip(str(item.get("clientAddr") or "")),
        message_model=_model(group),
    )


def _member_subscriptions(items: Iterable[Any], updated: int | None = None) -> dict[str, MemberSubscription]:
    """Return SubscriptionData by topic; its version is the time of its creation, in ms."""
    return {
        str(item.get("topic")): MemberSubscription(
            str(item.get("subString") or "*"),
            str(item.get("expressionType") or "TAG"),
            int(item.get("subVersion") or 0) if updated is None else updated,
        )
        for item in items
        # Consumers subscribe to the retry topic of their group implicitly.
        if isinstance(item, dict) and not answers.is_retry(str(item.get("topic")))
    }


def _model(data: dict[str, Any]) -> pb.MessageModel | None:
    return _MODELS.get(str(data.get("messageModel")))


def _hostname(client_id: str) -> str:
    """Return the part of a client id before the @: address or host name in official clients."""
    host, at, _ = client_id.partition("@")
    return host if at else ""


def _ip(address: str) -> str:
    try:
        return HostPort.parse(address.removeprefix("/")).host
    except ValueError:
        return ""


# Groups and topics.


async def groups_of(services: AdminServices, topic: str) -> list[str]:
    """Return groups that subscribe to a topic, or have consumed it. Raises RemotingError."""
    core = services.replica.core
    names = (await core.backend.route(topic)).brokers
    asked = await broker_requests.ask_each(core, names, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    listed = {str(name) for reply in asked.replies.values() for name in load_object(reply.body).get("groupList") or ()}
    online = {group.name for group in await here(services, None) if topic in group.topics}
    return sorted(listed | online)


async def topics_of(services: AdminServices, group: str) -> list[str]:
    """Return topics that a group has consumed, without its retry topics. Raises RemotingError."""
    core = services.replica.core
    names = await core.backend.brokers()
    asked = await broker_requests.ask_each(core, names, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
    listed = {str(name) for reply in asked.replies.values() for name in load_object(reply.body).get("topicList") or ()}
    return sorted(name for name in listed if not answers.is_retry(name))
