"""ReceiveMessage: the pop, the stream of responses, and the messages that are not delivered."""

import asyncio
import logging
from typing import Any

import pytest

from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, FilterExpression, FilterType
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, RequestTimeout, ServiceUnavailable, TopicNotExist
from remoting.messages import encode_message
from remoting.properties import MessageType
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.grpc_gateway.consuming.receive_harness import ReceiveHarness, cancel, tags
from tests.grpc_gateway.messages import pop_reply, route, stored

pytestmark = pytest.mark.anyio

_ACK = RequestCode.ACK_MESSAGE
_CHANGE, _SEND_BACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK


# The pop.


async def test_receive_becomes_a_pop() -> None:
    assert await ReceiveHarness().pop_fields(filter_expression=tags("a||b"), attempt_id="attempt") == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "-1",
        "maxMsgNums": "16",
        "invisibleTime": "30000",
        "pollTime": "20051",
        "bornTime": "0",
        "initMode": "1",
        "expType": "TAG",
        "exp": "a||b",
        "order": "false",
        "attemptId": "attempt",
        "bname": "broker-a",
    }


async def test_sql_filter_is_sent_to_the_broker() -> None:
    fields = await ReceiveHarness().pop_fields(
        filter_expression=FilterExpression(type=FilterType.SQL, expression="a > 1")
    )
    assert (fields["expType"], fields["exp"]) == ("SQL92", "a > 1")


@pytest.mark.parametrize(("size", "expected"), [(-1, "1"), (0, "1"), (1, "1"), (32, "32"), (1_000, "32")])
async def test_batch_size_is_limited(size: int, expected: str) -> None:
    assert (await ReceiveHarness().pop_fields(batch_size=size))["maxMsgNums"] == expected


@pytest.mark.parametrize("invisible", [0, 9, 43_201])
async def test_invisible_duration_out_of_bounds_is_rejected(invisible: int) -> None:
    with pytest.raises(Refused) as refused:
        await ReceiveHarness().receive(invisible=invisible)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_renewed_receive_uses_the_invisible_duration_of_the_options() -> None:
    assert (await ReceiveHarness().pop_fields(auto_renew=True))["invisibleTime"] == "60000"


async def test_invisible_duration_is_required_if_renewal_is_off() -> None:
    with pytest.raises(Refused) as refused:
        await ReceiveHarness(auto_renew=False).receive(auto_renew=True)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_orderly_group_pops_in_order() -> None:
    harness = ReceiveHarness()
    harness.core.groups["group"] = GroupConfig("group", orderly=True)
    assert (await harness.pop_fields())["order"] == "true"


@pytest.mark.parametrize(
    ("orderly", "renew", "queue", "expected"),
    [
        (True, True, 3, "3"),
        (True, True, 4, "-1"),
        (True, True, -1, "-1"),
        # A simple consumer names any queue of the route.
        (True, False, 3, "-1"),
        (False, True, 3, "-1"),
    ],
)
async def test_only_push_consumers_of_orderly_groups_pop_one_queue(
    orderly: bool, renew: bool, queue: int, expected: str
) -> None:
    harness = ReceiveHarness()
    harness.core.groups["group"] = GroupConfig("group", orderly=orderly)
    assert (await harness.pop_fields(auto_renew=renew, queue=queue))["queueId"] == expected


@pytest.mark.parametrize("broker", ["", "unknown"])
async def test_brokers_are_used_in_turn_if_the_request_names_none(broker: str) -> None:
    harness = ReceiveHarness()
    for _ in range(4):
        await harness.receive(broker=broker)
    assert [fields["bname"] for fields in harness.core.fields] == ["broker-a", "broker-b"] * 2


async def test_receives_avoid_a_broker_that_hangs() -> None:
    harness = ReceiveHarness()
    harness.core.unresponsive = frozenset({"broker-a"})
    assert [(await harness.pop_fields(broker="broker-a"))["bname"] for _ in range(3)] == ["broker-b"] * 3


async def test_receives_use_a_broker_that_hangs_if_there_is_no_other() -> None:
    harness = ReceiveHarness()
    harness.core.unresponsive = frozenset({"broker-a", "broker-b"})
    assert (await harness.pop_fields(broker="broker-b"))["bname"] == "broker-b"


async def test_receives_of_an_orderly_group_keep_their_broker() -> None:
    harness = ReceiveHarness()
    harness.core.groups["group"] = GroupConfig("group", orderly=True)
    harness.core.unresponsive = frozenset({"broker-a"})
    assert (await harness.pop_fields(broker="broker-a"))["bname"] == "broker-a"


async def test_topic_without_readable_queues_is_forbidden() -> None:
    harness = ReceiveHarness()
    harness.core.routes["orders"] = route("orders", perm=2)
    with pytest.raises(Refused, match=r"^no readable queue$") as refused:
        await harness.receive()
    assert refused.value.code == Code.FORBIDDEN


async def test_metadata_that_is_not_cached_is_loaded() -> None:
    harness = ReceiveHarness()
    harness.core.groups.clear()
    harness.core.topics.clear()
    assert len(await harness.receive()) == 4
    harness.core.routes.clear()
    with pytest.raises(TopicNotExist):
        await harness.receive()


async def test_receive_records_the_subscription() -> None:
    harness = ReceiveHarness()
    await harness.receive(filter_expression=tags("a"))
    assert harness.rpc.client.subscriptions == {"orders": tags("a")}


# Responses.


async def test_responses_are_status_messages_and_delivery_timestamp() -> None:
    status, first, second, last = await ReceiveHarness().receive()
    assert status.status.code == Code.OK
    assert (first.message.body, second.message.body) == (b"body", b"body")
    system = first.message.system_properties
    assert (system.message_id, system.delivery_attempt) == ("id-5", 1)
    handle = ReceiptHandle.parse(system.receipt_handle)
    assert (handle.broker_name, handle.queue_id, handle.queue_offset) == ("broker-a", 1, 5)
    assert (handle.commit_log_offset, handle.renewal_id) == (1005, "")
    assert last.delivery_timestamp.seconds > 1_700_000_000


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ResponseCode.PULL_NOT_FOUND, Code.MESSAGE_NOT_FOUND),
        (ResponseCode.POLLING_TIMEOUT, Code.MESSAGE_NOT_FOUND),
        (ResponseCode.POLLING_FULL, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
        (GoAway("going"), Code.MESSAGE_NOT_FOUND),
        (ServiceUnavailable("gone"), Code.INTERNAL_SERVER_ERROR),
        (ConnectionLost("gone"), Code.PROXY_TIMEOUT),
        (RequestTimeout("late"), Code.PROXY_TIMEOUT),
    ],
)
async def test_receive_without_messages_has_only_a_status(outcome: Any, code: int) -> None:
    answer = outcome if isinstance(outcome, Exception) else commands.response(outcome)
    assert await ReceiveHarness(answer).code() == code


async def test_texts_of_receives_without_messages_are_those_of_the_official_proxy() -> None:
    [response] = await ReceiveHarness(commands.response(ResponseCode.POLLING_TIMEOUT)).receive()
    assert response.status.message == "no new message"
    [response] = await ReceiveHarness().receive(filter_expression=tags("none"))
    assert response.status.message == "no match message"
    with pytest.raises(Refused, match=r"^polling full$"):
        await ReceiveHarness(commands.response(ResponseCode.POLLING_FULL, remark="why")).receive()


# Messages that are not delivered.


async def test_message_with_another_tag_is_acknowledged_instead_of_delivered() -> None:
    harness = ReceiveHarness(pop_reply(stored(5, TAGS="a"), stored(6, TAGS="b"), stored(7)))
    responses = await harness.receive(filter_expression=tags("a"))
    assert [response.message.system_properties.tag for response in responses[1:-1]] == ["a"]
    assert harness.sent == [(_ACK, "6"), (_ACK, "7")]


async def test_receive_without_a_matching_message_has_only_a_status() -> None:
    harness = ReceiveHarness(pop_reply(stored(5, TAGS="b")))
    assert await harness.code(filter_expression=tags("a")) == Code.MESSAGE_NOT_FOUND
    assert harness.sent == [(_ACK, "5")]


def failed_too_often(group: str = "group") -> RemotingCommand:
    """Return the reply to a pop with a message that has been delivered 17 times, and a new one."""
    failed = stored(5)
    object.__setattr__(failed, "reconsume_times", 17)
    return pop_reply(failed, stored(6))


async def test_message_without_attempts_left_goes_to_the_dead_letter_queue() -> None:
    harness = ReceiveHarness(failed_too_often())
    assert len(await harness.receive(auto_renew=True)) == 3
    await asyncio.sleep(0)
    # The commit log offset, then the queue offset.
    assert harness.sent == [(_SEND_BACK, "1005"), (_ACK, "5")]
    assert harness.core.fields[1]["originMsgId"] == "id-5"
    assert len(harness.renewal) == 1


async def test_no_dead_letters_with_an_assumed_group_configuration() -> None:
    harness = ReceiveHarness(failed_too_often())
    harness.core.groups["group"] = GroupConfig("group", assumed=True)
    assert len(await harness.receive()) == 4
    assert harness.sent == []


@pytest.mark.parametrize(
    "outcome",
    [ServiceUnavailable("gone"), RequestTimeout("late"), commands.response(ResponseCode.SYSTEM_ERROR, remark="no")],
)
async def test_failed_dead_letter_is_not_acknowledged(outcome: Any, caplog: pytest.LogCaptureFixture) -> None:
    harness = ReceiveHarness(failed_too_often())
    harness.settlement_reply = outcome
    with caplog.at_level(logging.WARNING):
        assert len(await harness.receive()) == 3
        await asyncio.sleep(0)
    assert harness.sent == [(_SEND_BACK, "1005")]
    assert "cannot put a message of topic orders in the dead letter queue of group group" in caplog.text


# Renewal, and streams that end early.


async def test_auto_renew_renews_the_deliveries() -> None:
    harness = ReceiveHarness()
    responses = await harness.receive(auto_renew=True)
    assert len(harness.renewal) == 2
    handles = [ReceiptHandle.parse(response.message.system_properties.receipt_handle) for response in responses[1:-1]]
    assert len({handle.renewal_id for handle in handles}) == 2
    for handle in handles:
        assert await harness.renewal.claim("group", handle) == handle


@pytest.mark.parametrize("waiting_for", ["write", "flush"])
async def test_stream_that_ends_early_returns_its_messages(waiting_for: str) -> None:
    harness = ReceiveHarness()
    receiving: asyncio.Task[Any]
    if waiting_for == "write":
        receiving = await harness.start(auto_renew=True)
    else:
        harness.rpc.context.flushed = asyncio.Event().wait
        receiving = asyncio.ensure_future(harness.receive(auto_renew=True))
        await asyncio.sleep(0.01)
    await cancel(receiving)
    assert harness.sent == [(_CHANGE, "5"), (_CHANGE, "6")]
    assert [fields["invisibleTime"] for fields in harness.core.fields[1:]] == ["1000", "1000"]
    assert len(harness.renewal) == 0


async def test_stream_that_is_read_to_its_end_returns_no_message() -> None:
    harness = ReceiveHarness()
    assert len(await harness.receive()) == 4
    assert harness.sent == []


async def test_cancelled_receive_cancels_its_pop() -> None:
    harness = ReceiveHarness()
    harness.core.pending = []
    receive_service = asyncio.ensure_future(harness.receive())
    await asyncio.sleep(0)
    receive_service.cancel()
    await asyncio.wait((receive_service,))
    assert harness.core.pending[0].cancelled()


# Lite topics.


def lite_reply(**fields: str) -> RemotingCommand:
    lite_messages = [
        stored(900 + number, __LITE_TOPIC=f"lite-{number}", INNER_MULTI_QUEUE_OFFSET=str(number)) for number in range(2)
    ]
    fields_of_reply = {"popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "999", **fields}
    return commands.success(fields_of_reply, b"".join(map(encode_message, lite_messages)))


@pytest.mark.parametrize("source", ["client", "topic"])
async def test_lite_consumer_pops_by_its_client_id(source: str) -> None:
    harness = ReceiveHarness(lite_reply(orderCountInfo="0;0 qo0%1 3"))
    if source == "client":
        harness.rpc.client.client_type = ClientType.LITE_PUSH_CONSUMER
    else:
        harness.core.topics["orders"] = TopicConfig("orders", MessageType.LITE)
    _, first, second, _ = await harness.receive(auto_renew=True, attempt_id="attempt")
    assert [code for _, code, _, _ in harness.core.handled] == [RequestCode.POP_LITE_MESSAGE]
    assert harness.core.fields[0] == {
        "clientId": "c1",
        "consumerGroup": "group",
        "topic": "orders",
        "maxMsgNum": "16",
        "invisibleTime": "60000",
        "pollTime": "20051",
        "bornTime": "0",
        "attemptId": "attempt",
        "bname": "broker-a",
    }
    handle = ReceiptHandle.parse(second.message.system_properties.receipt_handle)
    assert (handle.start_offset, handle.queue_id, handle.queue_offset, handle.is_order) == (0, 0, 1, True)
    attempts = [response.message.system_properties.delivery_attempt for response in (first, second)]
    assert attempts == [1, 4]
    assert second.message.system_properties.lite_topic == "lite-1"


async def test_undelivered_lite_messages_are_returned_to_their_lite_topic() -> None:
    harness = ReceiveHarness(lite_reply())
    harness.rpc.client.client_type = ClientType.LITE_PUSH_CONSUMER
    await cancel(await harness.start(auto_renew=True))
    assert [fields["liteTopic"] for fields in harness.core.fields[1:]] == ["lite-0", "lite-1"]
    assert [fields["suspend"] for fields in harness.core.fields[1:]] == ["true", "true"]


async def test_messages_that_arrive_with_the_cancellation_are_returned() -> None:
    harness = ReceiveHarness()
    harness.core.pending = []
    waiting = await harness.start()
    [reply], harness.core.pending = harness.core.pending, None
    reply.set_result(harness.reply_to_pop)
    # The task has not run yet, so it is cancelled without the reply.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert harness.sent == [(_CHANGE, "5"), (_CHANGE, "6")]


@pytest.mark.parametrize("answer", [commands.response(ResponseCode.PULL_NOT_FOUND), commands.success(), None])
async def test_cancelled_receive_without_messages_returns_nothing(answer: RemotingCommand | None) -> None:
    harness = ReceiveHarness()
    harness.core.pending = []
    waiting = await harness.start()
    [reply], harness.core.pending = harness.core.pending, None
    if answer is None:
        reply.set_exception(ServiceUnavailable("gone"))
    else:
        reply.set_result(answer)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert harness.sent == []


@pytest.mark.parametrize("name", ["_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS", "POP_CK", "1ST_POP_TIME"])
async def test_message_with_an_invalid_property_is_delivered_with_the_others(name: str) -> None:
    for value in ("9" * 30, "junk"):
        properties: Any = {name: value}
        harness = ReceiveHarness(pop_reply(stored(5), stored(6, **properties), stored(7)))
        responses = await harness.receive()
        assert [response.message.system_properties.queue_offset for response in responses[1:-1]] == [5, 6, 7]


async def test_messages_for_a_client_that_does_not_read_are_returned() -> None:
    harness = ReceiveHarness()
    harness.core.unread_limit = 100
    context = harness.rpc.context
    context.held, context.unread_bytes = [], 100
    context.hold = context.held.append
    harness.core.pending = []
    waiting = asyncio.ensure_future(harness.receive())
    await asyncio.sleep(0)
    [reply], harness.core.pending = harness.core.pending, None
    context.unread_bytes = 101
    reply.set_result(pop_reply(stored(5), stored(6)))
    [response] = await waiting
    assert response.status.code == Code.TOO_MANY_REQUESTS
    assert harness.sent == [(_CHANGE, "5"), (_CHANGE, "6")]
    assert context.held == []


async def test_a_client_that_does_not_read_pops_nothing() -> None:
    harness = ReceiveHarness()
    harness.core.unread_limit = 100
    harness.rpc.context.unread_bytes = 101
    harness.core.pending = []
    [response] = await harness.receive()
    assert response.status.code == Code.TOO_MANY_REQUESTS
    assert (harness.core.pending, harness.sent) == ([], [])


async def test_messages_count_as_unread_until_they_are_read() -> None:
    harness = ReceiveHarness()
    context = harness.rpc.context
    context.held, context.unread_bytes = [], 0
    context.hold = context.held.append
    receiving = await harness.start()
    [size] = context.held
    assert size == len(pop_reply(stored(5), stored(6)).body)
    await cancel(receiving)
    assert context.held == [size, -size]


async def test_a_time_that_a_producer_sets_is_not_the_brokers() -> None:
    """It would let all handles of the broker expire, or none."""
    forged = stored(5, POP_CK="0 9000000000000 60000 0 0 broker-a 1 5")
    harness = ReceiveHarness(pop_reply(forged))
    [_, response, _] = await harness.receive()
    handle = ReceiptHandle.parse(response.message.system_properties.receipt_handle)
    assert handle.pop_time == int(harness.reply_to_pop.fields["popTime"])
    assert not harness.clocks.has_passed("broker-a", 8_000_000_000_000)


async def test_subscriptions_are_recorded_of_existing_topics_only() -> None:
    harness = ReceiveHarness()
    harness.core.routes.clear()
    assert await harness.code() == Code.TOPIC_NOT_FOUND
    assert harness.rpc.client.subscriptions == {}
