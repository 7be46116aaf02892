"""Requests to clients: running info, thread stacks, test consumption of a message."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from proxy.core.handlers.tools import consume_message, query_client
from proxy.operations import operator_channel
from proxy.operations.failures import Failure, FailureKind, OperationFailed
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, Name, RequestBody, Text
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError, ConsumerNotOnline
from remoting.fastjson import ObjectKeys
from remoting.ids import OffsetMessageId


class HeldQueue(Answer):
    """A queue that a client reports to consume."""

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
    """The state that a client reports. gRPC clients report only their threads; the proxy adds the rest."""

    client_id: str = Field(examples=["192.0.2.7@4711"])
    group: str = Field(examples=["orders-billing"])
    properties: dict[str, str] = Field(examples=[{"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}])
    subscriptions: list[str] = Field(examples=[["orders"]])
    queues: list[HeldQueue]
    rates: list[TopicRates]
    stack: str | None = Field(description="its thread stacks, if requested")


class Verification(RequestBody):
    """A message for a client to consume."""

    group: Name = Field(examples=["orders-billing"])
    topic: Name = Field(examples=["orders"])
    broker: Name = Field(description="the broker that has the message", examples=["broker-a"])
    message_id: Text = Field(
        description="the offset message id, which names where the message is stored",
        examples=["7F00000100002A9F0000000000000017"],
    )


class Verified(Answer):
    """The client's result."""

    result: str = Field(examples=["CR_SUCCESS"])
    remark: str | None
    milliseconds: int


class ClientRefused(OperationFailed):
    """A client, or the broker that forwarded the request, replied with an error."""

    def __init__(self, detail: str) -> None:
        super().__init__(Failure(FailureKind.CONFLICT, detail))


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A consumer. stack: whether to request its thread stacks."""

    group: str
    client_id: str
    stack: bool = False


@dataclass(frozen=True, slots=True)
class VerifyOrder:
    """A consumer, and the message for it to consume."""

    client_id: str
    message: Verification


@operation("clients.running_info", timeout=REMOTE_TIMEOUT, merged=False)
async def running_info(services: AdminServices, question: ClientQuestion) -> RunningInfo:
    """Return a client's state. Raises ClientRefused, RemotingError, TimeoutError."""
    fields = {
        "consumerGroup": question.group,
        "clientId": question.client_id,
        "jstackEnable": str(question.stack).lower(),
    }
    data = await ask_client_json(services, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    with _reading():
        return _running_info(question.group, question.client_id, data)


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


@operation("clients.verify", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def verify(services: AdminServices, order: VerifyOrder) -> Verified:
    """Have a client consume a message. Raises OperationFailed, ClientRefused, RemotingError, TimeoutError."""
    message = order.message
    try:
        OffsetMessageId.parse(message.message_id)
    except BodyError as error:
        # No message has this id.
        raise OperationFailed(Failure(FailureKind.NOT_FOUND, str(error))) from None
    if message.broker not in await services.replica.core.backend.brokers():
        raise OperationFailed(Failure(FailureKind.NOT_FOUND, f"there is no broker {message.broker}"))
    fields = {
        "consumerGroup": message.group,
        "clientId": order.client_id,
        "msgId": message.message_id,
        "brokerName": message.broker,
        "topic": message.topic,
    }
    data = await ask_client_json(services, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    remark = data.get("remark")
    with _reading():
        return Verified(
            result=str(data.get("consumeResult")),
            remark=None if remark is None else str(remark),
            milliseconds=int(data.get("spentTimeMills", 0)),
        )


@contextmanager
def _reading() -> Iterator[None]:
    """Read a client's reply, which may hold anything. Raises BodyError."""
    try:
        yield
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise BodyError("the client's reply is malformed") from None


async def ask_client_json(services: AdminServices, code: RequestCode, fields: dict[str, str]) -> dict[str, Any]:
    """Return a client's reply. Raises ClientRefused, RemotingError, TimeoutError."""
    handling = consume_message if code == RequestCode.CONSUME_MESSAGE_DIRECTLY else query_client
    reply = await operator_channel.handle(services.replica.core, handling, code, fields)
    if reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
        raise ConsumerNotOnline(reply.remark or f"the client {fields['clientId']} is not connected")
    if reply.code != 0:
        raise ClientRefused(f"the answer was {reply.code}: {reply.remark or 'without a remark'}")
    data = fastjson.loads(reply.body)
    if not isinstance(data, dict):
        raise BodyError("the client's reply is not an object")
    return data
