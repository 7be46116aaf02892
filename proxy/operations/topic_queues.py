"""The queues of a topic, with their first and last offsets."""

import asyncio

from pydantic import Field

from proxy.operations import broker_requests
from proxy.operations.groups.offset_table import offset_table
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, Timestamp, at_milliseconds
from remoting.codes import RequestCode
from remoting.errors import RemotingError


class TopicQueue(Answer):
    """A queue of a topic."""

    broker: str = Field(examples=["broker-a"])
    queue: int = Field(examples=[0])
    first: int = Field(description="offset of the first stored message")
    end: int = Field(description="offset after the last message")
    messages: int = Field(description="stored messages")
    last_stored: Timestamp | None = Field(description="when the last message was stored")


class TopicQueues(Answer):
    """All queues of a topic."""

    topic: str = Field(examples=["orders"])
    messages: int = Field(description="stored messages of all queues")
    queues: list[TopicQueue]
    unanswered: list[str] = Field(description="brokers that did not answer", examples=[[]])


@operation("topics.queues", timeout=REMOTE_TIMEOUT, merged=False)
async def get_queues(services: AdminServices, name: str) -> TopicQueues:
    """Return a topic's queues, sorted. Raises RemotingError if no broker replies (TopicNotExist: no such topic)."""
    core = services.replica.core
    route = await core.backend.route(name)
    brokers = sorted({queues.broker for queues in route.queues})
    requests = (
        broker_requests.ask(core, broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": name}) for broker in brokers
    )
    replies = await asyncio.gather(*requests, return_exceptions=True)
    found: list[TopicQueue] = []
    failures: dict[str, RemotingError] = {}
    for broker, reply in zip(brokers, replies, strict=True):
        if isinstance(reply, RemotingError):
            failures[broker] = reply
        elif isinstance(reply, BaseException):
            raise reply
        else:
            found += queues_of(reply.body)
    if failures and len(failures) == len(brokers):
        raise next(iter(failures.values()))
    found.sort(key=lambda queue: (queue.broker, queue.queue))
    return TopicQueues(
        topic=name, messages=sum(queue.messages for queue in found), queues=found, unanswered=sorted(failures)
    )


def queues_of(body: bytes) -> list[TopicQueue]:
    """Return the queues of a reply to GET_TOPIC_STATS_INFO. Raises BodyError."""
    return [
        TopicQueue(
            broker=key.broker,
            queue=key.queue,
            first=int(row.get("minOffset", 0)),
            end=int(row.get("maxOffset", 0)),
            messages=max(int(row.get("maxOffset", 0)) - int(row.get("minOffset", 0)), 0),
            last_stored=at_milliseconds(int(row.get("lastUpdateTimestamp", 0))),
        )
        for key, row in offset_table(body)
    ]
