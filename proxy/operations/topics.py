"""Topics, from the brokers' configuration, and their routes."""

import asyncio
from typing import Any

from pydantic import Field

from proxy.operations import broker_requests, paging, topic_owners
from proxy.operations.cooperative_yield import CooperativeYield
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer
from remoting.codes import RequestCode
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import load_object
from remoting.properties import MessageType
from remoting.routes import BrokerQueues
from remoting.topic_group_config import MESSAGE_TYPE_ATTRIBUTE

# Seconds; a broker with tens of thousands of topics takes several.
_TIMEOUT = 10.0


class Topic(Answer):
    """A topic."""

    name: str = Field(examples=["orders"])
    kind: str = Field(description="type of its messages", examples=["NORMAL"])
    brokers: list[str] = Field(examples=[["broker-a"]])
    read_queues: int = Field(description="sum of all brokers")
    write_queues: int
    system: bool = Field(description="whether RocketMQ created it, also for retries and dead letters")


class RouteBroker(Answer):
    """A topic at one broker."""

    broker: str = Field(examples=["broker-a"])
    addresses: dict[str, str] = Field(description="by broker id; 0: the master", examples=[{"0": "192.0.2.20:10911"}])
    permission: str = Field(description="R, W, RW or none", examples=["RW"])
    read_queues: int
    write_queues: int


class TopicDetail(Answer):
    """A topic with the route that this replica uses."""

    name: str = Field(examples=["orders"])
    kind: str = Field(examples=["NORMAL"])
    order: str | None = Field(description="the fixed order of its queues, if any", examples=[None])
    brokers: list[RouteBroker]
    missing: list[str] = Field(description="brokers without it", examples=[[]])


@operation("topics.list", timeout=REMOTE_TIMEOUT, merged=False)
async def list_topics(services: AdminServices, _: None) -> list[Topic]:
    """Return all topics of all brokers. Raises RemotingError if no broker replies."""
    replica = services.replica
    brokers = sorted(await replica.core.backend.brokers())
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    requests = (broker_requests.ask(replica.core, broker, code, {}, timeout=_TIMEOUT) for broker in brokers)
    replies = await asyncio.gather(*requests, return_exceptions=True)
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    failures = []
    pause = CooperativeYield()
    for broker, reply in zip(brokers, replies, strict=True):
        if isinstance(reply, RemotingError):
            failures.append(reply)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            table = load_object(reply.body).get("topicConfigTable") or {}
            for name, config in table.items():
                found.setdefault(name, []).append((broker, config))
            await pause.checkpoint()
    if failures and len(failures) == len(brokers):
        raise failures[0]
    # Brokers have topics with their own name and their cluster's; replicas have theirs for synchronisation.
    own = {*brokers, _cluster(replica), replica.settings.sync.topic, replica.settings.sync.renewals}
    return await paging.described(sorted(found.items()), lambda item: _topic(*item, own))


def _topic(name: str, configs: list[tuple[str, dict[str, Any]]], own: set[str]) -> Topic:
    return Topic(
        name=name,
        kind=_configured_type(configs[0][1]),
        brokers=[broker for broker, _ in configs],
        read_queues=sum(int(config.get("readQueueNums", 0)) for _, config in configs),
        write_queues=sum(int(config.get("writeQueueNums", 0)) for _, config in configs),
        system=name in own or topic_owners.has_system_name(name),
    )


def _cluster(replica: Replica) -> str:
    table = getattr(replica.backend, "table", {})
    return next((replicas.cluster for replicas in table.values()), replica.settings.embedded.cluster)


def _configured_type(config: dict[str, Any]) -> str:
    return str((config.get("attributes") or {}).get(MESSAGE_TYPE_ATTRIBUTE) or MessageType.NORMAL)


@operation("topics.get", timeout=REMOTE_TIMEOUT, merged=False)
async def get_topic(services: AdminServices, name: str) -> TopicDetail:
    """Return one topic. Raises TopicNotExist, ServiceUnavailable."""
    replica = services.replica
    route = await replica.core.backend.route(name)
    addresses = {item["brokerName"]: item["brokerAddrs"] for item in route.data["brokerDatas"]}
    order = route.data.get("orderTopicConf")
    return TopicDetail(
        name=name,
        kind=await _message_type(replica, name, route.brokers),
        order=None if not order else str(order),
        brokers=[_route_broker(queues, addresses[queues.broker]) for queues in route.queues],
        missing=sorted(set(await replica.core.backend.brokers()).difference(addresses)),
    )


async def _message_type(replica: Replica, name: str, brokers: tuple[str, ...]) -> str:
    cached = replica.grpc.metadata.topics.cached(name)
    try:
        return str((cached or await replica.grpc.metadata.topics.get(name)).message_type) if brokers else "UNSPECIFIED"
    except (RemotingError, BodyError):
        return "UNSPECIFIED"


def _route_broker(queues: BrokerQueues, addresses: dict[int, str]) -> RouteBroker:
    permission = ("R" if queues.permission & 4 else "") + ("W" if queues.permission & 2 else "")
    return RouteBroker(
        broker=queues.broker,
        addresses={str(number): address for number, address in sorted(addresses.items())},
        permission=permission or "none",
        read_queues=queues.read,
        write_queues=queues.write,
    )
