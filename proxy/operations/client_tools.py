"""What a client is asked: how it is, its threads' stacks, to consume a message."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from proxy.core.handlers.tools import query_client
from proxy.operations import operator_channel
from proxy.operations.replica import Replica
from proxy.operations.values import Answer, Name, Question, Text
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError, ConsumerNotOnline
from remoting.fastjson import ObjectKeys


class HeldQueue(Answer):
    """A queue that a client says it consumes."""

    topic: str = Field(examples=["orders"])
    broker: str = Field(examples=["broker-a"])
    queue: int


class TopicRates(Answer):
    """A client's own statistics of a topic."""

    topic: str = Field(examples=["orders"])
    consumed_per_second: float
    failed_per_second: float
    milliseconds: float = Field(description="average time that its listener takes")
    failed_last_hour: int


class RunningInfo(Answer):
    """What a client says of itself. A gRPC client tells its threads alone; what else is here, we know."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    group: str = Field(examples=["orders-billing"])
    properties: dict[str, str] = Field(examples=[{"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}])
    subscriptions: list[str] = Field(examples=[["orders"]])
    queues: list[HeldQueue]
    rates: list[TopicRates]
    stack: str | None = Field(description="its threads, where they were asked for")


class Verification(Question):
    """A message for a client to consume."""

    group: Name = Field(examples=["orders-billing"])
    topic: Name = Field(examples=["orders"])
    broker: Name = Field(description="the broker that has the message", examples=["broker-a"])
    message_id: Text = Field(
        description="the offset message id, which names where the message is stored",
        examples=["7F00000100002A9F0000000000000017"],
    )


class Verified(Answer):
    """What became of it."""

    result: str = Field(examples=["CR_SUCCESS"])
    remark: str | None
    milliseconds: int


class ClientRefused(Exception):
    """A client, or the broker that was to ask it, has answered by an error."""


async def running_info(replica: Replica, group: str, client_id: str, stack: bool) -> RunningInfo:
    """A client's state. Raises ClientRefused, RemotingError, TimeoutError."""
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": str(stack).lower()}
    data = await _asked(replica, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    with _read():
        return _running_info(group, client_id, data)


def _running_info(group: str, client_id: str, data: dict[str, Any]) -> RunningInfo:
    properties = data.get("properties") or {}
    subscriptions = data.get("subscriptionSet") or []
    trace = data.get("jstack")
    return RunningInfo(
        client_id=client_id,
        group=group,
        properties={str(key): str(value) for key, value in properties.items()},
        subscriptions=sorted(str(item.get("topic")) for item in subscriptions),
        queues=_queues(data.get("mqTable")),
        rates=[_rates(topic, row) for topic, row in sorted((data.get("statusTable") or {}).items())],
        stack=None if trace is None else str(trace),
    )


def _queues(table: object) -> list[HeldQueue]:
    pairs = table.pairs if isinstance(table, ObjectKeys) else ()
    return [
        HeldQueue(
            topic=str(key.get("topic", "")), broker=str(key.get("brokerName", "")), queue=int(key.get("queueId", -1))
        )
        for key, _ in pairs
        if isinstance(key, dict)
    ]


def _rates(topic: str, row: dict[str, Any]) -> TopicRates:
    return TopicRates(
        topic=topic,
        consumed_per_second=float(row.get("consumeOKTPS", 0)),
        failed_per_second=float(row.get("consumeFailedTPS", 0)),
        milliseconds=float(row.get("consumeRT", 0)),
        failed_last_hour=int(row.get("consumeFailedMsgs", 0)),
    )


async def verify(replica: Replica, client_id: str, wanted: Verification) -> Verified:
    """Have a client consume a message. Raises ClientRefused, RemotingError, TimeoutError."""
    fields = {
        "consumerGroup": wanted.group,
        "clientId": client_id,
        "msgId": wanted.message_id,
        "brokerName": wanted.broker,
        "topic": wanted.topic,
    }
    data = await _asked(replica, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    remark = data.get("remark")
    with _read():
        return Verified(
            result=str(data.get("consumeResult")),
            remark=None if remark is None else str(remark),
            milliseconds=int(data.get("spentTimeMills", 0)),
        )


@contextmanager
def _read() -> Iterator[None]:
    """A client may answer anything. Raises BodyError."""
    try:
        yield
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise BodyError("the client's answer is not what was asked for") from None


async def _asked(replica: Replica, code: RequestCode, fields: dict[str, str]) -> dict[str, Any]:
    reply = await operator_channel.handle(replica.core, query_client, code, fields)
    if reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
        raise ConsumerNotOnline(reply.remark or f"the client {fields['clientId']} is not connected")
    if reply.code != 0:
        raise ClientRefused(f"the answer was {reply.code}: {reply.remark or 'without a word'}")
    data = fastjson.loads(reply.body)
    if not isinstance(data, dict):
        raise BodyError("the client's answer is not an object")
    return data
