"""Pulls and offsets: the commands to brokers, and the responses."""

import asyncio
import itertools
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
    PullMessageResponse,
    QueryOffsetRequest,
    UpdateOffsetRequest,
)
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from tests.grpc_gateway.fakes import FakeCore, Written, make_rpc
from tests.grpc_gateway.messages import resource, stored

pytestmark = pytest.mark.anyio

_QUEUE = {"topic": "orders", "queueId": "1", "bname": "broker-a"}


def queue(number: int = 1, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=resource(), id=number, broker=Broker(name=broker))


def pull_reply(*offsets: int) -> RemotingCommand:
    body = b"".join(messages.encode_message(stored(offset, TAGS="a" if offset % 2 else "b")) for offset in offsets)
    return commands.success({"nextBeginOffset": "9"}, body)


def make_core(answer: Any) -> FakeCore:
    return FakeCore(
        answer=lambda _: commands.response(answer, {"nextBeginOffset": "9"}) if isinstance(answer, int) else answer
    )


async def pull(
    core: FakeCore, wait: int = 0, remaining: float | None = None, **fields: Any
) -> list[tuple[str, object]]:
    """Pull, and return the content of each response: its code, its offset in the queue, or the next offset."""
    request = PullMessageRequest(
        **{"group": resource("group"), "message_queue": queue(), "offset": 5, "batch_size": 16, **fields}
    )
    if wait:
        request.long_polling_timeout.seconds = wait
    read_content = {
        "status": lambda response: response.status.code,
        "message": lambda response: response.message.system_properties.queue_offset,
        "next_offset": lambda response: response.next_offset,
    }
    written = Written(PullMessageResponse)
    await PullService(core, GatewayOptions()).pull(make_rpc(remaining=remaining), request, written.write)
    responses = written.responses
    names = [response.WhichOneof("content") for response in responses]
    return [(str(name), read_content[str(name)](response)) for name, response in zip(names, responses, strict=True)]


async def test_pull_returns_messages_and_the_next_offset() -> None:
    core = make_core(pull_reply(5, 6))
    assert await pull(core) == [("status", Code.OK), ("message", 5), ("message", 6), ("next_offset", 9)]
    [(_, code, fields, _)] = core.handled
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


async def test_messages_with_other_tags_are_left_out() -> None:
    core = make_core(pull_reply(5, 6, 7))
    expression = FilterExpression(type=FilterType.TAG, expression="a")
    assert await pull(core, filter_expression=expression) == [
        ("status", Code.OK),
        ("message", 5),
        ("message", 7),
        ("next_offset", 9),
    ]
    assert core.fields[0]["subscription"] == "a"


async def test_messages_before_the_requested_offset_are_left_out() -> None:
    core = make_core(pull_reply(4, 5))
    assert await pull(core, offset=5) == [
        ("status", Code.OK),
        ("message", 5),
        ("next_offset", 9),
    ]


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
async def test_pull_without_messages_returns_the_next_offset(code: ResponseCode) -> None:
    assert await pull(make_core(code)) == [("status", Code.OK), ("next_offset", 9)]


async def test_pull_outside_the_queue_returns_the_next_offset() -> None:
    answer = await pull(make_core(ResponseCode.PULL_OFFSET_MOVED))
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
async def test_error_of_the_broker_is_the_only_response(answer: ResponseCode, code: int) -> None:
    assert await pull(make_core(answer)) == [("status", code)]


async def test_unavailable_broker_raises() -> None:
    with pytest.raises(ServiceUnavailable):
        await pull(make_core(ServiceUnavailable("gone")))


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
async def test_invalid_request_is_rejected(fields: dict[str, Any], code: int) -> None:
    with pytest.raises(Refused) as refused:
        await pull(make_core(ResponseCode.SUCCESS), **fields)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("wait", "remaining", "suspend"),
    [(0, None, 0), (5, None, 5_000), (60, None, 20_000), (20, 10.0, 9_000), (20, 0.5, 0)],
)
async def test_polling_time_is_limited(wait: int, remaining: float | None, suspend: int) -> None:
    core = make_core(pull_reply(5))
    await pull(core, wait, remaining)
    assert core.fields[0]["suspendTimeoutMillis"] == str(suspend)
    assert core.fields[0]["sysFlag"] == ("6" if suspend else "4")


async def test_pull_is_answered_before_its_deadline_if_the_broker_is_late() -> None:
    core = FakeCore(pending=[])
    assert await pull(core, 10, 1.05) == [("status", Code.OK), ("next_offset", 5)]
    assert core.pending is not None
    assert core.pending[0].cancelled()


async def test_cancelled_pull_cancels_its_request() -> None:
    core = FakeCore(pending=[])
    pulling = asyncio.ensure_future(pull(core, 10, 20.0))
    await asyncio.sleep(0)
    pulling.cancel()
    await asyncio.wait((pulling,))
    assert core.pending is not None
    assert core.pending[0].cancelled()


# Offsets.


async def test_update_offset_sends_the_offset_to_the_broker() -> None:
    core = make_core(ResponseCode.SUCCESS)
    request = UpdateOffsetRequest(group=resource("group"), message_queue=queue(), offset=7)
    assert (await PullService(core, GatewayOptions()).update_offset(make_rpc(), request)).status.code == Code.OK
    [(_, code, fields, _)] = core.handled
    assert (code, fields) == (
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {**_QUEUE, "consumerGroup": "group", "commitOffset": "7"},
    )
    request.offset = -1
    with pytest.raises(Refused) as refused:
        await PullService(core, GatewayOptions()).update_offset(make_rpc(), request)
    assert refused.value.code == Code.ILLEGAL_OFFSET


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (commands.success({"offset": "7"}), (Code.OK, 7)),
        (commands.response(ResponseCode.QUERY_NOT_FOUND), (Code.OFFSET_NOT_FOUND, 0)),
        (commands.response(ResponseCode.TOPIC_NOT_EXIST), (Code.TOPIC_NOT_FOUND, 0)),
    ],
)
async def test_get_offset_returns_the_offset_of_the_broker(answer: RemotingCommand, expected: tuple[int, int]) -> None:
    core = make_core(answer)
    request = GetOffsetRequest(group=resource("group"), message_queue=queue())
    response = await PullService(core, GatewayOptions()).get_offset(make_rpc(), request)
    assert (response.status.code, response.offset) == expected
    assert core.fields[0] == {**_QUEUE, "consumerGroup": "group", "setZeroIfNotFound": "false"}


@pytest.mark.parametrize(
    ("policy", "code", "fields"),
    [
        (QueryOffsetPolicy.BEGINNING, RequestCode.GET_MIN_OFFSET, {}),
        (QueryOffsetPolicy.END, RequestCode.GET_MAX_OFFSET, {}),
        (QueryOffsetPolicy.TIMESTAMP, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "1700000000123"}),
    ],
)
async def test_query_offset_sends_the_request_of_its_policy(
    policy: QueryOffsetPolicy, code: RequestCode, fields: dict[str, str]
) -> None:
    core = make_core(commands.success({"offset": "7"}))
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)
    request.timestamp.FromMilliseconds(1_700_000_000_123)
    response = await PullService(core, GatewayOptions()).query_offset(make_rpc(), request)
    assert (response.status.code, response.offset) == (Code.OK, 7)
    [(_, sent_code, sent_fields, _)] = core.handled
    assert (sent_code, sent_fields) == (code, {**_QUEUE, **fields})


@pytest.mark.parametrize("policy", [QueryOffsetPolicy.TIMESTAMP, 17])
async def test_query_offset_with_an_invalid_policy_is_rejected(policy: Any) -> None:
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)
    with pytest.raises(Refused) as refused:
        await PullService(make_core(ResponseCode.SUCCESS), GatewayOptions()).query_offset(make_rpc(), request)
    assert refused.value.code == Code.BAD_REQUEST


async def test_query_offset_sends_a_time_out_of_range_to_the_broker() -> None:
    core = make_core(commands.success({"offset": "5"}))
    request = QueryOffsetRequest(message_queue=queue(), query_offset_policy=QueryOffsetPolicy.TIMESTAMP)
    request.timestamp.seconds, request.timestamp.nanos = 2**40, -1
    assert (await PullService(core, GatewayOptions()).query_offset(make_rpc(), request)).offset == 5
    assert core.fields[0]["timestamp"] == str(2**40 * 1000 - 1)


def _request(offset: int = 5) -> PullMessageRequest:
    return PullMessageRequest(group=resource("group"), message_queue=queue(), offset=offset, batch_size=16)


async def test_a_client_that_does_not_read_pulls_nothing() -> None:
    core, rpc, written = make_core(pull_reply(5)), make_rpc(), Written(PullMessageResponse)
    service = PullService(core, GatewayOptions())
    core.unread_limit = 100
    rpc.context.unread_bytes = 101
    await service.pull(rpc, _request(), written.write)
    [response] = written.responses
    assert (response.status.code, core.handled) == (Code.TOO_MANY_REQUESTS, [])


async def test_many_pulls_at_once_are_spread_over_turns_of_the_event_loop() -> None:
    core = make_core(pull_reply(5))
    core.pending = []
    service = PullService(core, GatewayOptions())
    pulls = [
        asyncio.ensure_future(service.pull(make_rpc(), _request(), Written(PullMessageResponse).write))
        for _ in range(12)
    ]
    begun = []
    for _ in range(10):
        await asyncio.sleep(0)
        begun.append(len(core.pending))
    assert begun[0] == 4
    assert max(after - before for before, after in itertools.pairwise(begun)) == 4
    assert begun[-1] == 12
    for reply in core.pending:
        reply.set_result(pull_reply(5))
    await asyncio.gather(*pulls)
