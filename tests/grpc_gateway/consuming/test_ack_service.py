"""Acknowledgements, changes of the invisible duration, and dead letters."""

import asyncio
from typing import Any

import pytest

from grpc_gateway.consuming.ack_service import AckService
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from grpc_gateway.unary import parsed
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
)
from remoting import command as commands
from remoting.batch_ack import BatchAckBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, RequestTimeout, ServiceUnavailable
from remoting.pop_offset_info import Retry
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import receipt_handle, resource, route

pytestmark = pytest.mark.anyio

_ACK, _BATCH = RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE
_CHANGE, _SEND_BACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK
_INVALID_HANDLE = Code.INVALID_RECEIPT_HANDLE

# Reply or error of the request to the broker, and v2 code of the settlement.
_OUTCOMES = [
    (ResponseCode.SUCCESS, Code.OK),
    (ResponseCode.NO_MESSAGE, _INVALID_HANDLE),
    (ResponseCode.MESSAGE_ILLEGAL, _INVALID_HANDLE),
    (ResponseCode.TOPIC_NOT_EXIST, _INVALID_HANDLE),
    (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, _INVALID_HANDLE),
    (ResponseCode.INVALID_PARAMETER, _INVALID_HANDLE),
    (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _INVALID_HANDLE),
    (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    (ResponseCode.SERVICE_NOT_AVAILABLE, Code.INTERNAL_SERVER_ERROR),
    (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
    (ResponseCode.FLOW_CONTROL, Code.TOO_MANY_REQUESTS),
    (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
    (ServiceUnavailable("no broker"), Code.INTERNAL_SERVER_ERROR),
    (RequestTimeout("late"), Code.PROXY_TIMEOUT),
    (ConnectionLost("lost"), Code.PROXY_TIMEOUT),
    (GoAway("going"), Code.INTERNAL_SERVER_ERROR),
]


def always(outcome: "ResponseCode | Exception", **fields: str) -> Any:
    """Return a broker that always answers with this outcome."""
    return lambda _: outcome if isinstance(outcome, Exception) else commands.response(outcome, dict(fields), b"", "why")


class AckHarness:
    """An AckService with its core and renewal."""

    def __init__(self, answer: Any = lambda _: commands.success(), **options: Any) -> None:
        self.core = FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}, answer=answer)
        self.renewal = Renewal(self.core, GatewayOptions(**options), lambda: 1_000.0, "replica")
        self.ack_service = AckService(self.core, self.renewal, GatewayOptions(**options), BrokerClocks(0.5))
        self.rpc = make_rpc()

    @property
    def sent(self) -> list[int]:
        """The request codes of all commands to brokers."""
        return [code for _, code, _, _ in self.core.handled]

    async def ack(self, *handles: "ReceiptHandle | str", lite_topic: str | None = None) -> list[int]:
        """Acknowledge, and return the code of the response and those of its entries."""
        entries = [
            AckMessageEntry(message_id=f"id-{number}", receipt_handle=_text(handle), lite_topic=lite_topic)
            for number, handle in enumerate(handles)
        ]
        request = AckMessageRequest(group=resource("group"), topic=resource(), entries=entries)
        response = parsed(AckMessageResponse, await self.ack_service.ack(self.rpc, request))
        assert [(entry.message_id, entry.receipt_handle) for entry in response.entries] == [
            (item.message_id, item.receipt_handle) for item in entries
        ]
        return [response.status.code, *(entry.status.code for entry in response.entries)]

    async def change(self, handle: "ReceiptHandle | str", seconds: int = 30, **more: Any) -> Any:
        request = ChangeInvisibleDurationRequest(
            group=resource("group"), topic=resource(), receipt_handle=_text(handle), message_id="id", **more
        )
        request.invisible_duration.seconds = seconds
        return await self.ack_service.change_invisible_duration(self.rpc, request)

    async def forward_to_dead_letter_queue(self, handle: "ReceiptHandle | str", **more: Any) -> Any:
        request = ForwardMessageToDeadLetterQueueRequest(
            group=resource("group"), topic=resource(), receipt_handle=_text(handle), message_id="id", **more
        )
        return await self.ack_service.forward_to_dead_letter_queue(self.rpc, request)

    def add(self, offset: int = 5) -> ReceiptHandle:
        """Add a renewed delivery and return its handle."""
        handle = receipt_handle(offset, renewal_id=self.renewal.new_renewal_id())
        self.renewal.add(self.rpc.client, "group", "orders", handle, 1)
        return handle


def _text(handle: "ReceiptHandle | str") -> str:
    return handle if isinstance(handle, str) else handle.text


# AckMessage with one entry.


async def test_single_message_is_acknowledged_with_ack_message() -> None:
    harness, handle = AckHarness(), receipt_handle(5)
    assert await harness.ack(handle) == [Code.OK, Code.OK]
    [(client, code, fields, body)] = harness.core.handled
    assert (client, code, body) == (harness.rpc.client, _ACK, b"")
    assert fields == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "1",
        "extraInfo": handle.text,
        "offset": "5",
        "bname": "broker-a",
    }


@pytest.mark.parametrize(("retry", "topic"), [(Retry.V1, "%RETRY%group_orders"), (Retry.V2, "%RETRY%group+orders")])
async def test_message_of_a_retry_topic_is_acknowledged_in_that_topic(retry: Retry, topic: str) -> None:
    harness = AckHarness()
    await harness.ack(receipt_handle(retry=retry.value))
    assert harness.core.fields[0]["topic"] == topic


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES)
async def test_acknowledgement_status_follows_the_reply_of_the_broker(outcome: Any, code: int) -> None:
    assert await AckHarness(always(outcome)).ack(receipt_handle()) == [code, code]


async def test_settlement_that_the_core_rejects_has_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = AckHarness()

    def reject(channel: object, command: RemotingCommand) -> None:
        raise ServiceUnavailable("no broker")

    monkeypatch.setattr(harness.core, "handle", reject)
    assert await harness.ack(receipt_handle()) == [Code.INTERNAL_SERVER_ERROR] * 2
    assert (await harness.change(receipt_handle())).status.code == Code.INTERNAL_SERVER_ERROR
    assert (await harness.forward_to_dead_letter_queue(receipt_handle())).status.code == Code.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize("handle", ["", "nonsense", receipt_handle(age=70), receipt_handle(age=70, order=True)])
async def test_invalid_or_expired_handle_is_rejected_without_a_request(handle: "ReceiptHandle | str") -> None:
    harness = AckHarness()
    assert await harness.ack(handle) == [_INVALID_HANDLE, _INVALID_HANDLE]
    with pytest.raises(Refused) as refused:
        await harness.change(handle)
    assert refused.value.code == _INVALID_HANDLE
    assert harness.sent == []


async def test_invalid_names_are_rejected() -> None:
    harness = AckHarness()
    for group, topic, code in (("a b", "orders", Code.ILLEGAL_CONSUMER_GROUP), ("g", "a b", Code.ILLEGAL_TOPIC)):
        with pytest.raises(Refused) as refused:
            await harness.ack_service.ack(harness.rpc, AckMessageRequest(group=resource(group), topic=resource(topic)))
        assert refused.value.code == code


async def test_request_without_entries_is_an_error() -> None:
    assert await AckHarness().ack() == [Code.INTERNAL_SERVER_ERROR]


# AckMessage with several entries.


async def test_messages_of_one_broker_are_acknowledged_in_a_batch() -> None:
    harness = AckHarness()
    pop_time = receipt_handle().pop_time
    handles = [
        receipt_handle(offset, start_offset=start, pop_time=pop_time, broker_name=broker)
        for offset, start, broker in ((5, 5, "broker-a"), (9, 8, "broker-b"), (7, 5, "broker-a"), (8, 8, "broker-b"))
    ]
    assert await harness.ack(*handles) == [Code.OK] * 5
    assert harness.sent == [_BATCH, _BATCH]
    offsets = {}
    for _, _, fields, body in harness.core.handled:
        batch = BatchAckBody.decode(body)
        assert fields == {"bname": batch.broker_name}
        [ack] = batch.acks
        assert (ack.consumer_group, ack.topic, ack.queue_id, ack.pop_time) == ("group", "orders", 1, pop_time)
        offsets[batch.broker_name] = list(ack.queue_offsets())
    assert offsets == {"broker-a": [5, 7], "broker-b": [8, 9]}


async def test_only_message_of_a_broker_is_acknowledged_without_a_batch() -> None:
    harness = AckHarness()
    handles: list[ReceiptHandle | str] = [
        receipt_handle(5),
        receipt_handle(6, broker_name="broker-b"),
        "nonsense",
    ]
    assert await harness.ack(*handles) == [Code.MULTIPLE_RESULTS, Code.OK, Code.OK, _INVALID_HANDLE]
    assert harness.sent == [_ACK, _ACK]


@pytest.mark.parametrize(
    "changes",
    [
        {"order": True},
        {"queue_id": 4},
        {"broker_name": "broker-z"},
        {"start_offset": 6},
        {"start_offset": 0, "queue_offset": 1_000_000},
    ],
)
async def test_message_that_a_broker_would_skip_in_a_batch_is_acknowledged_separately(changes: dict[str, Any]) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        return commands.success() if command.code == _BATCH else commands.response(ResponseCode.MESSAGE_ILLEGAL)

    harness = AckHarness(answer)
    codes = await harness.ack(receipt_handle(1), receipt_handle(5, **changes), receipt_handle(2))
    assert codes == [Code.MULTIPLE_RESULTS, Code.OK, _INVALID_HANDLE, Code.OK]
    assert sorted(harness.sent) == [_ACK, _BATCH]


async def test_messages_without_a_cached_route_are_acknowledged_separately() -> None:
    harness = AckHarness()
    harness.core.routes.clear()
    assert await harness.ack(receipt_handle(1), receipt_handle(2)) == [Code.OK] * 3
    assert harness.sent == [_ACK, _ACK]


async def test_messages_of_lite_topics_are_acknowledged_separately() -> None:
    harness = AckHarness()
    assert await harness.ack(receipt_handle(1), receipt_handle(2), lite_topic="lite") == [Code.OK] * 3
    assert [fields["liteTopic"] for fields in harness.core.fields] == ["lite", "lite"]
    assert await harness.ack(receipt_handle(1), lite_topic="not lite") == [Code.ILLEGAL_LITE_TOPIC] * 2


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[:-1])
async def test_all_entries_of_a_batch_have_the_status_of_its_reply(outcome: Any, code: int) -> None:
    if outcome == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return
    assert await AckHarness(always(outcome)).ack(receipt_handle(1), receipt_handle(2)) == [code] * 3


async def test_broker_without_batch_support_gets_separate_acknowledgements() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        supported = command.code == _ACK
        return commands.success() if supported else commands.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    harness = AckHarness(answer)
    assert await harness.ack(receipt_handle(1), receipt_handle(2)) == [Code.OK] * 3
    assert harness.sent == [_BATCH, _ACK, _ACK]


async def test_duplicate_handles_are_both_acknowledged() -> None:
    handle = receipt_handle()
    assert await AckHarness().ack(handle, handle) == [Code.OK] * 3


# ChangeInvisibleDuration.


async def test_change_of_the_invisible_duration_returns_the_new_handle() -> None:
    harness = AckHarness(always(ResponseCode.SUCCESS, popTime="1700000000000", invisibleTime="30000", reviveQid="4"))
    handle = receipt_handle(5, start_offset=3)
    response = await harness.change(handle)
    assert response.status.code == Code.OK
    assert response.receipt_handle == "5 1700000000000 30000 4 0 broker-a 1 5 1005"
    [(_, code, fields, _)] = harness.core.handled
    assert code == _CHANGE
    assert fields == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "1",
        "extraInfo": handle.text,
        "offset": "5",
        "invisibleTime": "30000",
        "bname": "broker-a",
    }


@pytest.mark.parametrize(("seconds", "valid"), [(0, True), (43_200, True), (-1, False), (43_201, False)])
async def test_invisible_duration_has_bounds(seconds: int, valid: bool) -> None:
    harness = AckHarness(always(ResponseCode.SUCCESS, popTime="1", invisibleTime="0", reviveQid="4"))
    if valid:
        assert (await harness.change(receipt_handle(), seconds)).status.code == Code.OK
        return
    with pytest.raises(Refused) as refused:
        await harness.change(receipt_handle(), seconds)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_suspend_and_lite_topic_are_sent_to_the_broker() -> None:
    harness = AckHarness(always(ResponseCode.SUCCESS, popTime="1", invisibleTime="0", reviveQid="4"))
    await harness.change(receipt_handle(), suspend=True, lite_topic="lite")
    assert harness.core.fields[0]["suspend"] == "true"
    assert harness.core.fields[0]["liteTopic"] == "lite"
    with pytest.raises(Refused) as refused:
        await harness.change(receipt_handle(), lite_topic="no lite topic")
    assert refused.value.code == Code.ILLEGAL_LITE_TOPIC


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[1:])
async def test_failed_change_of_the_invisible_duration_returns_the_same_handle(outcome: Any, code: int) -> None:
    handle = receipt_handle()
    response = await AckHarness(always(outcome)).change(handle)
    assert (response.status.code, response.receipt_handle) == (code, handle.text)


async def test_change_for_a_consumed_message_in_order_is_rejected() -> None:
    harness = AckHarness(always(ResponseCode.SUCCESS, popTime="0", invisibleTime="0", reviveQid="0"))
    assert (await harness.change(receipt_handle(order=True))).status.code == _INVALID_HANDLE


async def test_reply_to_a_change_without_its_fields_is_an_error() -> None:
    assert (await AckHarness().change(receipt_handle())).status.code in {_INVALID_HANDLE, Code.INTERNAL_SERVER_ERROR}


# ForwardMessageToDeadLetterQueue.


async def test_dead_letter_is_acknowledged_after_it_is_stored() -> None:
    harness, handle = AckHarness(), receipt_handle(5, retry="2")
    assert (await harness.forward_to_dead_letter_queue(handle)).status.code == Code.OK
    assert harness.sent == [_SEND_BACK, _ACK]
    assert harness.core.fields[0] == {
        "offset": "1005",
        "group": "group",
        "delayLevel": "-1",
        "originMsgId": "id",
        "originTopic": "%RETRY%group+orders",
        "maxReconsumeTimes": "0",
        "bname": "broker-a",
    }
    assert harness.core.fields[1]["extraInfo"] == handle.text


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[1:])
async def test_failed_dead_letter_is_not_acknowledged(outcome: Any, code: int) -> None:
    harness = AckHarness(always(outcome))
    assert (await harness.forward_to_dead_letter_queue(receipt_handle())).status.code == code
    assert harness.sent == [_SEND_BACK]


async def test_dead_letter_of_a_deleted_message_has_an_invalid_handle() -> None:
    deleted = commands.response(ResponseCode.SYSTEM_ERROR, remark="look message by offset failed, 1005")
    harness = AckHarness(lambda _: deleted)
    assert (await harness.forward_to_dead_letter_queue(receipt_handle())).status.code == _INVALID_HANDLE


@pytest.mark.parametrize("handle", ["", "nonsense", receipt_handle(commit_log_offset=-1)])
async def test_dead_letter_needs_a_handle_with_a_commit_log_offset(handle: "ReceiptHandle | str") -> None:
    harness = AckHarness()
    with pytest.raises(Refused) as refused:
        await harness.forward_to_dead_letter_queue(handle)
    assert refused.value.code == _INVALID_HANDLE
    assert harness.sent == []


@pytest.mark.parametrize("order", [False, True])
async def test_dead_letter_of_an_expired_delivery_is_stored(order: bool) -> None:
    harness = AckHarness()
    handle = receipt_handle(age=70, order=order)
    assert (await harness.forward_to_dead_letter_queue(handle)).status.code == Code.OK
    assert harness.sent == [_SEND_BACK, _ACK]


async def test_dead_letter_of_an_expired_delivery_ends_its_renewal() -> None:
    harness = AckHarness()
    handle = receipt_handle(age=70, renewal_id=harness.renewal.new_renewal_id())
    harness.renewal.add(harness.rpc.client, "group", "orders", handle, 1)
    assert (await harness.forward_to_dead_letter_queue(handle)).status.code == Code.OK
    assert len(harness.renewal) == 0


async def test_dead_letter_of_a_lite_topic_is_acknowledged_in_that_topic() -> None:
    harness = AckHarness()
    await harness.forward_to_dead_letter_queue(receipt_handle(), lite_topic="lite")
    assert harness.core.fields[1]["liteTopic"] == "lite"


async def test_dead_letter_is_ok_even_if_its_acknowledgement_fails() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        return commands.success() if command.code == _SEND_BACK else ServiceUnavailable("deleted")

    assert (await AckHarness(answer).forward_to_dead_letter_queue(receipt_handle())).status.code == Code.OK
    await asyncio.sleep(0)


# Renewed deliveries.


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES)
@pytest.mark.parametrize("method", ["ack", "change", "forward_to_dead_letter_queue"])
async def test_delivery_is_renewed_until_a_final_settlement(method: str, outcome: Any, code: int) -> None:
    harness = AckHarness(always(outcome, popTime="1", invisibleTime="0", reviveQid="0"))
    await getattr(harness, method)(harness.add())
    assert len(harness.renewal) == (0 if code in {Code.OK, _INVALID_HANDLE} else 1)


async def test_batch_ends_the_renewal_of_its_deliveries() -> None:
    harness = AckHarness()
    assert await harness.ack(harness.add(1), harness.add(2)) == [Code.OK] * 3
    assert len(harness.renewal) == 0


async def test_cancelled_acknowledgement_leaves_the_delivery_renewed() -> None:
    harness = AckHarness()
    harness.core.pending = []
    ack_service = asyncio.ensure_future(harness.ack(harness.add()))
    await asyncio.sleep(0)
    ack_service.cancel()
    await asyncio.wait((ack_service,))
    assert len(harness.renewal) == 1
    harness.renewal.sweep(1_100.0)
    assert harness.sent == [_ACK, _CHANGE]


async def test_acknowledgements_that_are_cancelled_before_they_are_sent_leave_their_deliveries_renewed() -> None:
    harness = AckHarness()
    harness.core.routes.clear()
    acks = asyncio.ensure_future(harness.ack(harness.add(1), harness.add(2)))
    # The deliveries are claimed, and the tasks that send have not begun.
    await asyncio.sleep(0)
    acks.cancel()
    await asyncio.wait((acks,))
    assert harness.sent == []
    harness.renewal.sweep(1_100.0)
    assert harness.sent == [_CHANGE, _CHANGE]


@pytest.mark.parametrize("method", ["ack", "change", "forward_to_dead_letter_queue"])
async def test_delivery_for_which_no_command_can_be_made_stays_renewed(method: str) -> None:
    harness = AckHarness()
    handle = harness.add()
    handle.retry = "unknown"
    with pytest.raises(ValueError, match="unknown"):
        await getattr(harness, method)(handle)
    handle.retry = Retry.NORMAL.value
    harness.renewal.sweep(1_100.0)
    assert harness.sent == [_CHANGE]


async def test_expired_handle_of_a_renewed_delivery_is_rejected_and_not_claimed() -> None:
    harness = AckHarness()
    handle = receipt_handle(age=70, renewal_id=harness.renewal.new_renewal_id())
    harness.renewal.add(harness.rpc.client, "group", "orders", handle, 1)
    assert await harness.ack(handle) == [_INVALID_HANDLE, _INVALID_HANDLE]
    harness.renewal.sweep(1_100.0)
    assert harness.sent == [_CHANGE]


async def test_number_of_entries_is_limited() -> None:
    harness = AckHarness()
    handles = [receipt_handle(number) for number in range(1_025)]
    assert (await harness.ack(*handles[:-1]))[0] == Code.OK
    sent_before = len(harness.sent)
    with pytest.raises(Refused) as refused:
        await harness.ack(*handles)
    assert refused.value.code == Code.BAD_REQUEST
    assert len(harness.sent) == sent_before
