import pytest

from proxy.core.client_registry import ConsumerData, Member
from proxy.core.context import Context
from proxy.core.handlers.tools import find_message
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import (
    ConnectionLost,
    ConsumerNotOnline,
    NotPermitted,
    RemotingError,
    RequestTimeout,
    ServiceUnavailable,
)
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, encode_message
from remoting.requests import REQUESTS
from remoting.signature import Credentials, sign
from tests.proxy.fakes import FakeBackend, FakeChannel, stage
from tests.proxy.messages import heartbeat, request

pytestmark = pytest.mark.anyio

RUNNING_INFO, DIRECTLY = 307, 309


def ask(code: int, **more: str) -> RemotingCommand:
    return request(code, b"", clientId="c1", consumerGroup="g", **more)


def away(*brokers: str) -> FakeBackend:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand | Exception:
        return ServiceUnavailable("away") if broker in brokers else commands.success({"served by": broker})

    return FakeBackend(names=["broker-b", "broker-a"], answer=answer)


async def test_local_client_receives_the_request() -> None:
    on = stage(FakeBackend(names=["broker-a"]))
    client, other = FakeChannel(), FakeChannel()
    await on.ask(heartbeat("c1", {"g": []}), client)
    await on.ask(heartbeat("c2", {"g": []}), other)
    tool = ask(RUNNING_INFO, jstackEnable="true")
    assert (await on.ask(tool)).fields == {"answered by": "c1"}
    assert [(request.code, request.fields, request.body) for request in client.requests] == [
        (RUNNING_INFO, tool.fields, b"")
    ]
    assert (other.requests, on.backend.sent) == ([], [])


async def test_local_client_does_not_receive_the_signature_of_the_tool() -> None:
    on = stage(FakeBackend(names=["broker-a"]))
    client = FakeChannel()
    await on.ask(heartbeat("c1", {"g": []}), client)
    tool = ask(RUNNING_INFO)
    unsigned = dict(tool.fields)
    sign(tool, Credentials("admin", "secret", "token"))
    await on.ask(tool)
    assert [request.fields for request in client.requests] == [unsigned]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeout("late"), ResponseCode.CONSUME_MSG_TIMEOUT),
        (ConnectionLost("gone"), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_local_client_that_does_not_answer_has_a_code(error: RemotingError, code: ResponseCode) -> None:
    on = stage(FakeBackend(names=["broker-a"]))
    client = FakeChannel(answer=error)
    await on.ask(heartbeat("c1", {"g": []}), client)
    reply = await on.ask(ask(RUNNING_INFO))
    assert (reply.code, reply.remark) == (code, str(error))


@pytest.mark.parametrize(("fields", "broker"), [({"brokerName": "broker-b"}, "broker-b"), ({}, "broker-a")])
async def test_consume_directly_without_a_message_goes_to_the_broker(fields: dict[str, str], broker: str) -> None:
    on = stage(away())
    client = FakeChannel()
    await on.ask(heartbeat("c1", {"g": []}), client)
    tool = request(DIRECTLY, b"", clientId="c1", consumerGroup="g", msgId="m", **fields)
    assert (await on.ask(tool)).fields == {"served by": broker}
    assert client.requests == []
    running = request(RUNNING_INFO, b"", clientId="c1", consumerGroup="g")
    assert (await on.ask(running)).fields == {"answered by": "c1"}


@pytest.mark.parametrize(
    ("code", "fields", "backend", "asked"),
    [
        (RUNNING_INFO, {}, away(), ["broker-a"]),
        (RUNNING_INFO, {}, away("broker-a"), ["broker-a", "broker-b"]),
        (DIRECTLY, {"brokerName": "broker-b"}, away(), ["broker-b"]),
        (DIRECTLY, {}, away(), ["broker-a"]),
        (RUNNING_INFO, {"brokerName": "broker-b"}, away(), ["broker-a"]),
    ],
)
async def test_request_for_another_client_goes_to_a_broker(
    code: int, fields: dict[str, str], backend: FakeBackend, asked: list[str]
) -> None:
    on = stage(backend)
    on.registry.heartbeat(Member("far", "c1"), [], {"g": ConsumerData({})}, 0)
    assert (await on.ask(ask(code, **fields))).fields == {"served by": asked[-1]}
    assert [sent.broker for sent in backend.sent] == asked


async def test_error_of_the_last_broker_is_returned() -> None:
    backend = FakeBackend(names=["broker-a", "broker-b"], answer=lambda broker, _: commands.response(1, remark=broker))
    answer = await stage(backend).ask(ask(RUNNING_INFO))
    assert (answer.code, answer.remark) == (1, "broker-b")


@pytest.mark.parametrize(
    ("backend", "error"), [(away("broker-a", "broker-b"), ConsumerNotOnline), (FakeBackend(), ServiceUnavailable)]
)
async def test_client_without_any_broker_is_not_online(backend: FakeBackend, error: type[RemotingError]) -> None:
    with pytest.raises(error):
        await stage(backend).ask(ask(RUNNING_INFO))


MESSAGE_ID = OffsetMessageId("10.0.0.2", 10911, 1000)


def stores(broker: str, code: int) -> RemotingCommand:
    """Show the message at the offset, and in its queue."""
    message = StoredMessage(topic=broker, commit_log_offset=1000)
    assert code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.PULL_MESSAGE)
    return commands.success(body=encode_message(message))


async def find(backend: FakeBackend) -> str | None:
    """Return the broker of the message."""
    sent = ask(DIRECTLY, msgId=str(MESSAGE_ID))
    context = Context(FakeChannel(), sent, REQUESTS[DIRECTLY], 0.0)
    await find_message(stage(backend).core, context)
    return context.broker


async def test_a_message_is_at_the_broker_whose_address_is_in_its_id() -> None:
    backend = FakeBackend(names=["broker-a", "broker-b"], answer=lambda broker, sent: stores(broker, sent.code))
    assert MESSAGE_ID.address == "10.0.0.2:10911"
    assert await find(backend) == "broker-a"
    backend.addresses["10.0.0.2:10911"] = "broker-b"
    backend.sent.clear()
    assert await find(backend) == "broker-b"
    assert {each.broker for each in backend.sent} == {"broker-b"}


@pytest.mark.parametrize(
    ("down", "error"), [("broker-a", ServiceUnavailable), ("broker-b", ServiceUnavailable), ("", NotPermitted)]
)
async def test_a_message_of_a_broker_that_is_down_is_not_said_to_be_missing(
    down: str, error: type[RemotingError]
) -> None:
    missing = commands.response(ResponseCode.SYSTEM_ERROR, remark="can not find message by the offset, 1000")

    def answer(broker: str, _: RemotingCommand) -> RemotingCommand | Exception:
        return ServiceUnavailable("away") if broker == down else missing

    with pytest.raises(error):
        await find(FakeBackend(names=["broker-a", "broker-b"], answer=answer))
