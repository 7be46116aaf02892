"""The messaging service as a whole: every rpc returns a status."""

import asyncio
import base64
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from grpc.aio import InternalError

from grpc_gateway import streaming as module
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.service import MessagingService
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2 import service_pb2
from protos.apache.rocketmq.v2.definition_pb2 import (
    Code,
    Message,
    MessageQueue,
    Resource,
    SystemProperties,
    TransactionResolution,
)
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.taskless import Running, start
from remoting.topic_group_config import TopicConfig
from tests.grpc_gateway.fakes import FakeContext, FakeCore, make_client
from tests.grpc_gateway.messages import pop_reply, receipt_handle, route, stored, transaction_check
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

RPCS = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
# Valid for hours, since it is created when the tests are collected.
_HANDLE = receipt_handle(invisible=36_000.0).text
# Texts that are valid in some field, and others that are invalid in all.
_TEXTS = (
    *("", " ", "g", "orders", "broker-a", "%RETRY%g", "a b", "*", "a||b", "\x01", "\u2028", "\u00e9" * 50),
    *(_HANDLE, f"{_HANDLE} x-1", _HANDLE.replace("broker-a", "b\u00a0c"), "999 9 9 9 9 9 9 9 9"),
    *(str(TransactionId("broker-a", 1, 2, "m")), base64.urlsafe_b64encode(b"v1 orders broker-a 123 m").decode()),
)
_INTEGERS = (0, 1, -1, 2, 5, 31, 1_000, 2**31 - 1, -(2**31))
_KINDS: dict[int, Callable[[random.Random], Any]] = {
    FieldDescriptor.TYPE_STRING: lambda rng: rng.choice(_TEXTS),
    FieldDescriptor.TYPE_BYTES: lambda rng: rng.choice((b"", b"x", b"\x1f\x8b\x08")),
    FieldDescriptor.TYPE_BOOL: lambda rng: rng.random() < 0.5,
    FieldDescriptor.TYPE_INT32: lambda rng: rng.choice(_INTEGERS),
    FieldDescriptor.TYPE_INT64: lambda rng: rng.choice((*_INTEGERS, 10**15, 2**63 - 1, -(2**63))),
    FieldDescriptor.TYPE_ENUM: lambda rng: rng.choice((0, 1, 2, 3, 99, -1)),
}


def fill_randomly(message: Any, rng: random.Random) -> None:
    """Set most fields to random values."""
    for field in message.DESCRIPTOR.fields:
        current = getattr(message, field.name)
        if rng.random() < 0.25:
            continue
        if field.name == "name" and rng.random() < 0.7:
            message.name = "orders"
        elif field.message_type is None:
            value = _KINDS[field.type](rng)
            current.append(value) if hasattr(current, "append") else setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            current[rng.choice(_TEXTS)] = rng.choice(_TEXTS)
        else:
            for submessage in (
                [current.add() for _ in range(rng.randint(0, 3))] if hasattr(current, "add") else [current]
            ):
                submessage.SetInParent()
                fill_randomly(submessage, rng)


def unreliable_brokers(rng: random.Random) -> Callable[[RemotingCommand], RemotingCommand]:
    """Return brokers that reject some requests."""
    error_codes = sorted(set(ResponseCode) - {ResponseCode.SUCCESS})
    fields = dict.fromkeys(("queueOffset", "offset", "nextBeginOffset", "popTime", "invisibleTime", "reviveQid"), "5")

    def answer(command: RemotingCommand) -> RemotingCommand:
        if rng.random() < 0.2:
            return commands.response(rng.choice(error_codes), remark=rng.choice((None, "refused")))
        if command.code in {RequestCode.POP_MESSAGE, RequestCode.POP_LITE_MESSAGE}:
            return pop_reply(stored(5), stored(6))
        return commands.success(fields)

    return answer


def make_service(core: FakeCore, max_clients: int = 100, observe: Any = lambda *_: None) -> MessagingService:
    options, clock = GatewayOptions(), asyncio.get_running_loop().time
    clients = ClientTable(make_client, max_clients=max_clients)
    return MessagingService(core, clients, Renewal(core, options, clock, "a"), options, observe)


async def call(service: MessagingService, name: str, request: Any, client_id: str = "c1") -> list[Any]:
    """Return the responses of an rpc."""
    context = FakeContext(10.0, x_mq_client_id=client_id)
    response = await getattr(service, name)(request, context)
    return context.responses or [response]


@pytest.mark.parametrize("name", sorted(set(RPCS) - {"Telemetry"}))
async def test_every_rpc_answers_random_requests_with_a_status(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An invalid request is not an unexpected error, which would be logged."""
    monkeypatch.setattr(module, "_THROTTLE_DELAY", 0)
    rng = random.Random(name)
    service = make_service(FakeCore(routes={"orders": route()}, answer=unreliable_brokers(rng)))
    for _ in range(300):
        request = getattr(service_pb2, RPCS[name].input_type.name)()
        fill_randomly(request, rng)
        responses = await call(service, name, request)
        assert responses[0].status.code, request
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


THROTTLING = {
    "full client table": (FakeCore(), 0, ReceiveMessageRequest()),
    "busy broker": (
        FakeCore(routes={"orders": route()}, answer=lambda _: commands.response(ResponseCode.POLLING_FULL)),
        100,
        ReceiveMessageRequest(
            group=Resource(name="g"), message_queue=MessageQueue(topic=Resource(name="orders")), auto_renew=True
        ),
    ),
}


@pytest.mark.parametrize(("core", "max_clients", "request_"), THROTTLING.values(), ids=THROTTLING)
async def test_receive_with_too_many_requests_is_answered_after_a_delay(
    core: FakeCore, max_clients: int, request_: ReceiveMessageRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THROTTLE_DELAY", 0.05)
    service, loop = make_service(core, max_clients), asyncio.get_running_loop()
    started = loop.time()
    [response] = await call(service, "ReceiveMessage", request_)
    assert response.status.code == Code.TOO_MANY_REQUESTS
    assert loop.time() - started >= 0.045


async def test_a_receive_whose_client_has_left_returns_its_messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """grpc.aio cancels the call only after the write has failed."""
    core = FakeCore(
        routes={"orders": route()}, topics={"orders": TopicConfig("orders")}, answer=lambda _: pop_reply(stored(5))
    )
    request = ReceiveMessageRequest(
        group=Resource(name="g"), message_queue=MessageQueue(topic=Resource(name="orders")), auto_renew=True
    )
    context = FakeContext(10.0, x_mq_client_id="c1")

    async def write(_: object) -> None:
        raise InternalError("Failed execute_batch")

    monkeypatch.setattr(context, "write", write)
    with pytest.raises(asyncio.CancelledError):
        await make_service(core).ReceiveMessage(request, context)
    await settle()
    assert [code for _, code, _, _ in core.handled] == [
        RequestCode.POP_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ]
    assert caplog.records == []


async def test_transaction_ends_again_only_after_a_check_of_its_broker() -> None:
    core = FakeCore(routes={"orders": route()})
    service = make_service(core)
    request = service_pb2.EndTransactionRequest(
        topic=Resource(name="orders"),
        transaction_id=str(TransactionId("broker-a", 7, 1005, "id-5")),
        resolution=TransactionResolution.COMMIT,
    )

    async def end() -> int:
        [response] = await call(service, "EndTransaction", request)
        return int(response.status.code)

    assert [await end(), await end()] == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    service.client_lifecycle.producers.check_transaction(transaction_check())
    assert [await end(), await end()] == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    assert [fields["commitLogOffset"] for fields in core.fields] == ["1005", "1005"]


async def test_a_send_that_waits_for_a_congested_broker_ends_with_its_call() -> None:
    core = FakeCore(routes={"orders": route("orders")}, topics={"orders": TopicConfig("orders")})
    observed: list[tuple[Any, ...]] = []
    service = make_service(core, observe=lambda *facts: observed.append(facts))
    message = Message(topic=Resource(name="orders"), body=b"x", system_properties=SystemProperties(message_id="1"))
    request = service_pb2.SendMessageRequest(messages=[message])
    context = FakeContext(x_mq_client_id="c1")
    assert (await service.SendMessage(request, context)).status.code == Code.OK
    client = next(iter(service._rpcs._clients))
    client.pause()
    waiting = start(service._rpcs.run("SendMessage", service_pb2.SendMessageResponse, service._send, request, context))
    assert isinstance(waiting, Running)
    outcome = waiting.future()
    waiting.abandon()
    with pytest.raises(asyncio.CancelledError):
        await outcome
    client.resume()
    await settle()
    assert [code for _, code, _, _ in core.handled].count(RequestCode.SEND_MESSAGE_V2) == 1
    assert [(name, code) for name, _, _, code, _ in observed] == [("SendMessage", Code.OK), ("SendMessage", 0)]
