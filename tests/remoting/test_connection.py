import asyncio
import logging
import socket
from collections.abc import Callable

import orjson
import pytest

from protocol_negotiation.peer import HostPort, Peer
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import (
    ConnectionLost,
    GoAway,
    RequestTimeout,
    TopicNotExist,
)
from remoting.flow_control import Limits
from remoting.frame import MAX_HEADER, MAX_SERVER_HEADER, encode_prefix
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel
from tests.remoting.fake_transport import Side, peer_request, peer_response, run_ready, send_request

pytestmark = pytest.mark.anyio

CLIENT = Peer(HostPort.parse("192.0.2.7:50000"), HostPort.parse("198.51.100.9:8080"))


# End of the connection.


@pytest.mark.parametrize(("error", "cause"), [(None, CloseCause.PEER), (ConnectionResetError(), CloseCause.RESET)])
async def test_a_lost_connection_fails_its_pending_requests(error: Exception | None, cause: CloseCause) -> None:
    side = Side()
    futures = [send_request(side), send_request(side)]
    side.connection.connection_lost(error)
    for future in futures:
        with pytest.raises(ConnectionLost, match="peer"):
            await future
    assert side.closed == [side.connection]
    assert side.connection.cause is cause
    side.connection.connection_lost(None)
    assert side.closed == [side.connection]


async def test_requests_on_a_closed_connection_fail() -> None:
    side = Side()
    side.connection.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await send_request(side)
    side.connection.oneway(commands.request(1))
    await run_ready()
    assert side.transport.written == []


@pytest.mark.parametrize("closed_before", [True, False])
async def test_the_lost_handler_takes_a_request_over(closed_before: bool) -> None:
    side, other = Side(), Side()
    lost_requests: list[RemotingCommand] = []

    def lost(command: RemotingCommand, future: Reply) -> None:
        lost_requests.append(command)
        other.connection.request(command, 3.0, future)

    if closed_before:
        side.connection.connection_lost(None)
    future = send_request(side, lost=lost)
    side.connection.connection_lost(None)
    side.pass_time(5.0)
    other.receive(peer_response(0, b"from the other side"))
    assert (await future).body == b"from the other side"
    assert len(lost_requests) == 1


async def test_the_lost_handler_is_not_called_for_ended_requests() -> None:
    side = Side()
    lost_requests: list[RemotingCommand] = []
    done, late, cancelled = (
        send_request(side, timeout=1.0, lost=lambda command, _: lost_requests.append(command)) for _ in range(3)
    )
    cancelled.cancel()
    side.receive(peer_response(0))
    side.pass_time(5.0)
    side.connection.connection_lost(None)
    assert lost_requests == []
    assert (await done).code == ResponseCode.SUCCESS
    with pytest.raises(RequestTimeout):
        await late


async def test_close_writes_buffered_commands_first() -> None:
    side = Side()
    side.connection.oneway(commands.request(1))
    side.connection.close(CloseCause.DRAIN)
    side.connection.close(CloseCause.IDLE)
    assert len(side.transport.take()) == 1
    await run_ready()
    assert side.connection.cause is CloseCause.DRAIN
    assert side.closed == [side.connection]
    assert not side.transport.aborted


async def test_close_of_a_congested_connection_aborts() -> None:
    side = Side()
    side.connection.pause_writing()
    side.connection.oneway(commands.request(1))
    side.connection.close(CloseCause.DRAIN)
    await run_ready()
    assert side.transport.aborted
    assert side.connection.cause is CloseCause.DRAIN
    assert side.closed == [side.connection]


async def test_abort_discards_buffered_commands() -> None:
    side = Side()
    side.connection.oneway(commands.request(1))
    side.connection.abort(CloseCause.LOCAL)
    await run_ready()
    assert side.connection.cause is CloseCause.LOCAL
    assert side.transport.aborted


# Requests of the peer.


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_responses_are_sent_in_order_of_completion(serialize_type: int) -> None:
    side = Side()
    side.receive(*(peer_request(opaque, serialize_type=serialize_type) for opaque in (5, -6, 7)))
    for index in (2, 0, 1):
        side.replies[index].set_result(commands.success(body=str(index).encode()))
        await run_ready()
    sent = side.transport.take()
    assert [(command.opaque, command.body) for command in sent] == [(7, b"2"), (5, b"0"), (-6, b"1")]
    assert all(command.is_response and command.serialize_type == serialize_type for command in sent)
    assert side.connection.in_flight == 0


async def test_the_response_to_a_forwarded_request_has_the_clients_opaque_and_encoding() -> None:
    """Forwarding overwrites the opaque and encoding of the received command."""
    broker = Side()
    client = Side(lambda _, command: broker.connection.request(command, 3.0))
    broker.connection._pending._opaque = 1000
    client.receive(peer_request(5, serialize_type=1))
    await run_ready()
    assert [command.opaque for command in broker.transport.take()] == [1000]
    broker.receive(peer_response(1000, b"x"))
    await run_ready()
    [sent] = client.transport.take()
    assert (sent.opaque, sent.serialize_type, sent.body) == (5, 1, b"x")


def _raises(error: Exception) -> Handler:
    def handler(_: RemotingConnection, command: RemotingCommand) -> Reply:
        raise error

    return handler


def _fails(error: Exception) -> Handler:
    def handler(_: RemotingConnection, command: RemotingCommand) -> Reply:
        reply: Reply = asyncio.get_running_loop().create_future()
        reply.set_exception(error)
        return reply

    return handler


@pytest.mark.parametrize("failing", [_raises, _fails])
async def test_a_remoting_error_is_sent_with_its_code_and_remark(failing: Callable[[Exception], Handler]) -> None:
    side = Side(failing(TopicNotExist("no topic T")))
    side.receive(peer_request(3))
    await run_ready()
    [sent] = side.transport.take()
    assert (sent.opaque, sent.code, sent.remark) == (3, ResponseCode.TOPIC_NOT_EXIST, "no topic T")


async def test_the_text_of_an_unexpected_error_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    side = Side(_fails(ValueError("secret")))
    side.receive(peer_request(3))
    await run_ready()
    [sent] = side.transport.take()
    assert (sent.code, sent.remark) == (ResponseCode.SYSTEM_ERROR, "internal error")
    assert "secret" in caplog.text


async def test_a_cancelled_reply_is_answered_with_an_error() -> None:
    side = Side()
    side.receive(peer_request(3))
    side.replies[0].cancel()
    await run_ready()
    [sent] = side.transport.take()
    assert sent.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("handler", [None, _raises(GoAway("closing")), _fails(GoAway("closing")), _fails(ValueError())])
async def test_a_oneway_request_gets_no_response(handler: Handler | None) -> None:
    side = Side(handler)
    side.receive(peer_request(3, oneway=True))
    for reply in side.replies:
        reply.set_result(commands.success())
    await run_ready()
    assert side.transport.written == []
    assert side.connection.in_flight == 0


async def test_a_handler_may_return_no_reply() -> None:
    side = Side(lambda *_: None)
    side.receive(peer_request(3))
    await run_ready()
    assert side.transport.written == []
    assert side.connection.in_flight == 0


async def test_a_response_after_the_end_of_the_connection_is_dropped() -> None:
    side = Side()
    side.receive(peer_request(3))
    side.connection.connection_lost(None)
    side.replies[0].set_result(commands.success())
    await run_ready()
    assert side.transport.written == []


# Invalid bytes.


def _json_frame(header: object) -> bytes:
    raw = orjson.dumps(header)
    return encode_prefix(0, len(raw), 0) + raw


async def test_an_invalid_header_is_answered_with_an_error() -> None:
    side = Side()
    side.connection.data_received(_json_frame({"code": "x", "opaque": 8, "flag": 0}))
    side.receive(peer_request(9))
    await run_ready()
    [sent] = side.transport.take()
    assert (sent.opaque, sent.code) == (8, ResponseCode.SYSTEM_ERROR)
    assert not side.transport.closing
    assert len(side.requests) == 1


@pytest.mark.parametrize("flag", [2, 6])
async def test_an_invalid_header_of_a_oneway_request_is_ignored(flag: int) -> None:
    side = Side()
    side.connection.data_received(_json_frame({"code": "x", "opaque": 8, "flag": flag}))
    side.connection.data_received(_json_frame({"code": 1, "opaque": 8, "flag": flag, "extFields": 5}))
    side.receive(peer_request(9))
    await run_ready()
    assert side.transport.written == []
    assert not side.transport.closing
    assert len(side.requests) == 1


@pytest.mark.parametrize(
    "raw",
    [
        _json_frame([]),
        _json_frame({"code": 1}),
        _json_frame({"code": "x", "opaque": 8, "flag": 1}),
        b"GET / HTTP/1.1\r\n",
        encode_prefix(1, 5, 0) + bytes(5),
    ],
)
async def test_invalid_bytes_without_an_opaque_close_the_connection(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    side = Side()
    future = send_request(side)
    side.connection.data_received(raw)
    with pytest.raises(ConnectionLost):
        await future
    assert side.connection.cause is CloseCause.PROTOCOL
    assert side.closed == [side.connection]
    assert "peer" in caplog.text


async def test_a_frame_over_the_limit_closes_the_connection() -> None:
    side = Side(limits=Limits(frame=200))
    side.receive(peer_request(1, bytes(200)))
    assert side.connection.cause is CloseCause.PROTOCOL


@pytest.mark.parametrize(("peer", "limit"), [(None, MAX_SERVER_HEADER), (CLIENT, MAX_HEADER)])
async def test_a_header_over_the_limit_closes_the_connection(peer: Peer | None, limit: int) -> None:
    side = Side(peer=peer)
    side.connection.data_received(encode_prefix(0, limit, 0))
    assert side.connection.cause is None
    side = Side(peer=peer)
    side.connection.data_received(encode_prefix(0, limit + 1, 0))
    assert side.connection.cause is CloseCause.PROTOCOL


# Over real sockets.


class Pair:
    """Two connections joined by a socket pair."""

    client: RemotingConnection
    server: RemotingConnection

    async def open(self, handler: Handler, limits: Limits | None = None) -> "Pair":
        loop = asyncio.get_running_loop()
        wheel = TimeoutWheel(loop.time)
        left, right = socket.socketpair()
        _, self.client = await loop.create_connection(
            lambda: RemotingConnection(wheel, lambda *_: None, lambda _: None, name="server"), sock=left
        )
        _, self.server = await loop.connect_accepted_socket(
            lambda: RemotingConnection(wheel, handler, lambda _: None, name="client", limits=limits or Limits()),
            sock=right,
        )
        return self

    async def close(self) -> None:
        for connection in (self.client, self.server):
            connection.abort(CloseCause.LOCAL)
        await run_ready()


def _echo(connection: RemotingConnection, command: RemotingCommand) -> Reply:
    reply: Reply = connection.loop.create_future()
    reply.set_result(commands.success(command.fields, command.body))
    return reply


async def test_many_requests_in_both_directions() -> None:
    pair = await Pair().open(_echo, Limits(requests=10, request_bytes=100_000))
    pair.client.handler = _echo
    futures = []
    for index in range(300):
        connection = (pair.client, pair.server)[index % 2]
        body = bytes([index % 256]) * (index * 37)
        futures.append((connection.request(commands.request(1, {"index": str(index)}, body), 30.0), index, body))
    for future, index, body in futures:
        reply = await future
        assert (reply.fields, reply.body) == ({"index": str(index)}, body)
    assert pair.server.in_flight == pair.client.in_flight == 0
    assert pair.server.received_bytes == pair.client.sent_bytes
    await pair.close()


async def test_a_peer_that_never_reads_is_closed() -> None:
    pair = await Pair().open(_echo, Limits(buffer=10_000, hard_buffer=4_000_000, requests=10_000))
    assert pair.client.transport is not None
    pair.client.transport.pause_reading()
    for _ in range(200):
        if pair.server.closed:
            break
        pair.server.oneway(commands.request(1, body=bytes(100_000)))
        await asyncio.sleep(0)
    assert pair.server.cause is CloseCause.SLOW_READER
    await pair.close()


async def test_a_close_by_the_peer_fails_pending_requests() -> None:
    pair = await Pair().open(lambda *_: None)
    future = pair.client.request(commands.request(1), 30.0)
    await run_ready()
    pair.server.close(CloseCause.DRAIN)
    with pytest.raises(ConnectionLost):
        await future
    assert pair.client.cause is CloseCause.PEER
    assert pair.client.closed
    await pair.close()


# Unfinished frames.

_FRAME = encode_prefix(0, 2, 1 << 21) + bytes(2 + (1 << 21))


class _Loop:
    """A loop with the time of a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.time = clock

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio.get_running_loop(), name)


async def _drip(side: Side, seconds: int, size: int) -> None:
    """Receive `size` bytes of a large frame in each second, and check for unfinished frames every 5 s."""
    for second in range(1, seconds + 1):
        start = side.connection._decoder.buffered
        side.connection.data_received(_FRAME[start : start + size])
        side.clock.now += 1
        if second % 5 == 0:
            side.connection.check_unfinished_frame(30.0)


@pytest.mark.parametrize(("size", "closed"), [(1, True), (15 * 1024, True), (17 * 1024, False)])
async def test_an_unfinished_frame_must_grow(size: int, closed: bool) -> None:
    side = Side()
    side.connection.loop = _Loop(side.clock)  # type: ignore[assignment]
    await _drip(side, 30, size)
    assert side.connection.cause is None
    await _drip(side, 5, size)
    assert side.connection.cause is (CloseCause.UNFINISHED_FRAME if closed else None)


async def test_small_frames_in_parts_are_not_unfinished_frames() -> None:
    side = Side()
    side.connection.loop = _Loop(side.clock)  # type: ignore[assignment]
    frame = encode_prefix(0, 0, 2) + b"ab"
    for _ in range(60):
        side.connection._decoder.feed(frame[4:] if side.connection._decoder.buffered else b"")
        side.connection._decoder.feed(frame[:4])
        side.connection.check_unfinished_frame(30.0)
        side.clock.now += 5
    assert side.connection.cause is None


async def test_an_unfinished_frame_has_time_while_reads_are_paused() -> None:
    side = Side()
    side.connection.loop = _Loop(side.clock)  # type: ignore[assignment]
    side.connection.data_received(_FRAME[:100])
    for paused in (True, False):
        if paused:
            side.connection.pause()
        else:
            side.connection.resume()
        for _ in range(6):
            side.connection.check_unfinished_frame(30.0)
            side.clock.now += 5
    assert side.connection.cause is None
    side.connection.check_unfinished_frame(30.0)
    assert side.connection.cause is CloseCause.UNFINISHED_FRAME


# Isolation of requests.


async def test_a_handler_that_fails_does_not_affect_the_next_request() -> None:
    served = []

    def handler(_: RemotingConnection, command: RemotingCommand) -> None:
        served.append(command.opaque)
        if command.opaque == 1:
            raise ValueError("unexpected")

    side = Side(handler)
    side.receive(peer_request(1), peer_request(2))
    await run_ready()
    assert served == [1, 2]
    [reply] = side.transport.take()
    assert (reply.opaque, reply.code, reply.remark) == (1, ResponseCode.SYSTEM_ERROR, "internal error")


async def test_a_response_that_cannot_be_encoded_becomes_an_error() -> None:
    side = Side()
    side.receive(peer_request(1), peer_request(2))
    response = commands.success()
    nested: list[object] = []
    for _ in range(300):
        nested = [nested]
    response.header["extFields"] = {"a": nested}
    side.replies[0].set_result(response)
    side.replies[1].set_result(commands.success())
    await run_ready()
    assert [(reply.opaque, reply.code) for reply in side.transport.take()] == [(1, 1), (2, 0)]


async def test_a_lost_handler_that_fails_does_not_affect_other_requests() -> None:
    side = Side()

    def lost(_: RemotingCommand, __: object) -> None:
        raise ValueError("unexpected")

    first, second = send_request(side, lost=lost), send_request(side)
    side.connection.connection_lost(None)
    with pytest.raises(ValueError, match="unexpected"):
        await first
    with pytest.raises(ConnectionLost):
        await second
