import asyncio
import gzip
import time
import zlib
from collections import Counter
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.send_service import SendService
from grpc_gateway.response_status import Refused
from grpc_gateway.transaction_id import TransactionId
from grpc_gateway.unary import parsed
from protos.apache.rocketmq.v2.definition_pb2 import Code, Encoding, Message, MessageType
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RemotingError, RequestTimeout, ServiceUnavailable
from remoting.topic_group_config import TopicConfig
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import route
from tests.grpc_gateway.producing.sends import OFFSET_ID, STORED, message

pytestmark = pytest.mark.anyio


def core_with(**answers: RemotingCommand | Exception) -> FakeCore:
    """Return a core with these brokers (a: broker-a) and their replies."""

    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        outcome = answers[command.fields["n"][-1]]
        return (
            outcome
            if isinstance(outcome, Exception)
            else commands.response(outcome.code, dict(outcome.fields), b"", "why")
        )

    return FakeCore(routes={"orders": route("orders", *(f"broker-{name}" for name in answers))}, answer=answer)


async def send(core: FakeCore, *messages: Message, options: GatewayOptions | None = None) -> SendMessageResponse:
    request = SendMessageRequest(messages=messages)
    response = await SendService(core, options or GatewayOptions(), HalfMessages(core)).send(make_rpc(), request)
    sent: SendMessageResponse = parsed(SendMessageResponse, response)
    return sent


async def test_message_is_sent_to_a_queue_of_its_topic() -> None:
    core = core_with(a=commands.success(STORED))
    response = await send(core, message(tag="red"))
    assert response.status.code == Code.OK
    [entry] = response.entries
    assert (entry.status.code, entry.message_id, entry.offset) == (Code.OK, f"01{1:032X}", 7)
    assert (entry.transaction_id, entry.recall_handle) == (f"01{1:032X}", "")
    [(_, code, fields, body)] = core.handled
    assert code == RequestCode.SEND_MESSAGE_V2
    assert body == b"hello"
    assert fields["a"] == fields["b"] == "orders"
    assert (fields["n"], fields["f"], fields["m"]) == ("broker-a", "0", "false")
    assert properties.decode(fields["i"]) == {"UNIQ_KEY": f"01{1:032X}", "TAGS": "red"}


@pytest.mark.parametrize("offset_id", [OFFSET_ID, ""])
async def test_transaction_id_is_the_id_of_the_message(offset_id: str) -> None:
    core = core_with(a=commands.success({**STORED, "transactionId": f"01{1:032X}", "msgId": offset_id}))
    half_messages = HalfMessages(core)
    half = message(message_type=MessageType.TRANSACTION)
    service = SendService(core, GatewayOptions(), half_messages)
    response = parsed(SendMessageResponse, await service.send(make_rpc(), SendMessageRequest(messages=[half])))
    [entry] = response.entries
    assert entry.transaction_id == entry.message_id == f"01{1:032X}"
    transaction = TransactionId("broker-a", 7, 4711, entry.message_id)
    assert half_messages.known("orders", entry.transaction_id) == (transaction if offset_id else None)


async def test_transaction_id_contains_the_location_of_the_half_message() -> None:
    core = core_with(a=commands.success({**STORED, "transactionId": "01AB"}))
    options = GatewayOptions(transaction_ids="place")
    response = await send(core, message(message_type=MessageType.TRANSACTION), options=options)
    transaction = TransactionId.parse(response.entries[0].transaction_id)
    assert transaction == TransactionId("broker-a", 7, 4711, "01AB")
    assert core.fields[0]["f"] == "4"


async def test_recall_handle_of_the_broker_is_returned() -> None:
    core = core_with(a=commands.success({**STORED, "recallHandle": "handle"}))
    core.topics["orders"] = TopicConfig("orders", properties.MessageType.DELAY)
    due = Timestamp(seconds=int(time.time()) + 60)
    assert (await send(core, message(delivery_timestamp=due))).entries[0].recall_handle == "handle"


@pytest.mark.parametrize(
    ("answer", "code", "stored"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT, True),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT, True),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE, True),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS, False),
        (ResponseCode.MESSAGE_ILLEGAL, Code.MESSAGE_CORRUPTED, False),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN, False),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND, False),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR, False),
        (4242, Code.INTERNAL_SERVER_ERROR, False),
    ],
)
async def test_send_status_follows_the_reply_of_the_broker(answer: int, code: int, stored: bool) -> None:
    response = await send(core_with(a=commands.response(answer, dict(STORED))), message())
    assert response.status.code == response.entries[0].status.code == code
    sent = f"send message failed, sendStatus={ResponseCode(answer).name}" if stored else "why"
    assert response.status.message == response.entries[0].status.message == sent
    assert bool(response.entries[0].message_id) == stored


async def test_messages_of_a_group_go_to_one_queue() -> None:
    core = core_with(a=commands.success(STORED), b=commands.success(STORED))
    for number in range(8):
        await send(core, message(number, message_group="order-2"))
    assert {(fields["n"], fields["e"]) for fields in core.fields} == {("broker-a", "2")}


async def test_messages_of_a_lite_topic_go_to_the_queue_of_a_message_group_of_that_name() -> None:
    core = core_with(a=commands.success(STORED), b=commands.success(STORED))
    send_service = SendService(core, GatewayOptions(), HalfMessages(core))
    request = [message(number, lite_topic="order-2") for number in range(4)]
    for each in request:
        await send_service.send(make_rpc(), SendMessageRequest(messages=[each]))
    await send_service.send(make_rpc(), SendMessageRequest(messages=request))
    assert [(fields["n"], fields["e"]) for fields in core.fields] == [("broker-a", "2")] * 8


async def test_message_group_of_a_lite_message_determines_its_queue() -> None:
    core = core_with(a=commands.success(STORED), b=commands.success(STORED))
    await send(core, message(message_group="order-2", lite_topic="room"))
    assert (core.fields[0]["n"], core.fields[0]["e"]) == ("broker-a", "2")


async def test_messages_without_a_group_go_to_all_queues_in_turn() -> None:
    core = core_with(a=commands.success(STORED), b=commands.success(STORED))
    send_service = SendService(core, GatewayOptions(), HalfMessages(core))
    for number in range(8):
        await send_service.send(make_rpc(), SendMessageRequest(messages=[message(number)]))
    assert len({(fields["n"], fields["e"]) for fields in core.fields}) == 8


async def test_message_goes_to_another_broker_if_one_is_unreachable() -> None:
    core = core_with(a=ServiceUnavailable("no"), b=commands.success(STORED))
    response = await send(core, message())
    assert response.status.code == Code.OK
    assert [fields["n"] for fields in core.fields] == ["broker-a", "broker-b"]


@pytest.mark.parametrize("error", [ConnectionLost("lost"), RequestTimeout("late")])
async def test_message_that_may_be_stored_is_not_sent_again(error: RemotingError) -> None:
    core = core_with(a=error, b=commands.success(STORED))
    with pytest.raises(type(error)):
        await send(core, message())
    assert len(core.handled) == 1


async def test_send_raises_if_all_brokers_are_unreachable() -> None:
    core = core_with(a=ServiceUnavailable("no"), b=ServiceUnavailable("no"))
    with pytest.raises(ServiceUnavailable):
        await send(core, message())
    assert len(core.handled) == 2


async def test_message_with_a_group_is_not_sent_to_another_broker() -> None:
    core = core_with(a=ServiceUnavailable("no"), b=commands.success(STORED))
    with pytest.raises(ServiceUnavailable):
        await send(core, message(message_group="order-2"))


async def test_response_has_an_entry_for_each_message() -> None:
    core = core_with(a=commands.success(STORED))
    response = await send(core, *(message(number) for number in range(5)))
    assert [entry.message_id for entry in response.entries] == [f"01{number:032X}" for number in range(5)]
    assert response.status.code == Code.OK


async def test_entries_with_different_codes_are_multiple_results() -> None:
    core = core_with(a=commands.success(STORED))
    core.answer = lambda command: (
        RequestTimeout("late") if f"{2:032X}" in command.fields["i"] else commands.success(dict(STORED))
    )
    response = await send(core, message(1), message(2), message(3))
    assert [entry.status.code for entry in response.entries] == [Code.OK, Code.PROXY_TIMEOUT, Code.OK]
    assert response.status.code == Code.MULTIPLE_RESULTS


async def test_stored_messages_are_counted_whether_they_are_replicated_in_time_or_not() -> None:
    answers = (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SYSTEM_BUSY)
    core = core_with(a=commands.success(STORED))
    core.answer = lambda command: commands.response(
        next(code for number, code in enumerate(answers) if f"{number:032X}" in command.fields["i"]), dict(STORED)
    )
    rpc = make_rpc()
    request = SendMessageRequest(messages=[message(number) for number in range(len(answers))])
    await SendService(core, GatewayOptions(), HalfMessages(core)).send(rpc, request)
    assert rpc.messages == 2


@pytest.mark.parametrize("field", ["message_group", "lite_topic"])
async def test_messages_of_one_group_are_sent_one_after_the_other(field: str) -> None:
    core = core_with(a=commands.success(STORED))
    core.pending = []
    send_service = asyncio.ensure_future(
        send(core, message(1, **{field: "g"}), message(2, **{field: "g"}), message(3, **{field: "h"}))
    )
    while len(core.handled) < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(core.handled) == 2
    for reply in core.pending:
        reply.set_result(commands.success(dict(STORED)))
    while len(core.handled) < 3:
        await asyncio.sleep(0)
    core.pending[2].set_result(commands.success(dict(STORED)))
    assert (await send_service).status.code == Code.OK


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], Code.MESSAGE_CORRUPTED),
        ([message(), message(topic="others")], Code.MESSAGE_CORRUPTED),
        ([message(topic="")], Code.ILLEGAL_TOPIC),
        ([message(topic="TBW102")], Code.ILLEGAL_TOPIC),
        ([message(topic="rmq_sys_x")], Code.ILLEGAL_TOPIC),
        ([message(topic="a b")], Code.ILLEGAL_TOPIC),
        ([message(topic="a" * 128)], Code.ILLEGAL_TOPIC),
        ([message(), message(tag="|")], Code.ILLEGAL_MESSAGE_TAG),
    ],
)
async def test_invalid_request_is_rejected_before_any_message_is_sent(messages: list[Message], code: int) -> None:
    core = core_with(a=commands.success(STORED))
    with pytest.raises(Refused) as refused:
        await send(core, *messages)
    assert refused.value.code == code
    assert core.handled == []


@pytest.mark.parametrize("accepted", list(properties.MessageType))
@pytest.mark.parametrize("kind", [properties.MessageType.NORMAL, properties.MessageType.FIFO])
async def test_topic_type_is_enforced(accepted: properties.MessageType, kind: properties.MessageType) -> None:
    core = core_with(a=commands.success(STORED))
    core.topics["orders"] = TopicConfig("orders", accepted)
    typed_message = message() if kind is properties.MessageType.NORMAL else message(message_group="g")
    if accepted in (kind, properties.MessageType.MIXED, properties.MessageType.UNSPECIFIED):
        assert (await send(core, typed_message)).status.code == Code.OK
        return
    with pytest.raises(Refused) as refused:
        await send(core, typed_message)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert (await send(core, typed_message, options=GatewayOptions(validate_message_type=False))).status.code == Code.OK


async def test_compressed_bodies_of_all_requests_are_converted_one_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the turns of the event loop grow with the number of requests, and other clients wait for them."""
    turn, converted = 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def decompressobj(wbits: int) -> Any:
        converted[turn] += 1
        return begin(wbits)

    begin = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", decompressobj)
    bodies = [message(number) for number in range(4)]
    for each in bodies:
        each.body = gzip.compress(b"hello")
        each.system_properties.body_encoding = Encoding.GZIP
    core = core_with(a=commands.success(STORED))
    service = SendService(core, GatewayOptions(), HalfMessages(core))
    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(service.send(make_rpc(), SendMessageRequest(messages=bodies)) for _ in range(8)))
    counting.cancel()
    assert converted.total() == 32
    assert max(converted.values()) == 1


async def test_large_compressed_bodies_of_single_messages_are_converted_one_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, converted = 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def decompressobj(wbits: int) -> Any:
        converted[turn] += 1
        return begin(wbits)

    begin = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", decompressobj)
    large = message(1)
    # A MiB takes more than a millisecond.
    large.body = gzip.compress(bytes(4 * 2**20))
    large.system_properties.body_encoding = Encoding.GZIP
    core = core_with(a=commands.success(STORED))
    service = SendService(core, GatewayOptions(), HalfMessages(core))
    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(service.send(make_rpc(), SendMessageRequest(messages=[large])) for _ in range(8)))
    counting.cancel()
    assert converted.total() == 8
    assert max(converted.values()) == 1


async def test_number_of_messages_per_request_is_limited() -> None:
    core = core_with(a=commands.success(STORED))
    with pytest.raises(Refused) as refused:
        await send(core, *(message() for _ in range(1_025)))
    assert refused.value.code == Code.MESSAGE_BODY_TOO_LARGE
    assert core.handled == []
