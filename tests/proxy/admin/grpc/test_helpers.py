"""Parts of the Admin service that need no replica."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.admin.grpc.errors import is_unexpected, status_of
from proxy.admin.grpc.scan import Cursor, Scan, ScanFilter
from proxy.admin.grpc.throughput import Throughput
from proxy.operations import broker_requests
from proxy.operations.broker_requests import BrokerRefused
from proxy.operations.client_tools import ClientRefused
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, ConsumerNotOnline, RemotingError, ServiceUnavailable
from remoting.message_query import EVER
from tests.remoting import golden

pytestmark = pytest.mark.anyio


def core(**answers: int | RemotingError) -> Any:
    """Return a core whose brokers reply with these codes, or fail."""

    async def request(broker: str, *_: object) -> RemotingCommand:
        answer = answers[broker]
        if isinstance(answer, RemotingError):
            raise answer
        return commands.response(answer, remark=f"{broker} says {answer}")

    backend = SimpleNamespace(request=lambda *arguments: asyncio.ensure_future(request(*arguments)))
    return SimpleNamespace(backend=backend)


async def ask(asked: Any) -> broker_requests.Answers:
    names, nothing = ("a", "b", "c"), (ResponseCode.QUERY_NOT_FOUND,)
    return await broker_requests.ask_each(asked, names, RequestCode.QUERY_MESSAGE, {}, nothing)


async def test_ask_each_reports_failed_brokers_and_skips_empty_ones() -> None:
    answers = await ask(core(a=0, b=ResponseCode.QUERY_NOT_FOUND, c=ServiceUnavailable("c is gone")))
    assert (list(answers.replies), answers.missing) == (["a"], ("c is gone",))


async def test_ask_each_without_replies_raises_the_first_error() -> None:
    with pytest.raises(BrokerRefused, match="the broker a answered 1"):
        await ask(core(a=1, b=ServiceUnavailable("gone"), c=1))
    with pytest.raises(ServiceUnavailable, match="no broker is known"):
        await broker_requests.ask_each(core(), (), RequestCode.QUERY_MESSAGE, {})


async def test_a_scan_continues_inside_an_inner_batch() -> None:
    """Brokers reply with the whole record, which begins before the offset."""
    replies = {
        RequestCode.GET_MAX_OFFSET: commands.success({"offset": "2"}),
        RequestCode.PULL_MESSAGE: commands.success({"nextBeginOffset": "2"}, golden.STORED_INNER_BATCH),
    }

    async def request(_broker: str, _spec: object, command: RemotingCommand, *_: object) -> RemotingCommand:
        return replies[RequestCode(command.code)]

    replica: Any = SimpleNamespace(core=SimpleNamespace(backend=SimpleNamespace(request=request)))
    route: Any = SimpleNamespace(topic="T", queues=[SimpleNamespace(broker="a", readable=1)])
    scan = Scan(replica, route, ScanFilter(0, EVER), Cursor("a", 0, 1))
    assert [(found.message.queue_offset, found.message.body) async for found in scan.messages()] == [(1, b"second")]
    assert scan.cursor is None


@pytest.mark.parametrize(
    ("error", "code", "mistake"),
    [
        (BrokerRefused("a", ResponseCode.TOPIC_NOT_EXIST, None), Code.TOPIC_NOT_FOUND, False),
        (BrokerRefused("a", ResponseCode.CONSUMER_NOT_ONLINE, None), Code.NOT_FOUND, False),
        (BrokerRefused("a", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None), Code.NOT_IMPLEMENTED, False),
        (BrokerRefused("a", 9_999, None), Code.INTERNAL_SERVER_ERROR, False),
        (ConsumerNotOnline("nobody"), Code.NOT_FOUND, False),
        (ClientRefused("no"), Code.INTERNAL_ERROR, False),
        (ConnectionLost("gone"), Code.PROXY_TIMEOUT, False),
        (TimeoutError(), Code.PROXY_TIMEOUT, False),
        (KeyError("secret"), Code.INTERNAL_SERVER_ERROR, True),
    ],
)
def test_errors_have_statuses(error: Exception, code: Any, mistake: bool) -> None:
    status = status_of(error)
    assert (status.code, is_unexpected(error)) == (code, mistake)
    assert status.message
    assert "secret" not in status.message


def test_throughput_averages_the_last_whole_seconds() -> None:
    now = 100.0
    throughput = Throughput(lambda: now)
    seen = {"ok": True, "bytes_in": 0, "bytes_out": 0}
    sent: Any = SimpleNamespace(code="SendMessage", messages=30, **seen)
    pulled: Any = SimpleNamespace(code="PULL_MESSAGE", messages=10, **seen)
    throughput.observe(sent)
    throughput.observe(pulled)
    assert throughput.rates() == (0.0, 0.0)
    now = 102.0
    assert throughput.rates() == (15.0, 5.0)
    now = 110.9
    assert throughput.rates() == (3.0, 1.0)
    throughput.observe(sent)
    now = 111.0
    assert throughput.rates() == (3.0, 0.0)
    now = 200.0
    assert throughput.rates() == (0.0, 0.0)
