"""Topics as brokers have them, and their routes."""

import asyncio
from typing import Any

from pydantic import Field

from proxy.operations import operator_channel, paging
from proxy.operations.cooperative_yield import Turns
from proxy.operations.replica import Replica
from proxy.operations.values import Answer
from remoting.codes import RequestCode
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import load_object
from remoting.names import DLQ_PREFIX, RETRY_PREFIX, is_system
from remoting.properties import MessageType
from remoting.routes import BrokerQueues

# A broker with tens of thousands of topics has much to tell, in seconds.
_TIMEOUT = 10.0
_KIND = "message.type"


class Topic(Answer):
    """A topic, as the brokers that hold it say."""

    name: str = Field(examples=["orders"])
    kind: str = Field(description="type of its messages", examples=["NORMAL"])
    brokers: list[str] = Field(examples=[["broker-a"]])
    read_queues: int = Field(description="of all brokers together")
    write_queues: int
    system: bool = Field(description="of RocketMQ's own, or a group's retry or dead letter topic")


class RouteBroker(Answer):
    """A topic at one broker."""

    broker: str = Field(examples=["broker-a"])
    addresses: dict[str, str] = Field(description="by broker id; 0: the master", examples=[{"0": "192.0.2.20:10911"}])
    permission: str = Field(description="R, W, RW or none", examples=["RW"])
    read_queues: int
    write_queues: int


class TopicDetail(Answer):
    """A topic's route, as it is in use here."""

    name: str = Field(examples=["orders"])
    kind: str = Field(examples=["NORMAL"])
    order: str | None = Field(description="the fixed order of its queues, where it has one", examples=[None])
    brokers: list[RouteBroker]


# What begins like this no application has made; nor have brokers' system topics.
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, "RMQ_SYS_", "CID_RMQ_SYS_")


async def topics(replica: Replica) -> list[Topic]:
    """All topics that brokers have. Raises RemotingError where none can be asked."""
    brokers = sorted(await replica.core.backend.brokers())
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    asked = (operator_channel.ask(replica.core, broker, code, {}, timeout=_TIMEOUT) for broker in brokers)
    replies = await asyncio.gather(*asked, return_exceptions=True)
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    failures = []
    turns = Turns()
    for broker, reply in zip(brokers, replies, strict=True):
        if isinstance(reply, RemotingError):
            failures.append(reply)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            table = load_object(reply.body).get("topicConfigTable") or {}
            for name, config in table.items():
                found.setdefault(name, []).append((broker, config))
            await turns.take()
    if failures and len(failures) == len(brokers):
        raise failures[0]
    # Brokers have topics that are called as they are, and as their cluster is; replicas talk over topics of their own.
    own = {*brokers, _cluster(replica), replica.settings.sync.topic, replica.settings.sync.renewals}
    return await paging.described(sorted(found.items()), lambda item: _topic(*item, own))


def _topic(name: str, configs: list[tuple[str, dict[str, Any]]], own: set[str]) -> Topic:
    return Topic(
        name=name,
        kind=_kind(configs[0][1]),
        brokers=[broker for broker, _ in configs],
        read_queues=sum(int(config.get("readQueueNums", 0)) for _, config in configs),
        write_queues=sum(int(config.get("writeQueueNums", 0)) for _, config in configs),
        system=is_system(name) or name in own or name.startswith(_PREFIXES) or name.endswith("_REPLY_TOPIC"),
    )


def _cluster(replica: Replica) -> str:
    table = getattr(replica.backend, "table", {})
    return next((replicas.cluster for replicas in table.values()), replica.settings.embedded.cluster)


def _kind(config: dict[str, Any]) -> str:
    return str((config.get("attributes") or {}).get(_KIND) or MessageType.NORMAL)


async def topic(replica: Replica, name: str) -> TopicDetail:
    """One topic's route. Raises TopicNotExist, ServiceUnavailable."""
    route = await replica.core.backend.route(name)
    addresses = {item["brokerName"]: item["brokerAddrs"] for item in route.data["brokerDatas"]}
    kind = await _kind_of(replica, name, route.brokers)
    order = route.data.get("orderTopicConf")
    return TopicDetail(
        name=name,
        kind=kind,
        order=None if not order else str(order),
        brokers=[_route_broker(queues, addresses[queues.broker]) for queues in route.queues],
    )


async def _kind_of(replica: Replica, name: str, brokers: tuple[str, ...]) -> str:
    known = replica.grpc.metadata.topics.cached(name)
    try:
        return str((known or await replica.grpc.metadata.topics.get(name)).message_type) if brokers else "UNSPECIFIED"
    except (RemotingError, BodyError):
        return "UNSPECIFIED"


def _route_broker(queues: BrokerQueues, addresses: dict[int, str]) -> RouteBroker:
    may = ("R" if queues.permission & 4 else "") + ("W" if queues.permission & 2 else "")
    return RouteBroker(
        broker=queues.broker,
        addresses={str(number): address for number, address in sorted(addresses.items())},
        permission=may or "none",
        read_queues=queues.read,
        write_queues=queues.write,
    )
