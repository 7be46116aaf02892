"""What the replica serves: topics, brokers, name servers, requests, deliveries."""

from typing import Annotated

from fastapi import APIRouter, Query

from proxy.admin.http.routes.common import Cursor, Filter, Limit, Replica, TopicName
from proxy.operations import brokers, deliveries, paging, topics
from proxy.operations.brokers import Broker, NameServer
from proxy.operations.deliveries import ReceiptHandle
from proxy.operations.paging import DEFAULT_LIMIT, Order
from proxy.operations.request_table import Request, requests
from proxy.operations.topics import Topic, TopicDetail
from proxy.operations.values import Many, Page

router = APIRouter(prefix="/v1", tags=["cluster"])

_BY_NAME = Order("name", False)
_BY_AGE = Order("age", False)


@router.get("/topics", summary="Topics, as the brokers have them")
async def list_topics(
    replica: Replica,
    system: Annotated[bool, Query(description="RocketMQ's own as well, and retry and dead letter topics")] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Topic]:
    found = await topics.topics(replica)
    cut = await paging.cut(
        found, lambda topic: system or not topic.system, lambda topic: ("", topic.name), _BY_NAME, limit, cursor
    )
    return Page(items=cut.items, total=cut.total, next=cut.next)


@router.get("/topics/{topic}", summary="One topic's route with its brokers")
async def get_topic(replica: Replica, topic: TopicName) -> TopicDetail:
    return await topics.topic(replica, topic)


@router.get("/brokers", summary="Brokers: state, latency, what is pending")
async def list_brokers(replica: Replica) -> Many[Broker]:
    return Many(items=brokers.brokers(replica))


@router.get("/name-servers", summary="Name servers; none before an embedded broker")
async def list_name_servers(replica: Replica) -> Many[NameServer]:
    return Many(items=brokers.name_servers(replica))


@router.get("/requests", tags=["traffic"], summary="The request table with counts, and the rpcs")
async def list_requests(replica: Replica) -> Many[Request]:
    return Many(items=requests(replica))


@router.get("/receipt-handles", summary="Deliveries that are kept invisible for their consumers")
async def list_receipt_handles(
    replica: Replica,
    client_id: Filter = None,
    group: Filter = None,
    topic: Filter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[ReceiptHandle]:
    cut = await paging.cut(
        iter(replica.grpc.renewal),
        lambda held: (
            (client_id is None or held.client.client_id == client_id)
            and (group is None or held.group == group)
            and (topic is None or held.topic == topic)
        ),
        lambda held: (held.received_at, held.newest.text),
        _BY_AGE,
        limit,
        cursor,
    )
    now = replica.admin.loop.time()
    return Page(items=[deliveries.describe(held, now) for held in cut.items], total=cut.total, next=cut.next)
