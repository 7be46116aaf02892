"""The service as a whole: whatever it is asked, it answers with a status."""

import asyncio
import base64
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from grpc_gateway import service as module
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.service import MessagingService
from grpc_gateway.transaction_id import TransactionId
from protos.apache.rocketmq.v2 import service_pb2
from protos.apache.rocketmq.v2.definition_pb2 import Code, MessageQueue, Resource
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.grpc_gateway.kit import FakeContext, FakeCore, make_client, pop_answer, receipt_handle, route, stored

pytestmark = pytest.mark.anyio

RPCS = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
# Texts that mean something somewhere, and such that must not.
# Made when tests are collected: it has to be good still when they run.
_HANDLE = receipt_handle(invisible=36_000.0).text
_TEXTS = (
    *("", " ", "g", "orders", "broker-a", "%RETRY%g", "a b", "*", "a||b", "\x01", "\u2028", "\u00e9" * 50),
    *(_HANDLE, f"{_HANDLE} x-1", _HANDLE.replace("broker-a", "b\u00a0c"), "999 9 9 9 9 9 9 9 9"),
    *(str(TransactionId("broker-a", 1, 2, "m")), base64.urlsafe_b64encode(b"v1 orders broker-a 123 m").decode()),
)
_INTEGERS = (0, 1, -1, 2, 5, 31, 1_000, 2**31 - 1, -(2**31))
_KINDS: dict[int, Callable[[random.Random], Any]] = {
    FieldDescriptor.TYPE_STRING: lambda chance: chance.choice(_TEXTS),
    FieldDescriptor.TYPE_BYTES: lambda chance: chance.choice((b"", b"x", b"\x1f\x8b\x08")),
    FieldDescriptor.TYPE_BOOL: lambda chance: chance.random() < 0.5,
    FieldDescriptor.TYPE_INT32: lambda chance: chance.choice(_INTEGERS),
    FieldDescriptor.TYPE_INT64: lambda chance: chance.choice((*_INTEGERS, 10**15, 2**63 - 1, -(2**63))),
    FieldDescriptor.TYPE_ENUM: lambda chance: chance.choice((0, 1, 2, 3, 99, -1)),
}


def fill(message: Any, chance: random.Random) -> None:
    """Put something into most fields."""
    for field in message.DESCRIPTOR.fields:
        held = getattr(message, field.name)
        if chance.random() < 0.25:
            continue
        if field.name == "name" and chance.random() < 0.7:
            message.name = "orders"
        elif field.message_type is None:
            value = _KINDS[field.type](chance)
            held.append(value) if hasattr(held, "append") else setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            held[chance.choice(_TEXTS)] = chance.choice(_TEXTS)
        else:
            for part in [held.add() for _ in range(chance.randint(0, 3))] if hasattr(held, "add") else [held]:
                part.SetInParent()
                fill(part, chance)


def brokers(chance: random.Random) -> Callable[[RemotingCommand], RemotingCommand]:
    """Brokers that refuse now and then."""
    refusals = sorted(set(ResponseCode) - {ResponseCode.SUCCESS})
    fields = dict.fromkeys(("queueOffset", "offset", "nextBeginOffset", "popTime", "invisibleTime", "reviveQid"), "5")

    def answer(command: RemotingCommand) -> RemotingCommand:
        if chance.random() < 0.2:
            return commands.response(chance.choice(refusals), remark=chance.choice((None, "refused")))
        if command.code in {RequestCode.POP_MESSAGE, RequestCode.POP_LITE_MESSAGE}:
            return pop_answer(stored(5), stored(6))
        return commands.success(fields)

    return answer


def serving(core: FakeCore, max_clients: int = 100) -> MessagingService:
    options, clock = GatewayOptions(), asyncio.get_running_loop().time
    clients = ClientTable(make_client, max_clients=max_clients)
    return MessagingService(core, clients, Renewal(core, options, clock, "a"), options, lambda *_: None)


async def ask(service: MessagingService, name: str, request: Any, client_id: str = "c1") -> list[Any]:
    """The responses."""
    answer = getattr(service, name)(request, FakeContext(10.0, x_mq_client_id=client_id))
    return [one async for one in answer] if hasattr(answer, "__aiter__") else [await answer]


@pytest.mark.parametrize("name", sorted(set(RPCS) - {"Telemetry"}))
async def test_whatever_is_asked_is_answered(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the service does not understand is the client's mistake, not one of its own, which it would log."""
    monkeypatch.setattr(module, "_THROTTLE_DELAY", 0)
    chance = random.Random(name)
    service = serving(FakeCore(routes={"orders": route()}, answer=brokers(chance)))
    for _ in range(300):
        request = getattr(service_pb2, RPCS[name].input_type.name)()
        fill(request, chance)
        responses = await ask(service, name, request)
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
    service, loop = serving(core, max_clients), asyncio.get_running_loop()
    started = loop.time()
    [response] = await ask(service, "ReceiveMessage", request_)
    assert response.status.code == Code.TOO_MANY_REQUESTS
    assert loop.time() - started >= 0.045
