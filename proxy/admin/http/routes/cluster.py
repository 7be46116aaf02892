"""Routes of topics, brokers, name servers, requests and deliveries."""

from typing import Annotated

from fastapi import APIRouter, Query

from proxy.admin.http.routes.common import Cursor, Filter, Limit, Operations, Route, TopicName
from proxy.operations import brokers, definitions, deliveries, paging, request_table, topic_queues, topics
from proxy.operations.brokers import Broker, NameServer
from proxy.operations.definitions import TopicChange, TopicDefinition, TopicOrder, TopicUpdate
from proxy.operations.deliveries import DeliveryQuery, HeldDelivery
from proxy.operations.paging import DEFAULT_LIMIT, PageRequest, Place, cursor_of
from proxy.operations.request_table import Request
from proxy.operations.topic_queues import TopicQueues
from proxy.operations.topics import Topic, TopicDetail
from proxy.operations.values import ItemList, Page

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=Route)


@router.get("/topics", summary="Topics in the brokers' configuration")
async def list_topics(
    operations: Operations,
    system: Annotated[bool, Query(description="also RocketMQ's own, and retry and dead letter topics")] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Topic]:
    page = PageRequest.parse("name", limit, cursor)
    found = await operations.run(topics.list_topics, None)
    cut = await paging.cut(
        found,
        lambda topic: system or not topic.system,
        lambda topic: Place("", 0, topic.name),
        page,
    )
    last = cursor_of(cut.places[-1], page.order) if cut.rest > limit else None
    return Page(items=cut.items, total=cut.total, next=last)


@router.get("/topics/{topic}", summary="One topic's route with its brokers")
async def get_topic(operations: Operations, topic: TopicName) -> TopicDetail:
    return await operations.run(topics.get_topic, topic)


@router.get("/topics/{topic}/queues", summary="A topic's queues: first and last offsets, messages, last store time")
async def get_topic_queues(operations: Operations, topic: TopicName) -> TopicQueues:
    return await operations.run(topic_queues.get_queues, topic)


@router.post("/topics", tags=["operations"], summary="Create a topic at every broker; 409 if each has it")
async def create_topic(operations: Operations, order: TopicOrder) -> TopicDefinition:
    return await operations.run(definitions.create_topic, order)


@router.patch("/topics/{topic}", tags=["operations"], summary="Change a topic: type, queues, permission")
async def update_topic(operations: Operations, topic: TopicName, update: TopicUpdate) -> TopicDefinition:
    return await operations.run(definitions.update_topic, TopicChange(topic, update))


@router.delete("/topics/{topic}", tags=["operations"], status_code=204, summary="Delete a topic with its messages")
async def delete_topic(operations: Operations, topic: TopicName) -> None:
    await operations.run(definitions.delete_topic, topic)


@router.get("/brokers", summary="Brokers: state, latency, pending requests")
async def list_brokers(operations: Operations) -> ItemList[Broker]:
    merged = await operations.gather(brokers.list_brokers, None)
    return merged.mark(merged.value.item_list)


@router.get("/name-servers", summary="Name servers; none with an embedded broker")
async def list_name_servers(operations: Operations) -> ItemList[NameServer]:
    merged = await operations.gather(brokers.list_name_servers, None)
    return merged.mark(merged.value.item_list)


@router.get("/requests", tags=["traffic"], summary="The request table with counts, and the rpcs")
async def list_requests(operations: Operations) -> ItemList[Request]:
    merged = await operations.gather(request_table.list_requests, None)
    return merged.mark(request_table.request_table(merged.value.items))


@router.get("/receipt-handles", summary="Deliveries that are kept invisible for their consumers")
async def list_receipt_handles(
    operations: Operations,
    client_id: Filter = None,
    group: Filter = None,
    topic: Filter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[HeldDelivery]:
    page = PageRequest.parse("age", limit, cursor)
    merged = await operations.gather(deliveries.list_receipt_handles, DeliveryQuery(client_id, group, topic, page))
    return merged.mark(merged.value.page(page))
