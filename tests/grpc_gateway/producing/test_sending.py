import asyncio

import pytest

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.producing.send_service import SendService
from grpc_gateway.response_status import Refused
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message, MessageType, Resource, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RemotingError, RequestTimeout, ServiceUnavailable
from remoting.topic_group_config import TopicConfig
from tests.grpc_gateway.kit import FakeCore, call, route

pytestmark = pytest.mark.anyio

# 198.51.100.1:10911 and commit log offset 4711.
OFFSET_ID = "C633640100002A9F0000000000001267"
STORED = {"msgId": OFFSET_ID, "queueId": "0", "queueOffset": "7"}


def sent(number: int = 1, topic: str = "orders", **system: object) -> Message:
    return Message(
        topic=Resource(name=topic),
        system_properties=SystemProperties(message_id=f"01{number:032X}", **system),  # type: ignore[arg-type]
        body=b"hello",
    )


def brokers(**answers: RemotingCommand | Exception) -> FakeCore:
    """A core with these brokers (a: broker-a) and what they say."""

    def answer(command: RemotingCommand) -> RemotingCommand | Exception:
        given = answers[command.fields["n"][-1]]
        return given if isinstance(given, Exception) else commands.response(given.code, dict(given.fields), b"", "why")

    return FakeCore(routes={"orders": route("orders", *(f"broker-{name}" for name in answers))}, answer=answer)


async def send(core: FakeCore, *messages: Message, options: GatewayOptions | None = None) -> SendMessageResponse:
    return await SendService(core, options or GatewayOptions()).send(call(), SendMessageRequest(messages=messages))


async def test_a_message_is_stored() -> None:
    core = brokers(a=commands.success(STORED))
    response = await send(core, sent(tag="red"))
    assert response.status.code == Code.OK
    [entry] = response.entries
    assert (entry.status.code, entry.message_id, entry.offset) == (Code.OK, f"01{1:032X}", 7)
    assert (entry.transaction_id, entry.recall_handle) == ("", "")
    [(_, code, fields, body)] = core.handled
    assert code == RequestCode.SEND_MESSAGE_V2
    assert body == b"hello"
    assert fields["a"] == fields["b"] == "orders"
    assert (fields["n"], fields["f"], fields["m"]) == ("broker-a", "0", "false")
    assert properties.decode(fields["i"]) == {"UNIQ_KEY": f"01{1:032X}", "TAGS": "red"}


async def test_a_half_messages_id_says_where_it_is() -> None:
    core = brokers(a=commands.success({**STORED, "transactionId": "01AB"}))
    response = await send(core, sent(message_type=MessageType.TRANSACTION))
    found = TransactionId.parse(response.entries[0].transaction_id)
    assert found == TransactionId("broker-a", 7, 4711, "01AB")
    assert core.fields[0]["f"] == "4"


async def test_a_delayed_messages_recall_handle_is_passed_on() -> None:
    core = brokers(a=commands.success({**STORED, "recallHandle": "handle"}))
    assert (await send(core, sent())).entries[0].recall_handle == "handle"


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
async def test_what_brokers_say(answer: int, code: int, stored: bool) -> None:
    response = await send(brokers(a=commands.response(answer, dict(STORED))), sent())
    assert response.status.code == response.entries[0].status.code == code
    assert response.status.message == "why"
    assert bool(response.entries[0].message_id) == stored


async def test_a_message_group_keeps_its_queue() -> None:
    core = brokers(a=commands.success(STORED), b=commands.success(STORED))
    for number in range(8):
        await send(core, sent(number, message_group="order-2"))
    assert {(fields["n"], fields["e"]) for fields in core.fields} == {("broker-a", "2")}


async def test_other_messages_take_turns() -> None:
    core = brokers(a=commands.success(STORED), b=commands.success(STORED))
    sending = SendService(core, GatewayOptions())
    for number in range(8):
        await sending.send(call(), SendMessageRequest(messages=[sent(number)]))
    assert len({(fields["n"], fields["e"]) for fields in core.fields}) == 8


async def test_an_unreachable_broker_is_replaced() -> None:
    core = brokers(a=ServiceUnavailable("no"), b=commands.success(STORED))
    response = await send(core, sent())
    assert response.status.code == Code.OK
    assert [fields["n"] for fields in core.fields] == ["broker-a", "broker-b"]


@pytest.mark.parametrize("error", [ConnectionLost("lost"), RequestTimeout("late")])
async def test_what_may_have_been_stored_is_not_sent_again(error: RemotingError) -> None:
    core = brokers(a=error, b=commands.success(STORED))
    with pytest.raises(type(error)):
        await send(core, sent())
    assert len(core.handled) == 1


async def test_no_broker_can_be_reached() -> None:
    core = brokers(a=ServiceUnavailable("no"), b=ServiceUnavailable("no"))
    with pytest.raises(ServiceUnavailable):
        await send(core, sent())
    assert len(core.handled) == 2


async def test_a_message_group_is_bound_to_its_broker() -> None:
    core = brokers(a=ServiceUnavailable("no"), b=commands.success(STORED))
    with pytest.raises(ServiceUnavailable):
        await send(core, sent(message_group="order-2"))


async def test_several_messages_have_an_entry_each() -> None:
    core = brokers(a=commands.success(STORED))
    response = await send(core, *(sent(number) for number in range(5)))
    assert [entry.message_id for entry in response.entries] == [f"01{number:032X}" for number in range(5)]
    assert response.status.code == Code.OK


async def test_entries_may_differ() -> None:
    core = brokers(a=commands.success(STORED))
    core.answer = lambda command: (
        RequestTimeout("late") if f"{2:032X}" in command.fields["i"] else commands.success(dict(STORED))
    )
    response = await send(core, sent(1), sent(2), sent(3))
    assert [entry.status.code for entry in response.entries] == [Code.OK, Code.PROXY_TIMEOUT, Code.OK]
    assert response.status.code == Code.MULTIPLE_RESULTS


async def test_messages_of_one_group_wait_for_each_other() -> None:
    core = brokers(a=commands.success(STORED))
    core.pending = []
    sending = asyncio.ensure_future(
        send(core, sent(1, message_group="g"), sent(2, message_group="g"), sent(3, message_group="h"))
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
    assert (await sending).status.code == Code.OK


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], Code.MESSAGE_CORRUPTED),
        ([sent(), sent(topic="others")], Code.MESSAGE_CORRUPTED),
        ([sent(topic="")], Code.ILLEGAL_TOPIC),
        ([sent(topic="TBW102")], Code.ILLEGAL_TOPIC),
        ([sent(topic="rmq_sys_x")], Code.ILLEGAL_TOPIC),
        ([sent(topic="a b")], Code.ILLEGAL_TOPIC),
        ([sent(topic="a" * 128)], Code.ILLEGAL_TOPIC),
        ([sent(), sent(tag="|")], Code.ILLEGAL_MESSAGE_TAG),
    ],
)
async def test_refusals(messages: list[Message], code: int) -> None:
    core = brokers(a=commands.success(STORED))
    with pytest.raises(Refused) as refused:
        await send(core, *messages)
    assert refused.value.code == code
    assert core.handled == []


@pytest.mark.parametrize("accepted", list(properties.MessageType))
@pytest.mark.parametrize("kind", [properties.MessageType.NORMAL, properties.MessageType.FIFO])
async def test_a_topics_type_is_enforced(accepted: properties.MessageType, kind: properties.MessageType) -> None:
    core = brokers(a=commands.success(STORED))
    core.topics["orders"] = TopicConfig("orders", accepted)
    message = sent() if kind is properties.MessageType.NORMAL else sent(message_group="g")
    if accepted in (kind, properties.MessageType.MIXED, properties.MessageType.UNSPECIFIED):
        assert (await send(core, message)).status.code == Code.OK
        return
    with pytest.raises(Refused) as refused:
        await send(core, message)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert (await send(core, message, options=GatewayOptions(validate_message_type=False))).status.code == Code.OK


async def test_the_messages_of_a_request_are_bounded() -> None:
    core = brokers(a=commands.success(STORED))
    with pytest.raises(Refused) as refused:
        await send(core, *(sent() for _ in range(1_025)))
    assert refused.value.code == Code.MESSAGE_BODY_TOO_LARGE
    assert core.handled == []
