"""Acknowledging, hiding, dead letters: what brokers are asked for it, and what clients are told."""

import asyncio
from typing import Any

import pytest

from grpc_gateway.consuming.ack_service import AckService
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
)
from remoting import command as commands
from remoting.batch_ack import BatchAckBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, RequestTimeout, ServiceUnavailable
from remoting.pop_offset_info import Retry
from tests.grpc_gateway.kit import FakeCore, call, receipt_handle, resource, route

pytestmark = pytest.mark.anyio

_ACK, _BATCH = RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE
_CHANGE, _BACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK
_BAD = Code.INVALID_RECEIPT_HANDLE

# What a broker answers or what becomes of the request, and the code that a settlement of it has.
_OUTCOMES = [
    (ResponseCode.SUCCESS, Code.OK),
    (ResponseCode.NO_MESSAGE, _BAD),
    (ResponseCode.MESSAGE_ILLEGAL, _BAD),
    (ResponseCode.TOPIC_NOT_EXIST, _BAD),
    (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, _BAD),
    (ResponseCode.INVALID_PARAMETER, _BAD),
    (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _BAD),
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


def saying(outcome: "ResponseCode | Exception", **fields: str) -> Any:
    """A broker that always answers this."""
    return lambda _: outcome if isinstance(outcome, Exception) else commands.response(outcome, dict(fields), b"", "why")


class Service:
    """The part under test, with all that it needs."""

    def __init__(self, answer: Any = lambda _: commands.success(), **options: Any) -> None:
        self.core = FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}, answer=answer)
        self.renewal = Renewal(self.core, GatewayOptions(**options), lambda: 1_000.0, "replica")
        self.acking = AckService(self.core, self.renewal, GatewayOptions(**options), BrokerClocks())
        self.call = call()

    @property
    def sent(self) -> list[int]:
        """The codes that brokers were asked."""
        return [code for _, code, _, _ in self.core.handled]

    async def ack(self, *handles: "ReceiptHandle | str", lite_topic: str | None = None) -> list[int]:
        """The code of the response, then those of its entries, which must be in order."""
        entries = [
            AckMessageEntry(message_id=f"id-{number}", receipt_handle=_text(handle), lite_topic=lite_topic)
            for number, handle in enumerate(handles)
        ]
        request = AckMessageRequest(group=resource("group"), topic=resource(), entries=entries)
        response = await self.acking.ack(self.call, request)
        assert [(one.message_id, one.receipt_handle) for one in response.entries] == [
            (one.message_id, one.receipt_handle) for one in entries
        ]
        return [response.status.code, *(entry.status.code for entry in response.entries)]

    async def change(self, handle: "ReceiptHandle | str", seconds: int = 30, **more: Any) -> Any:
        request = ChangeInvisibleDurationRequest(
            group=resource("group"), topic=resource(), receipt_handle=_text(handle), message_id="id", **more
        )
        request.invisible_duration.seconds = seconds
        return await self.acking.change_invisible_duration(self.call, request)

    async def forward_to_dead_letter_queue(self, handle: "ReceiptHandle | str", **more: Any) -> Any:
        request = ForwardMessageToDeadLetterQueueRequest(
            group=resource("group"), topic=resource(), receipt_handle=_text(handle), message_id="id", **more
        )
        return await self.acking.forward_to_dead_letter_queue(self.call, request)

    def add(self, offset: int = 5) -> ReceiptHandle:
        """A delivery that is renewed."""
        handle = receipt_handle(offset, renewal_id=self.renewal.new_renewal_id())
        self.renewal.add(self.call.client, "group", "orders", handle, 1)
        return handle


def _text(handle: "ReceiptHandle | str") -> str:
    return handle if isinstance(handle, str) else handle.text


# One message.


async def test_one_message_is_acknowledged_by_itself() -> None:
    service, handle = Service(), receipt_handle(5)
    assert await service.ack(handle) == [Code.OK, Code.OK]
    [(client, code, fields, body)] = service.core.handled
    assert (client, code, body) == (service.call.client, _ACK, b"")
    assert fields == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "1",
        "extraInfo": handle.text,
        "offset": "5",
        "bname": "broker-a",
    }


@pytest.mark.parametrize(("retry", "topic"), [(Retry.V1, "%RETRY%group_orders"), (Retry.V2, "%RETRY%group+orders")])
async def test_a_message_of_a_retry_topic_is_acknowledged_there(retry: Retry, topic: str) -> None:
    service = Service()
    await service.ack(receipt_handle(retry=retry.value))
    assert service.core.fields[0]["topic"] == topic


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES)
async def test_an_acknowledgement_tells_what_the_broker_said(outcome: Any, code: int) -> None:
    assert await Service(saying(outcome)).ack(receipt_handle()) == [code, code]


async def test_a_core_that_refuses_at_once_is_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()

    def refuse(channel: object, command: RemotingCommand) -> None:
        raise ServiceUnavailable("no broker")

    monkeypatch.setattr(service.core, "handle", refuse)
    assert await service.ack(receipt_handle()) == [Code.INTERNAL_SERVER_ERROR] * 2
    assert (await service.change(receipt_handle())).status.code == Code.INTERNAL_SERVER_ERROR
    assert (await service.forward_to_dead_letter_queue(receipt_handle())).status.code == Code.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize("handle", ["", "nonsense", receipt_handle(age=70), receipt_handle(age=70, order=True)])
async def test_a_handle_that_is_of_no_use_is_refused_without_asking(handle: "ReceiptHandle | str") -> None:
    service = Service()
    assert await service.ack(handle) == [_BAD, _BAD]
    for settle in (service.change, service.forward_to_dead_letter_queue):
        with pytest.raises(Refused) as refused:
            await settle(handle)
        assert refused.value.code == _BAD
    assert service.sent == []


async def test_wrong_names_are_refused() -> None:
    service = Service()
    for group, topic, code in (("a b", "orders", Code.ILLEGAL_CONSUMER_GROUP), ("g", "a b", Code.ILLEGAL_TOPIC)):
        with pytest.raises(Refused) as refused:
            await service.acking.ack(service.call, AckMessageRequest(group=resource(group), topic=resource(topic)))
        assert refused.value.code == code


async def test_nothing_to_acknowledge_is_an_error() -> None:
    assert await Service().ack() == [Code.INTERNAL_SERVER_ERROR]


# Several messages.


async def test_several_messages_of_a_broker_are_acknowledged_at_once() -> None:
    service = Service()
    pop_time = receipt_handle().pop_time
    handles = [
        receipt_handle(offset, start_offset=start, pop_time=pop_time, broker_name=broker)
        for offset, start, broker in ((5, 5, "broker-a"), (9, 8, "broker-b"), (7, 5, "broker-a"), (8, 8, "broker-b"))
    ]
    assert await service.ack(*handles) == [Code.OK] * 5
    assert service.sent == [_BATCH, _BATCH]
    found = {}
    for _, _, fields, body in service.core.handled:
        batch = BatchAckBody.decode(body)
        assert fields == {"bname": batch.broker_name}
        [ack] = batch.acks
        assert (ack.consumer_group, ack.topic, ack.queue_id, ack.pop_time) == ("group", "orders", 1, pop_time)
        found[batch.broker_name] = list(ack.queue_offsets())
    assert found == {"broker-a": [5, 7], "broker-b": [8, 9]}


async def test_a_batch_of_one_is_none() -> None:
    service = Service()
    handles: list[ReceiptHandle | str] = [
        receipt_handle(5),
        receipt_handle(6, broker_name="broker-b"),
        "nonsense",
    ]
    assert await service.ack(*handles) == [Code.MULTIPLE_RESULTS, Code.OK, Code.OK, _BAD]
    assert service.sent == [_ACK, _ACK]


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
async def test_what_a_broker_would_leave_out_of_a_batch_is_acknowledged_alone(changes: dict[str, Any]) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        return commands.success() if command.code == _BATCH else commands.response(ResponseCode.MESSAGE_ILLEGAL)

    service = Service(answer)
    codes = await service.ack(receipt_handle(1), receipt_handle(5, **changes), receipt_handle(2))
    assert codes == [Code.MULTIPLE_RESULTS, Code.OK, _BAD, Code.OK]
    assert sorted(service.sent) == [_ACK, _BATCH]


async def test_without_a_route_each_is_acknowledged_alone() -> None:
    service = Service()
    service.core.routes.clear()
    assert await service.ack(receipt_handle(1), receipt_handle(2)) == [Code.OK] * 3
    assert service.sent == [_ACK, _ACK]


async def test_lite_topics_are_acknowledged_one_by_one() -> None:
    service = Service()
    assert await service.ack(receipt_handle(1), receipt_handle(2), lite_topic="lite") == [Code.OK] * 3
    assert [fields["liteTopic"] for fields in service.core.fields] == ["lite", "lite"]
    assert await service.ack(receipt_handle(1), lite_topic="not lite") == [Code.ILLEGAL_LITE_TOPIC] * 2


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[:-1])
async def test_all_of_a_batch_have_what_the_broker_said(outcome: Any, code: int) -> None:
    if outcome == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return
    assert await Service(saying(outcome)).ack(receipt_handle(1), receipt_handle(2)) == [code] * 3


async def test_a_broker_that_knows_no_batches_is_asked_one_by_one() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        known = command.code == _ACK
        return commands.success() if known else commands.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    service = Service(answer)
    assert await service.ack(receipt_handle(1), receipt_handle(2)) == [Code.OK] * 3
    assert service.sent == [_BATCH, _ACK, _ACK]


async def test_the_same_handle_twice_is_acknowledged_twice() -> None:
    handle = receipt_handle()
    assert await Service().ack(handle, handle) == [Code.OK] * 3


# Hiding.


async def test_a_message_is_hidden_until_later() -> None:
    service = Service(saying(ResponseCode.SUCCESS, popTime="1700000000000", invisibleTime="30000", reviveQid="4"))
    handle = receipt_handle(5, start_offset=3)
    response = await service.change(handle)
    assert response.status.code == Code.OK
    assert response.receipt_handle == "5 1700000000000 30000 4 0 broker-a 1 5 1005"
    [(_, code, fields, _)] = service.core.handled
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


@pytest.mark.parametrize(("seconds", "fine"), [(0, True), (43_200, True), (-1, False), (43_201, False)])
async def test_a_message_is_hidden_for_at_most_so_long(seconds: int, fine: bool) -> None:
    service = Service(saying(ResponseCode.SUCCESS, popTime="1", invisibleTime="0", reviveQid="4"))
    if fine:
        assert (await service.change(receipt_handle(), seconds)).status.code == Code.OK
        return
    with pytest.raises(Refused) as refused:
        await service.change(receipt_handle(), seconds)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_newer_brokers_are_told_what_they_understand() -> None:
    service = Service(saying(ResponseCode.SUCCESS, popTime="1", invisibleTime="0", reviveQid="4"))
    await service.change(receipt_handle(), suspend=True, lite_topic="lite")
    assert service.core.fields[0]["suspend"] == "true"
    assert service.core.fields[0]["liteTopic"] == "lite"
    with pytest.raises(Refused) as refused:
        await service.change(receipt_handle(), lite_topic="no lite topic")
    assert refused.value.code == Code.ILLEGAL_LITE_TOPIC


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[1:])
async def test_a_message_that_could_not_be_hidden_keeps_its_handle(outcome: Any, code: int) -> None:
    handle = receipt_handle()
    response = await Service(saying(outcome)).change(handle)
    assert (response.status.code, response.receipt_handle) == (code, handle.text)


async def test_a_message_in_order_that_was_consumed_already_cannot_be_hidden() -> None:
    service = Service(saying(ResponseCode.SUCCESS, popTime="0", invisibleTime="0", reviveQid="0"))
    assert (await service.change(receipt_handle(order=True))).status.code == _BAD


async def test_an_answer_without_its_fields_is_an_error() -> None:
    assert (await Service().change(receipt_handle())).status.code in {_BAD, Code.INTERNAL_SERVER_ERROR}


# Dead letters.


async def test_a_dead_letter_is_acknowledged_once_it_is_there() -> None:
    service, handle = Service(), receipt_handle(5, retry="2")
    assert (await service.forward_to_dead_letter_queue(handle)).status.code == Code.OK
    assert service.sent == [_BACK, _ACK]
    assert service.core.fields[0] == {
        "offset": "1005",
        "group": "group",
        "delayLevel": "-1",
        "originMsgId": "id",
        "originTopic": "%RETRY%group+orders",
        "maxReconsumeTimes": "0",
        "bname": "broker-a",
    }
    assert service.core.fields[1]["extraInfo"] == handle.text


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES[1:])
async def test_what_is_no_dead_letter_yet_is_not_acknowledged(outcome: Any, code: int) -> None:
    service = Service(saying(outcome))
    assert (await service.forward_to_dead_letter_queue(receipt_handle())).status.code == code
    assert service.sent == [_BACK]


async def test_a_message_that_has_vanished_is_given_up() -> None:
    gone = commands.response(ResponseCode.SYSTEM_ERROR, remark="look message by offset failed, 1005")
    service = Service(lambda _: gone)
    assert (await service.forward_to_dead_letter_queue(receipt_handle())).status.code == _BAD


async def test_the_handle_has_to_say_where_the_message_is() -> None:
    with pytest.raises(Refused) as refused:
        await Service().forward_to_dead_letter_queue(receipt_handle(commit_log_offset=-1))
    assert refused.value.code == _BAD


async def test_a_lite_topics_dead_letter_is_acknowledged_there() -> None:
    service = Service()
    await service.forward_to_dead_letter_queue(receipt_handle(), lite_topic="lite")
    assert service.core.fields[1]["liteTopic"] == "lite"


async def test_an_acknowledgement_that_fails_after_the_fact_is_nobodys_concern() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        return commands.success() if command.code == _BACK else ServiceUnavailable("gone")

    assert (await Service(answer).forward_to_dead_letter_queue(receipt_handle())).status.code == Code.OK
    await asyncio.sleep(0)


# Renewed deliveries.


@pytest.mark.parametrize(("outcome", "code"), _OUTCOMES)
@pytest.mark.parametrize("settle", ["ack", "change", "forward_to_dead_letter_queue"])
async def test_a_delivery_is_held_until_it_is_settled(settle: str, outcome: Any, code: int) -> None:
    service = Service(saying(outcome, popTime="1", invisibleTime="0", reviveQid="0"))
    await getattr(service, settle)(service.add())
    assert len(service.renewal) == (0 if code in {Code.OK, _BAD} else 1)


async def test_a_batch_settles_what_is_held() -> None:
    service = Service()
    assert await service.ack(service.add(1), service.add(2)) == [Code.OK] * 3
    assert len(service.renewal) == 0


async def test_a_call_that_ends_before_its_answer_settles_nothing() -> None:
    service = Service()
    service.core.pending = []
    acking = asyncio.ensure_future(service.ack(service.add()))
    await asyncio.sleep(0)
    acking.cancel()
    await asyncio.wait((acking,))
    assert len(service.renewal) == 1
    service.renewal.sweep(1_100.0)
    assert service.sent == [_ACK, _CHANGE]


async def test_a_held_handle_that_has_expired_is_refused_and_not_claimed() -> None:
    service = Service()
    handle = receipt_handle(age=70, renewal_id=service.renewal.new_renewal_id())
    service.renewal.add(service.call.client, "group", "orders", handle, 1)
    assert await service.ack(handle) == [_BAD, _BAD]
    service.renewal.sweep(1_100.0)
    assert service.sent == [_CHANGE]


async def test_the_entries_of_a_request_are_bounded() -> None:
    service = Service()
    handles = [receipt_handle(number) for number in range(1_025)]
    assert (await service.ack(*handles[:-1]))[0] == Code.OK
    asked = len(service.sent)
    with pytest.raises(Refused) as refused:
        await service.ack(*handles)
    assert refused.value.code == Code.BAD_REQUEST
    assert len(service.sent) == asked
