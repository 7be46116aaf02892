"""Pulls and offsets: what brokers are asked, and what they say in the words of the contract."""

import asyncio
from typing import Any

import pytest

from grpc_gateway.consuming.pull_service import PullService
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Broker,
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    QueryOffsetPolicy,
)
from protos.apache.rocketmq.v2.service_pb2 import (
    GetOffsetRequest,
    PullMessageRequest,
    QueryOffsetRequest,
    UpdateOffsetRequest,
)
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from tests.grpc_gateway.kit import FakeCore, call, resource, stored

pytestmark = pytest.mark.anyio

_QUEUE = {"topic": "orders", "queueId": "1", "bname": "broker-a"}


def queue(number: int = 1, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=resource(), id=number, broker=Broker(name=broker))


def found(*offsets: int) -> RemotingCommand:
    body = b"".join(messages.encode_message(stored(offset, TAGS="a" if offset % 2 else "b")) for offset in offsets)
    return commands.success({"nextBeginOffset": "9"}, body)


def core(answer: Any) -> FakeCore:
    return FakeCore(
        answer=lambda _: commands.response(answer, {"nextBeginOffset": "9"}) if isinstance(answer, int) else answer
    )


async def pull(
    brokers: FakeCore, wait: int = 0, remaining: float | None = None, **fields: Any
) -> list[tuple[str, object]]:
    """What each response has: a code, an offset in the queue or the next offset."""
    request = PullMessageRequest(
        **{"group": resource("group"), "message_queue": queue(), "offset": 5, "batch_size": 16, **fields}
    )
    if wait:
        request.long_polling_timeout.seconds = wait
    read = {
        "status": lambda one: one.status.code,
        "message": lambda one: one.message.system_properties.queue_offset,
        "next_offset": lambda one: one.next_offset,
    }
    responses = [one async for one in PullService(brokers, GatewayOptions()).pull(call(remaining=remaining), request)]
    names = [one.WhichOneof("content") for one in responses]
    return [(str(name), read[str(name)](one)) for name, one in zip(names, responses, strict=True)]


async def test_messages_come_with_the_offset_after_them() -> None:
    brokers = core(found(5, 6))
    assert await pull(brokers) == [("status", Code.OK), ("message", 5), ("message", 6), ("next_offset", 9)]
    [(_, code, fields, _)] = brokers.handled
    assert code == RequestCode.PULL_MESSAGE
    assert fields == {
        **_QUEUE,
        "consumerGroup": "group",
        "queueOffset": "5",
        "maxMsgNums": "16",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "expressionType": "TAG",
        "subVersion": "0",
    }


async def test_tags_are_looked_at_again() -> None:
    brokers = core(found(5, 6, 7))
    wanted = FilterExpression(type=FilterType.TAG, expression="a")
    assert await pull(brokers, filter_expression=wanted) == [
        ("status", Code.OK),
        ("message", 5),
        ("message", 7),
        ("next_offset", 9),
    ]
    assert brokers.fields[0]["subscription"] == "a"


async def test_a_batch_that_began_earlier_is_cut() -> None:
    assert await pull(core(found(4, 5)), offset=5) == [("status", Code.OK), ("message", 5), ("next_offset", 9)]


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
async def test_without_messages_there_is_the_next_offset(code: ResponseCode) -> None:
    assert await pull(core(code)) == [("status", Code.OK), ("next_offset", 9)]


async def test_whoever_is_beyond_the_queue_learns_where_to_go_on() -> None:
    answer = await pull(core(ResponseCode.PULL_OFFSET_MOVED))
    assert answer == [("status", Code.ILLEGAL_OFFSET), ("next_offset", 9)]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
async def test_a_refusal_is_told(answer: ResponseCode, code: int) -> None:
    assert await pull(core(answer)) == [("status", code)]


async def test_a_broker_that_is_gone_is_an_error() -> None:
    with pytest.raises(ServiceUnavailable):
        await pull(core(ServiceUnavailable("gone")))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": -1}, Code.ILLEGAL_OFFSET),
        ({"message_queue": queue(-1)}, Code.BAD_REQUEST),
        ({"message_queue": queue(1, "")}, Code.BAD_REQUEST),
        ({"group": resource("")}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": MessageQueue(id=1)}, Code.ILLEGAL_TOPIC),
    ],
)
async def test_what_cannot_be_is_refused(fields: dict[str, Any], code: int) -> None:
    with pytest.raises(Refused) as refused:
        await pull(core(ResponseCode.SUCCESS), **fields)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("wait", "remaining", "suspend"),
    [(0, None, 0), (5, None, 5_000), (60, None, 20_000), (20, 10.0, 9_000), (20, 0.5, 0)],
)
async def test_a_broker_waits_within_bounds(wait: int, remaining: float | None, suspend: int) -> None:
    brokers = core(found(5))
    await pull(brokers, wait, remaining)
    assert brokers.fields[0]["suspendTimeoutMillis"] == str(suspend)
    assert brokers.fields[0]["sysFlag"] == ("6" if suspend else "4")


async def test_a_broker_that_waits_longer_than_the_call_is_not_waited_for() -> None:
    brokers = FakeCore(pending=[])
    assert await pull(brokers, 10, 1.05) == [("status", Code.OK), ("next_offset", 5)]
    assert brokers.pending is not None
    assert brokers.pending[0].cancelled()


async def test_a_cancelled_pull_cancels_its_poll() -> None:
    brokers = FakeCore(pending=[])
    pulling = asyncio.ensure_future(pull(brokers, 10, 20.0))
    await asyncio.sleep(0)
    pulling.cancel()
    await asyncio.wait((pulling,))
    assert brokers.pending is not None
    assert brokers.pending[0].cancelled()


# Offsets.


async def test_an_offset_is_stored() -> None:
    brokers = core(ResponseCode.SUCCESS)
    request = UpdateOffsetRequest(group=resource("group"), message_queue=queue(), offset=7)
    assert (await PullService(brokers, GatewayOptions()).update_offset(call(), request)).status.code == Code.OK
    [(_, code, fields, _)] = brokers.handled
    assert (code, fields) == (
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {**_QUEUE, "consumerGroup": "group", "commitOffset": "7"},
    )
    request.offset = -1
    with pytest.raises(Refused) as refused:
        await PullService(brokers, GatewayOptions()).update_offset(call(), request)
    assert refused.value.code == Code.ILLEGAL_OFFSET


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (commands.success({"offset": "7"}), (Code.OK, 7)),
        (commands.response(ResponseCode.QUERY_NOT_FOUND), (Code.OFFSET_NOT_FOUND, 0)),
        (commands.response(ResponseCode.TOPIC_NOT_EXIST), (Code.TOPIC_NOT_FOUND, 0)),
    ],
)
async def test_an_offset_is_told(answer: RemotingCommand, expected: tuple[int, int]) -> None:
    brokers = core(answer)
    request = GetOffsetRequest(group=resource("group"), message_queue=queue())
    response = await PullService(brokers, GatewayOptions()).get_offset(call(), request)
    assert (response.status.code, response.offset) == expected
    assert brokers.fields[0] == {**_QUEUE, "consumerGroup": "group", "setZeroIfNotFound": "false"}


@pytest.mark.parametrize(
    ("policy", "code", "fields"),
    [
        (QueryOffsetPolicy.BEGINNING, RequestCode.GET_MIN_OFFSET, {}),
        (QueryOffsetPolicy.END, RequestCode.GET_MAX_OFFSET, {}),
        (QueryOffsetPolicy.TIMESTAMP, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "1700000000123"}),
    ],
)
async def test_a_queue_is_asked_for_its_offsets(
    policy: QueryOffsetPolicy, code: RequestCode, fields: dict[str, str]
) -> None:
    brokers = core(commands.success({"offset": "7"}))
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)
    request.timestamp.FromMilliseconds(1_700_000_000_123)
    response = await PullService(brokers, GatewayOptions()).query_offset(call(), request)
    assert (response.status.code, response.offset) == (Code.OK, 7)
    [(_, asked, asked_fields, _)] = brokers.handled
    assert (asked, asked_fields) == (code, {**_QUEUE, **fields})


@pytest.mark.parametrize("policy", [QueryOffsetPolicy.TIMESTAMP, 17])
async def test_a_policy_that_cannot_be_followed_is_refused(policy: Any) -> None:
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)
    with pytest.raises(Refused) as refused:
        await PullService(core(ResponseCode.SUCCESS), GatewayOptions()).query_offset(call(), request)
    assert refused.value.code == Code.BAD_REQUEST


async def test_a_time_that_cannot_be_is_the_brokers_to_judge() -> None:
    brokers = core(commands.success({"offset": "5"}))
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=QueryOffsetPolicy.TIMESTAMP)
    request.timestamp.seconds, request.timestamp.nanos = 2**40, -1
    assert (await PullService(brokers, GatewayOptions()).query_offset(call(), request)).offset == 5
    assert brokers.fields[0]["timestamp"] == str(2**40 * 1000 - 1)
