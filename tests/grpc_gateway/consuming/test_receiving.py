"""ReceiveMessage: what brokers are asked, what the stream holds, and what becomes of the rest."""

import asyncio
import logging
from typing import Any

import pytest

from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.receive_service import ReceiveService
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused, status_from_error
from protos.apache.rocketmq.v2.definition_pb2 import (
    Broker,
    ClientType,
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
)
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, RemotingError, RequestTimeout, ServiceUnavailable, TopicNotExist
from remoting.messages import encode_message
from remoting.properties import MessageType
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.grpc_gateway.kit import FakeCore, call, pop_answer, resource, route, stored

pytestmark = pytest.mark.anyio

_POP, _ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE
_CHANGE, _BACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK


class Service:
    """The part under test, with all that it needs. answer: what POP is answered."""

    def __init__(self, answer: Any = None, remaining: float | None = None, **options: Any) -> None:
        self.popped = pop_answer(stored(5), stored(6)) if answer is None else answer
        self.core = FakeCore(
            routes={"orders": route("orders", "broker-a", "broker-b")},
            groups={"group": GroupConfig("group")},
            topics={"orders": TopicConfig("orders")},
            answer=self._answer,
        )
        self.renewal = Renewal(self.core, GatewayOptions(**options), lambda: 1_000.0, "replica")
        self.receiving = ReceiveService(self.core, self.renewal, GatewayOptions(**options), BrokerClocks())
        self.call = call(remaining=remaining)
        self.others: Any = commands.success()

    def _answer(self, command: RemotingCommand) -> Any:
        return self.popped if command.code in {_POP, RequestCode.POP_LITE_MESSAGE} else self.others

    @property
    def sent(self) -> list[tuple[int, str]]:
        """Code and offset of all that brokers were asked besides the POP."""
        return [(code, fields["offset"]) for _, code, fields, _ in self.core.handled[1:]]

    def stream(self, **fields: Any) -> Any:
        return self.receiving.receive(self.call, request(**fields))

    async def receive(self, **fields: Any) -> list[ReceiveMessageResponse]:
        return [response async for response in self.stream(**fields)]

    async def code(self, **fields: Any) -> int:
        """Return the code of a receive without messages; that of an error, as the messaging service maps it."""
        try:
            [response] = await self.receive(**fields)
        except (Refused, RemotingError) as error:
            return status_from_error(error).code
        return response.status.code

    async def asked(self, **fields: Any) -> dict[str, str]:
        """The ext fields of the POP."""
        await self.receive(**fields)
        return self.core.fields[0]


def request(
    *, invisible: int = 30, wait: float | None = None, queue: int = -1, broker: str = "broker-a", **fields: Any
) -> ReceiveMessageRequest:
    """A request of a simple consumer."""
    made = ReceiveMessageRequest(
        group=resource("group"),
        message_queue=MessageQueue(topic=resource(), id=queue, broker=Broker(name=broker)),
        batch_size=fields.pop("batch_size", 16),
        **fields,
    )
    if not made.auto_renew:
        made.invisible_duration.seconds = invisible
    if wait is not None:
        made.long_polling_timeout.FromMilliseconds(int(wait * 1000))
    return made


def tags(expression: str) -> FilterExpression:
    return FilterExpression(type=FilterType.TAG, expression=expression)


# What is asked.


async def test_a_broker_is_asked_for_messages() -> None:
    assert await Service().asked(filter_expression=tags("a||b"), attempt_id="attempt") == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "-1",
        "maxMsgNums": "16",
        "invisibleTime": "30000",
        "pollTime": "20000",
        "bornTime": "0",
        "initMode": "1",
        "expType": "TAG",
        "exp": "a||b",
        "order": "false",
        "attemptId": "attempt",
        "bname": "broker-a",
    }


async def test_a_filter_may_be_sql() -> None:
    fields = await Service().asked(filter_expression=FilterExpression(type=FilterType.SQL, expression="a > 1"))
    assert (fields["expType"], fields["exp"]) == ("SQL92", "a > 1")


@pytest.mark.parametrize(("size", "asked"), [(-1, "1"), (0, "1"), (1, "1"), (32, "32"), (1_000, "32")])
async def test_a_broker_gives_at_most_so_many(size: int, asked: str) -> None:
    assert (await Service().asked(batch_size=size))["maxMsgNums"] == asked


@pytest.mark.parametrize(
    ("wait", "remaining", "asked"),
    [
        (None, None, "20000"),
        (None, 30.0, "20000"),
        (None, 10.0, "9000"),
        (10, None, "10000"),
        (10, 13.0, "10000"),
        (10, 8.0, "7000"),
        (1, None, "5000"),
        (1, 4.0, "3000"),
        (40, 40.0, "20000"),
        (20, 1.5, "500"),
    ],
)
async def test_a_broker_waits_within_bounds(wait: float | None, remaining: float | None, asked: str) -> None:
    assert (await Service(remaining=remaining).asked(wait=wait))["pollTime"] == asked


async def test_a_deadline_without_any_time_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        await Service(remaining=0.9).receive()
    assert refused.value.code == Code.ILLEGAL_POLLING_TIME


@pytest.mark.parametrize("invisible", [0, 9, 43_201])
async def test_an_invisible_duration_has_bounds(invisible: int) -> None:
    with pytest.raises(Refused) as refused:
        await Service().receive(invisible=invisible)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_a_push_consumer_names_no_invisible_duration() -> None:
    assert (await Service().asked(auto_renew=True))["invisibleTime"] == "60000"


async def test_without_renewal_everybody_has_to_name_one() -> None:
    with pytest.raises(Refused) as refused:
        await Service(auto_renew=False).receive(auto_renew=True)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_a_group_with_order_is_asked_in_order() -> None:
    service = Service()
    service.core.groups["group"] = GroupConfig("group", orderly=True)
    assert (await service.asked())["order"] == "true"


@pytest.mark.parametrize(
    ("orderly", "renew", "queue", "asked"),
    [
        (True, True, 3, "3"),
        (True, True, 4, "-1"),
        (True, True, -1, "-1"),
        # A simple consumer names any queue of the route.
        (True, False, 3, "-1"),
        (False, True, 3, "-1"),
    ],
)
async def test_only_an_assigned_queue_is_kept_to(orderly: bool, renew: bool, queue: int, asked: str) -> None:
    service = Service()
    service.core.groups["group"] = GroupConfig("group", orderly=orderly)
    assert (await service.asked(auto_renew=renew, queue=queue))["queueId"] == asked


@pytest.mark.parametrize("broker", ["", "unknown"])
async def test_without_a_known_broker_each_has_its_turn(broker: str) -> None:
    service = Service()
    for _ in range(4):
        await service.receive(broker=broker)
    assert [fields["bname"] for fields in service.core.fields] == ["broker-a", "broker-b"] * 2


async def test_a_topic_that_nobody_may_read_is_forbidden() -> None:
    service = Service()
    service.core.routes["orders"] = route("orders", perm=2)
    with pytest.raises(Refused) as refused:
        await service.receive()
    assert refused.value.code == Code.FORBIDDEN


async def test_what_is_not_at_hand_is_fetched() -> None:
    service = Service()
    service.core.groups.clear()
    service.core.topics.clear()
    assert len(await service.receive()) == 4
    service.core.routes.clear()
    with pytest.raises(TopicNotExist):
        await service.receive()


async def test_the_client_is_known_to_be_subscribed() -> None:
    service = Service()
    await service.receive(filter_expression=tags("a"))
    assert service.call.client.subscriptions == {"orders": tags("a")}


# What is answered.


async def test_status_messages_and_the_time_are_answered() -> None:
    status, first, second, last = await Service().receive()
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
async def test_without_messages_there_is_nothing_but_a_status(outcome: Any, code: int) -> None:
    answer = outcome if isinstance(outcome, Exception) else commands.response(outcome)
    assert await Service(answer).code() == code


# What is not for the client.


async def test_a_tag_that_only_has_the_same_hash_is_acknowledged() -> None:
    service = Service(pop_answer(stored(5, TAGS="a"), stored(6, TAGS="b"), stored(7)))
    responses = await service.receive(filter_expression=tags("a"))
    assert [one.message.system_properties.tag for one in responses[1:-1]] == ["a"]
    assert service.sent == [(_ACK, "6"), (_ACK, "7")]


async def test_where_nothing_matches_there_is_nothing() -> None:
    service = Service(pop_answer(stored(5, TAGS="b")))
    assert await service.code(filter_expression=tags("a")) == Code.MESSAGE_NOT_FOUND
    assert service.sent == [(_ACK, "5")]


def too_often(group: str = "group") -> RemotingCommand:
    """A message that was handed out 17 times in vain, and a fresh one."""
    failed = stored(5)
    object.__setattr__(failed, "reconsume_times", 17)
    return pop_answer(failed, stored(6))


async def test_what_failed_too_often_goes_to_the_dead_letter_queue() -> None:
    service = Service(too_often())
    assert len(await service.receive(auto_renew=True)) == 3
    await asyncio.sleep(0)
    # The commit log offset, then the queue offset.
    assert service.sent == [(_BACK, "1005"), (_ACK, "5")]
    assert service.core.fields[1]["originMsgId"] == "id-5"
    assert len(service.renewal) == 1


async def test_nothing_is_buried_before_a_broker_has_said_how_often_to_try() -> None:
    service = Service(too_often())
    service.core.groups["group"] = GroupConfig("group", assumed=True)
    assert len(await service.receive()) == 4
    assert service.sent == []


@pytest.mark.parametrize(
    "outcome",
    [ServiceUnavailable("gone"), RequestTimeout("late"), commands.response(ResponseCode.SYSTEM_ERROR, remark="no")],
)
async def test_what_is_not_in_the_dead_letter_queue_is_not_lost(outcome: Any, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(too_often())
    service.others = outcome
    with caplog.at_level(logging.WARNING):
        assert len(await service.receive()) == 3
        await asyncio.sleep(0)
    assert service.sent == [(_BACK, "1005")]
    assert "cannot put a message of topic orders in the dead letter queue of group group" in caplog.text


# Renewal, and streams that end early.


async def test_what_is_to_be_renewed_is_held() -> None:
    service = Service()
    responses = await service.receive(auto_renew=True)
    assert len(service.renewal) == 2
    handles = [ReceiptHandle.parse(one.message.system_properties.receipt_handle) for one in responses[1:-1]]
    assert len({handle.renewal_id for handle in handles}) == 2
    for handle in handles:
        assert await service.renewal.claim("group", handle) == handle


@pytest.mark.parametrize("read", [1, 2, 3, 4])
async def test_a_stream_that_ends_early_gives_back_what_it_had(read: int) -> None:
    service = Service()
    stream = service.stream(auto_renew=True)
    for _ in range(read):
        await anext(stream)
    await stream.aclose()
    assert service.sent == [(_CHANGE, "5"), (_CHANGE, "6")]
    assert [fields["invisibleTime"] for fields in service.core.fields[1:]] == ["1000", "1000"]
    assert len(service.renewal) == 0


async def test_a_stream_that_is_read_to_its_end_gives_nothing_back() -> None:
    service = Service()
    assert len(await service.receive()) == 4
    assert service.sent == []


async def test_a_cancelled_receive_cancels_its_poll() -> None:
    service = Service()
    service.core.pending = []
    receiving = asyncio.ensure_future(service.receive())
    await asyncio.sleep(0)
    receiving.cancel()
    await asyncio.wait((receiving,))
    assert service.core.pending[0].cancelled()


# LiteSubscriptionService topics.


def lite_answer(**fields: str) -> RemotingCommand:
    found = [
        stored(900 + number, __LITE_TOPIC=f"lite-{number}", INNER_MULTI_QUEUE_OFFSET=str(number)) for number in range(2)
    ]
    given = {"popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "999", **fields}
    return commands.success(given, b"".join(map(encode_message, found)))


@pytest.mark.parametrize("known_by", ["client", "topic"])
async def test_a_lite_consumer_receives_by_its_client_id(known_by: str) -> None:
    service = Service(lite_answer(orderCountInfo="0;0 qo0%1 3"))
    if known_by == "client":
        service.call.client.client_type = ClientType.LITE_PUSH_CONSUMER
    else:
        service.core.topics["orders"] = TopicConfig("orders", MessageType.LITE)
    _, first, second, _ = await service.receive(auto_renew=True, attempt_id="attempt")
    assert [code for _, code, _, _ in service.core.handled] == [RequestCode.POP_LITE_MESSAGE]
    assert service.core.fields[0] == {
        "clientId": "c1",
        "consumerGroup": "group",
        "topic": "orders",
        "maxMsgNum": "16",
        "invisibleTime": "60000",
        "pollTime": "20000",
        "bornTime": "0",
        "attemptId": "attempt",
        "bname": "broker-a",
    }
    handle = ReceiptHandle.parse(second.message.system_properties.receipt_handle)
    assert (handle.start_offset, handle.queue_id, handle.queue_offset, handle.is_order) == (0, 0, 1, True)
    attempts = [one.message.system_properties.delivery_attempt for one in (first, second)]
    assert attempts == [1, 4]
    assert second.message.system_properties.lite_topic == "lite-1"


async def test_what_a_lite_consumer_did_not_get_is_given_back_to_its_lite_topic() -> None:
    service = Service(lite_answer())
    service.call.client.client_type = ClientType.LITE_PUSH_CONSUMER
    stream = service.stream(auto_renew=True)
    await anext(stream)
    await stream.aclose()
    assert [fields["liteTopic"] for fields in service.core.fields[1:]] == ["lite-0", "lite-1"]
    assert [fields["suspend"] for fields in service.core.fields[1:]] == ["true", "true"]


async def test_what_comes_in_the_turn_in_which_the_client_goes_is_given_back() -> None:
    service = Service()
    service.core.pending = []
    stream = service.stream()
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    [reply], service.core.pending = service.core.pending, None
    reply.set_result(service.popped)
    # The task has not been woken yet: it is cancelled, and never sees the answer.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert service.sent == [(_CHANGE, "5"), (_CHANGE, "6")]


@pytest.mark.parametrize("answer", [commands.response(ResponseCode.PULL_NOT_FOUND), commands.success(), None])
async def test_a_client_that_goes_without_messages_gives_nothing_back(answer: RemotingCommand | None) -> None:
    service = Service()
    service.core.pending = []
    stream = service.stream()
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    [reply], service.core.pending = service.core.pending, None
    if answer is None:
        reply.set_exception(ServiceUnavailable("gone"))
    else:
        reply.set_result(answer)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert service.sent == []


@pytest.mark.parametrize("name", ["_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS", "POP_CK", "1ST_POP_TIME"])
async def test_a_message_with_nonsense_in_a_property_does_not_keep_the_others_back(name: str) -> None:
    for nonsense in ("9" * 30, "junk"):
        odd: Any = {name: nonsense}
        service = Service(pop_answer(stored(5), stored(6, **odd), stored(7)))
        found = await service.receive()
        assert [one.message.system_properties.queue_offset for one in found[1:-1]] == [5, 6, 7]
