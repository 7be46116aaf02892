"""Requests to the peer."""

import asyncio

import pytest

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import (
    InvalidRequest,
    RequestTimeout,
)
from remoting.frame import MAX_FRAME
from remoting.outcomes import Reply
from remoting.pending_requests import _LOOK_SECONDS as LOOK_SECONDS
from tests.remoting.fake_transport import Side, peer_response, run_ready, send_request

pytestmark = pytest.mark.anyio


async def test_responses_in_any_order_complete_their_requests() -> None:
    side = Side()
    futures = [send_request(side) for _ in range(3)]
    await run_ready()
    assert [command.opaque for command in side.transport.take()] == [0, 1, 2]
    assert side.connection.pending == 3
    side.receive(peer_response(2, b"c"), peer_response(0, b"a"))
    side.receive(peer_response(1, b"b"))
    assert [(await future).body for future in futures] == [b"a", b"b", b"c"]
    assert side.connection.pending == 0


async def test_requests_of_one_loop_iteration_are_written_at_once() -> None:
    side = Side()
    for _ in range(3):
        send_request(side)
    assert side.transport.written == []
    await run_ready()
    assert len(side.transport.written) == 1
    assert side.connection.sent_bytes == len(side.transport.written[0])


async def test_requests_are_sent_with_a_json_header() -> None:
    """A binary header would truncate the code of a POP."""
    side = Side()
    for send in (lambda command: side.connection.request(command, 3.0), side.connection.oneway):
        command = commands.request(RequestCode.POP_MESSAGE)
        command.serialize_type = 1
        send(command)
    await run_ready()
    assert [(sent.code, sent.serialize_type) for sent in side.transport.take()] == [(RequestCode.POP_MESSAGE, 0)] * 2


async def test_a_request_times_out() -> None:
    side = Side()
    future = send_request(side, timeout=3.0)
    side.pass_time(2.9)
    assert not future.done()
    side.pass_time(0.3)
    with pytest.raises(RequestTimeout, match="peer"):
        await future
    assert side.connection.pending == 0


async def test_a_long_poll_times_out_at_its_deadline() -> None:
    side = Side()
    future = send_request(side, timeout=2.5 * LOOK_SECONDS)
    for _ in range(2):
        side.pass_time(LOOK_SECONDS + 0.2)
    assert not future.done()
    side.pass_time(LOOK_SECONDS / 2 + 0.2)
    with pytest.raises(RequestTimeout, match="peer"):
        await future
    assert side.connection.pending == 0


async def test_a_long_poll_of_a_client_that_has_gone_is_not_kept() -> None:
    side = Side()
    command = commands.request(RequestCode.PULL_MESSAGE)
    future = side.connection.request(command, 3 * LOOK_SECONDS)
    await run_ready()
    [pending] = side.connection._pending._requests.values()
    future.cancel()
    side.pass_time(LOOK_SECONDS + 0.2)
    assert (pending.command, pending.future, side.connection.pending) == (None, None, 1)
    for _ in range(2):
        side.pass_time(LOOK_SECONDS + 0.2)
    assert side.connection.pending == 0


async def test_a_late_response_is_ignored() -> None:
    side = Side()
    future = send_request(side)
    side.pass_time(5.0)
    side.receive(peer_response(0), peer_response(77))
    with pytest.raises(RequestTimeout):
        await future
    assert not side.transport.closing


async def test_a_response_cancels_the_timeout() -> None:
    side = Side()
    future = send_request(side)
    side.receive(peer_response(0))
    side.pass_time(5.0)
    assert (await future).code == ResponseCode.SUCCESS


async def test_a_response_to_a_cancelled_request_is_ignored() -> None:
    side = Side()
    first, second = send_request(side), send_request(side)
    first.cancel()
    second.cancel()
    side.receive(peer_response(0))
    side.pass_time(5.0)
    assert first.cancelled()
    assert second.cancelled()
    assert side.connection.pending == 0


async def test_a_cancelled_request_stays_cancelled_when_the_connection_is_lost() -> None:
    side = Side()
    future = send_request(side)
    future.cancel()
    side.connection.connection_lost(None)
    assert future.cancelled()


async def test_request_completes_the_given_future() -> None:
    side = Side()
    future: Reply = asyncio.get_running_loop().create_future()
    assert send_request(side, future=future) is future
    side.receive(peer_response(0, b"x"))
    assert (await future).body == b"x"


async def test_opaques_wrap_around_and_skip_those_in_use() -> None:
    side = Side()
    side.connection._pending._opaque = 2**31 - 1
    first, second = send_request(side), send_request(side)
    # 2147483647 and 0 are still in use.
    side.connection._pending._opaque = 2**31 - 1
    third = send_request(side)
    await run_ready()
    assert [command.opaque for command in side.transport.take()] == [2**31 - 1, 0, 1]
    side.receive(peer_response(1, b"3"), peer_response(0, b"2"), peer_response(2**31 - 1, b"1"))
    assert [(await future).body for future in (first, second, third)] == [b"1", b"2", b"3"]


async def test_a_oneway_request_is_not_pending() -> None:
    side = Side()
    side.connection.oneway(commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))
    await run_ready()
    [sent] = side.transport.take()
    assert sent.is_oneway
    assert side.connection.pending == 0


async def test_a_request_timeout_does_not_close_the_connection() -> None:
    side = Side()
    future = send_request(side, timeout=3.0)
    side.connection.read_at -= 60
    side.pass_time(3.2)
    with pytest.raises(RequestTimeout):
        await future
    assert not side.transport.closing


@pytest.mark.parametrize("large", ["header", "body"])
async def test_a_request_over_the_frame_limit_is_not_sent(large: str) -> None:
    """An official server would close the connection, and all requests on it would be lost."""
    side = Side()
    text = "x" * MAX_FRAME
    command = commands.request(1, {"text": text}) if large == "header" else commands.request(1, body=text.encode())
    with pytest.raises(InvalidRequest):
        await side.connection.request(command, 5.0)
    side.connection.oneway(command)
    await run_ready()
    assert side.transport.written == []
    side.connection.request(commands.request(1), 5.0)
    await run_ready()
    assert len(side.transport.written) == 1
