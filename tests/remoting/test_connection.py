import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from remoting import command as commands
from remoting import flow_control
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import CloseCause, Handler, RemotingConnection
from remoting.errors import (
    ConnectionLost,
    GoAway,
    InvalidRequest,
    RequestTimeout,
    ServiceUnavailable,
    TopicNotExist,
)
from remoting.flow_control import Limits
from remoting.frame import MAX_FRAME, MAX_HEADER, FrameDecoder, encode_prefix
from remoting.timeout_wheel import TimeoutWheel

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeTransport(asyncio.Transport):
    """Keeps what is written; reading and the peer's speed are up to the test."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: list[bytes] = []
        self._reading = True
        self.closing = False
        self.aborted = False
        self.buffer_size = 0
        self.high: int | None = None

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.buffer_size

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self.aborted = True
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def take(self) -> list[RemotingCommand]:
        """The commands written since the last time."""
        frames = FrameDecoder().feed(b"".join(self.written))
        self.written.clear()
        return [commands.decode(frame) for frame in frames]


class End:
    """A connection on a fake transport, and what it reported."""

    def __init__(self, handler: Handler | None = None, limits: Limits | None = None) -> None:
        self.clock = Clock()
        self.wheel = TimeoutWheel(self.clock)
        self.requests: list[RemotingCommand] = []
        self.replies: deque[asyncio.Future[RemotingCommand]] = deque()
        self.closed: list[RemotingConnection] = []
        self.connection = RemotingConnection(
            self.wheel, handler or self.handle, self.closed.append, name="peer", limits=limits or Limits()
        )
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def handle(self, _: RemotingConnection, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        """The default handler: answers are given by the test, in `replies`."""
        reply: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self.requests.append(command)
        self.replies.append(reply)
        return reply

    def receive(self, *sent: RemotingCommand) -> None:
        self.connection.data_received(b"".join(one.encode() + one.body for one in sent))

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wheel.advance()


async def turn() -> None:
    """Let everything that is due happen."""
    for _ in range(5):
        await asyncio.sleep(0)


def numbered(opaque: int, body: bytes = b"", serialize_type: int = 0, oneway: bool = False) -> RemotingCommand:
    """A request of the peer."""
    command = commands.request(RequestCode.HEART_BEAT, body=body, oneway=oneway)
    command.header["opaque"] = opaque
    command.serialize_type = serialize_type
    return command


def answered(opaque: int, body: bytes = b"") -> RemotingCommand:
    """The peer's answer to a request of ours."""
    return commands.answer(commands.success(body=body), opaque, 0)


def ask(end: End, timeout: float = 3.0, **more: Any) -> "asyncio.Future[RemotingCommand]":
    return end.connection.request(commands.request(RequestCode.GET_MAX_OFFSET), timeout, **more)


# Requests of ours.


async def test_answers_may_come_out_of_order() -> None:
    end = End()
    futures = [ask(end) for _ in range(3)]
    await turn()
    assert [command.opaque for command in end.transport.take()] == [0, 1, 2]
    assert end.connection.pending == 3
    end.receive(answered(2, b"c"), answered(0, b"a"))
    end.receive(answered(1, b"b"))
    assert [(await future).body for future in futures] == [b"a", b"b", b"c"]
    assert end.connection.pending == 0


async def test_everything_of_one_turn_is_one_write() -> None:
    end = End()
    for _ in range(3):
        ask(end)
    assert end.transport.written == []
    await turn()
    assert len(end.transport.written) == 1
    assert end.connection.sent_bytes == len(end.transport.written[0])


async def test_a_request_goes_out_in_json_whatever_it_came_in() -> None:
    """Toward a broker the binary header would cut the code of a POP."""
    end = End()
    for send in (lambda command: end.connection.request(command, 3.0), end.connection.oneway):
        command = commands.request(RequestCode.POP_MESSAGE)
        command.serialize_type = 1
        send(command)
    await turn()
    assert [(sent.code, sent.serialize_type) for sent in end.transport.take()] == [(RequestCode.POP_MESSAGE, 0)] * 2


async def test_a_request_times_out() -> None:
    end = End()
    future = ask(end, timeout=3.0)
    end.pass_time(2.9)
    assert not future.done()
    end.pass_time(0.3)
    with pytest.raises(RequestTimeout, match="peer"):
        await future
    assert end.connection.pending == 0


async def test_a_late_answer_is_ignored() -> None:
    end = End()
    future = ask(end)
    end.pass_time(5.0)
    end.receive(answered(0), answered(77))
    with pytest.raises(RequestTimeout):
        await future
    assert not end.transport.closing


async def test_an_answer_ends_the_timeout() -> None:
    end = End()
    future = ask(end)
    end.receive(answered(0))
    end.pass_time(5.0)
    assert (await future).code == ResponseCode.SUCCESS


async def test_a_cancelled_request_takes_no_answer() -> None:
    end = End()
    first, second = ask(end), ask(end)
    first.cancel()
    second.cancel()
    end.receive(answered(0))
    end.pass_time(5.0)
    assert first.cancelled()
    assert second.cancelled()
    assert end.connection.pending == 0


async def test_a_cancelled_request_cannot_be_lost() -> None:
    end = End()
    future = ask(end)
    future.cancel()
    end.connection.connection_lost(None)
    assert future.cancelled()


async def test_a_forgotten_request_takes_no_answer() -> None:
    end = End()
    future = ask(end)
    end.connection.expire_request(0, 1.0)
    end.receive(answered(0))
    assert not future.done()


async def test_a_future_may_be_given() -> None:
    end = End()
    future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    assert ask(end, future=future) is future
    end.receive(answered(0, b"x"))
    assert (await future).body == b"x"


async def test_opaques_wrap_around_and_pass_over_those_in_use() -> None:
    end = End()
    end.connection._opaque = 2**31 - 1
    first, second = ask(end), ask(end)
    # Come round once more: 2147483647 and 0 are still in use.
    end.connection._opaque = 2**31 - 1
    third = ask(end)
    await turn()
    assert [command.opaque for command in end.transport.take()] == [2**31 - 1, 0, 1]
    end.receive(answered(1, b"3"), answered(0, b"2"), answered(2**31 - 1, b"1"))
    assert [(await future).body for future in (first, second, third)] == [b"1", b"2", b"3"]


async def test_a_oneway_request_waits_for_nothing() -> None:
    end = End()
    end.connection.oneway(commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))
    await turn()
    [sent] = end.transport.take()
    assert sent.is_oneway
    assert end.connection.pending == 0


# The end of a connection.


@pytest.mark.parametrize(("error", "cause"), [(None, CloseCause.PEER), (ConnectionResetError(), CloseCause.RESET)])
async def test_a_lost_connection_fails_its_requests(error: Exception | None, cause: CloseCause) -> None:
    end = End()
    futures = [ask(end), ask(end)]
    end.connection.connection_lost(error)
    for future in futures:
        with pytest.raises(ConnectionLost, match="peer"):
            await future
    assert end.closed == [end.connection]
    assert end.connection.cause is cause
    end.connection.connection_lost(None)
    assert end.closed == [end.connection]


async def test_requests_on_a_closed_connection_fail() -> None:
    end = End()
    end.connection.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await ask(end)
    end.connection.oneway(commands.request(1))
    await turn()
    assert end.transport.written == []


@pytest.mark.parametrize("closed_before", [True, False])
async def test_the_lost_hook_takes_a_request_over(closed_before: bool) -> None:
    end, other = End(), End()
    taken: list[RemotingCommand] = []

    def lost(command: RemotingCommand, future: "asyncio.Future[RemotingCommand]") -> None:
        taken.append(command)
        other.connection.request(command, 3.0, future)

    if closed_before:
        end.connection.connection_lost(None)
    future = ask(end, lost=lost)
    end.connection.connection_lost(None)
    end.pass_time(5.0)
    other.receive(answered(0, b"from the other"))
    assert (await future).body == b"from the other"
    assert len(taken) == 1


async def test_the_lost_hook_is_not_called_for_what_has_ended() -> None:
    end = End()
    called: list[RemotingCommand] = []
    done, late, cancelled = (ask(end, timeout=1.0, lost=lambda command, _: called.append(command)) for _ in range(3))
    cancelled.cancel()
    end.receive(answered(0))
    end.pass_time(5.0)
    end.connection.connection_lost(None)
    assert called == []
    assert (await done).code == ResponseCode.SUCCESS
    with pytest.raises(RequestTimeout):
        await late


async def test_close_lets_what_is_written_out() -> None:
    end = End()
    end.connection.oneway(commands.request(1))
    end.connection.close(CloseCause.DRAIN)
    end.connection.close(CloseCause.IDLE)
    assert len(end.transport.take()) == 1
    await turn()
    assert end.connection.cause is CloseCause.DRAIN
    assert end.closed == [end.connection]
    assert not end.transport.aborted


async def test_close_does_not_wait_for_a_peer_that_does_not_read() -> None:
    end = End()
    end.connection.pause_writing()
    end.connection.oneway(commands.request(1))
    end.connection.close(CloseCause.DRAIN)
    await turn()
    assert end.transport.aborted
    assert end.connection.cause is CloseCause.DRAIN
    assert end.closed == [end.connection]


async def test_abort_drops_what_is_not_written() -> None:
    end = End()
    end.connection.oneway(commands.request(1))
    end.connection.abort(CloseCause.LOCAL)
    await turn()
    assert end.connection.cause is CloseCause.LOCAL
    assert end.transport.aborted


# Requests of the peer.


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_answers_go_out_as_they_come(serialize_type: int) -> None:
    end = End()
    end.receive(*(numbered(opaque, serialize_type=serialize_type) for opaque in (5, -6, 7)))
    for index in (2, 0, 1):
        end.replies[index].set_result(commands.success(body=str(index).encode()))
        await turn()
    sent = end.transport.take()
    assert [(one.opaque, one.body) for one in sent] == [(7, b"2"), (5, b"0"), (-6, b"1")]
    assert all(one.is_response and one.serialize_type == serialize_type for one in sent)
    assert end.connection.in_flight == 0


async def test_forwarding_leaves_the_answer_its_own_opaque() -> None:
    """The forwarded command is the one that came: it has another opaque and encoding by then."""
    broker = End()
    client = End(lambda _, command: broker.connection.request(command, 3.0))
    broker.connection._opaque = 1000
    client.receive(numbered(5, serialize_type=1))
    await turn()
    assert [one.opaque for one in broker.transport.take()] == [1000]
    broker.receive(answered(1000, b"x"))
    await turn()
    [sent] = client.transport.take()
    assert (sent.opaque, sent.serialize_type, sent.body) == (5, 1, b"x")


def _raises(error: Exception) -> Handler:
    def handler(_: RemotingConnection, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        raise error

    return handler


def _fails(error: Exception) -> Handler:
    def handler(_: RemotingConnection, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        reply: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        reply.set_exception(error)
        return reply

    return handler


@pytest.mark.parametrize("how", [_raises, _fails])
async def test_a_failure_is_answered_with_its_code(how: Callable[[Exception], Handler]) -> None:
    end = End(how(TopicNotExist("no topic T")))
    end.receive(numbered(3))
    await turn()
    [sent] = end.transport.take()
    assert (sent.opaque, sent.code, sent.remark) == (3, ResponseCode.TOPIC_NOT_EXIST, "no topic T")


async def test_any_other_failure_tells_the_peer_nothing(caplog: pytest.LogCaptureFixture) -> None:
    end = End(_fails(ValueError("secret")))
    end.receive(numbered(3))
    await turn()
    [sent] = end.transport.take()
    assert (sent.code, sent.remark) == (ResponseCode.SYSTEM_ERROR, "internal error")
    assert "secret" in caplog.text


async def test_a_request_that_was_given_up_is_answered() -> None:
    end = End()
    end.receive(numbered(3))
    end.replies[0].cancel()
    await turn()
    [sent] = end.transport.take()
    assert sent.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("handler", [None, _raises(GoAway("closing")), _fails(GoAway("closing")), _fails(ValueError())])
async def test_a_oneway_request_is_never_answered(handler: Handler | None) -> None:
    end = End(handler)
    end.receive(numbered(3, oneway=True))
    for reply in end.replies:
        reply.set_result(commands.success())
    await turn()
    assert end.transport.written == []
    assert end.connection.in_flight == 0


async def test_a_handler_may_give_no_answer() -> None:
    end = End(lambda *_: None)
    end.receive(numbered(3))
    await turn()
    assert end.transport.written == []
    assert end.connection.in_flight == 0


async def test_an_answer_for_a_peer_that_has_gone_is_dropped() -> None:
    end = End()
    end.receive(numbered(3))
    end.connection.connection_lost(None)
    end.replies[0].set_result(commands.success())
    await turn()
    assert end.transport.written == []


# Bytes that cannot be.


def _json_frame(header: object) -> bytes:
    raw = orjson.dumps(header)
    return encode_prefix(0, len(raw), 0) + raw


async def test_a_wrong_header_is_answered() -> None:
    end = End()
    end.connection.data_received(_json_frame({"code": "x", "opaque": 8, "flag": 0}))
    end.receive(numbered(9))
    await turn()
    [sent] = end.transport.take()
    assert (sent.opaque, sent.code) == (8, ResponseCode.SYSTEM_ERROR)
    assert not end.transport.closing
    assert len(end.requests) == 1


@pytest.mark.parametrize("flag", [2, 6])
async def test_a_wrong_header_of_a_oneway_request_is_dropped(flag: int) -> None:
    end = End()
    end.connection.data_received(_json_frame({"code": "x", "opaque": 8, "flag": flag}))
    end.connection.data_received(_json_frame({"code": 1, "opaque": 8, "flag": flag, "extFields": 5}))
    end.receive(numbered(9))
    await turn()
    assert end.transport.written == []
    assert not end.transport.closing
    assert len(end.requests) == 1


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
async def test_what_cannot_be_answered_closes_the_connection(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    end = End()
    future = ask(end)
    end.connection.data_received(raw)
    with pytest.raises(ConnectionLost):
        await future
    assert end.connection.cause is CloseCause.PROTOCOL
    assert end.closed == [end.connection]
    assert "peer" in caplog.text


async def test_a_frame_over_the_limit_closes_the_connection() -> None:
    end = End(limits=Limits(frame=200))
    end.receive(numbered(1, bytes(200)))
    assert end.connection.cause is CloseCause.PROTOCOL


async def test_a_header_over_the_limit_closes_the_connection() -> None:
    end = End()
    end.connection.data_received(encode_prefix(0, MAX_HEADER + 1, 0))
    assert end.connection.cause is CloseCause.PROTOCOL


# Back-pressure.


async def test_rule_1_too_many_requests_stop_reading() -> None:
    end = End(limits=Limits(requests=2))
    end.receive(numbered(1))
    assert end.transport.is_reading()
    end.receive(numbered(2), numbered(3))
    assert not end.transport.is_reading()
    assert end.connection.in_flight == 2, "the third waits, although it came with the second"
    end.replies[0].set_result(commands.success())
    await turn()
    await turn()
    assert end.connection.in_flight == 2
    assert not end.transport.is_reading()
    end.replies[1].set_result(commands.success())
    await turn()
    assert end.transport.is_reading()
    assert len(end.replies) == 3


async def test_rule_1_requests_that_wait_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # No moment passes but by this test's own hand.
    monkeypatch.setattr(flow_control, "_POLL_DETECTION_TIME", 1_000.0)
    end = End(limits=Limits(requests=2, polls=5))
    end.receive(*map(numbered, range(1, 8)))
    served = []
    for _ in range(3):
        end.connection.raise_limit_for_polls()
        served.append(end.connection.in_flight)
        assert end.connection._full_since is not None
        end.connection._full_since -= 1_000.0
        end.connection.raise_limit_for_polls()
        await turn()
    assert served == [2, 4, 5], "a moment at the bound lets two more in, up to five"
    assert not end.transport.is_reading()
    for reply in list(end.replies)[:4]:
        reply.set_result(commands.success())
    await turn()
    await turn()
    assert end.connection.in_flight == 2, "back to the first bound"


async def test_rule_1_too_many_bytes_stop_reading() -> None:
    first, second = numbered(1, bytes(99)), numbered(2)
    size = sum(len(one.encode()) - 8 + len(one.body) for one in (first, second))
    for spare, reading in ((1, True), (0, False)):
        end = End(limits=Limits(request_bytes=size + spare))
        end.receive(first)
        assert end.transport.is_reading()
        end.receive(second)
        assert end.transport.is_reading() is reading, "headers count, too"
        end.replies[1].set_result(commands.success())
        await turn()
        assert end.transport.is_reading()


async def test_rule_1_counts_oneway_requests_for_as_long_as_they_take() -> None:
    end = End(limits=Limits(requests=2))
    end.receive(numbered(1, oneway=True), numbered(2, oneway=True))
    assert not end.transport.is_reading()
    assert end.connection.in_flight == 2
    end.replies[0].set_result(commands.success())
    await turn()
    assert end.transport.is_reading()
    end.replies[1].set_exception(ServiceUnavailable("gone"))
    await turn()
    assert end.connection.in_flight == 0
    assert end.transport.written == []


async def test_rule_1_does_not_count_oneway_requests_that_were_passed_on() -> None:
    end = End(lambda *_: None, limits=Limits(requests=1))
    end.receive(numbered(1, oneway=True))
    assert end.transport.is_reading()


async def test_rule_2_a_peer_that_does_not_read_is_not_read_from() -> None:
    end = End(limits=Limits(buffer=1000))
    assert end.transport.high == 1000
    end.connection.pause_writing()
    assert not end.transport.is_reading()
    end.connection.resume_writing()
    assert end.transport.is_reading()


@pytest.mark.parametrize(("buffered", "cut_off"), [(5000, False), (5001, True)])
async def test_rule_2_a_slow_reader_is_cut_off(buffered: int, cut_off: bool) -> None:
    end = End(limits=Limits(buffer=1000, hard_buffer=5000))
    end.connection.pause_writing()
    end.transport.buffer_size = buffered
    end.connection.oneway(commands.request(1))
    await turn()
    assert end.transport.aborted is cut_off
    assert end.connection.closed is cut_off
    assert end.connection.cause is (CloseCause.SLOW_READER if cut_off else None)


async def test_rule_3_who_feeds_a_congested_connection_waits() -> None:
    broker, first, second = End(), End(), End()
    broker.connection.pause_until_drained(first.connection)
    assert first.transport.is_reading()
    broker.connection.pause_writing()
    broker.connection.pause_until_drained(first.connection)
    broker.connection.pause_until_drained(first.connection)
    broker.connection.pause_until_drained(second.connection)
    assert not first.transport.is_reading()
    assert not second.transport.is_reading()
    broker.connection.resume_writing()
    assert first.transport.is_reading()
    assert second.transport.is_reading()


async def test_whom_a_connection_holds_it_holds_once() -> None:
    broker, client = End(), End()
    for _ in range(2):
        broker.connection.pause_writing()
        broker.connection.pause_until_drained(client.connection)
        broker.connection.pause_until_drained(client.connection)
        assert not client.transport.is_reading()
        broker.connection.resume_writing()
        assert client.transport.is_reading()


async def test_a_client_that_does_not_answer_in_time_keeps_its_connection() -> None:
    end = End()
    future = ask(end, timeout=3.0)
    end.connection.read_at -= 60
    end.pass_time(3.2)
    with pytest.raises(RequestTimeout):
        await future
    assert not end.transport.closing


async def test_rule_3_ends_with_the_connection() -> None:
    broker, client = End(), End()
    broker.connection.pause_writing()
    broker.connection.pause_until_drained(client.connection)
    broker.connection.connection_lost(None)
    assert client.transport.is_reading()
    assert not broker.connection.congested


async def test_reading_goes_on_only_when_every_rule_allows_it() -> None:
    client, broker = End(limits=Limits(requests=1)), End()
    client.receive(numbered(1))
    client.connection.pause_writing()
    broker.connection.pause_writing()
    broker.connection.pause_until_drained(client.connection)
    reasons: list[Callable[[], None]] = [
        lambda: client.replies[0].set_result(commands.success()),
        client.connection.resume_writing,
        broker.connection.resume_writing,
    ]
    for lift in reasons:
        assert not client.transport.is_reading()
        lift()
        await turn()
    assert client.transport.is_reading()


async def test_a_closing_transport_is_neither_paused_nor_resumed() -> None:
    end = End()
    end.connection.pause()
    end.transport.closing = True
    end.connection.resume()
    end.connection.pause()
    assert not end.transport.is_reading()


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
        await turn()


def _echo(connection: RemotingConnection, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
    reply: asyncio.Future[RemotingCommand] = connection.loop.create_future()
    reply.set_result(commands.success(command.fields, command.body))
    return reply


async def test_many_requests_both_ways() -> None:
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


async def test_a_peer_that_never_reads_is_cut_off() -> None:
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


async def test_a_peer_that_closes() -> None:
    pair = await Pair().open(lambda *_: None)
    future = pair.client.request(commands.request(1), 30.0)
    await turn()
    pair.server.close(CloseCause.DRAIN)
    with pytest.raises(ConnectionLost):
        await future
    assert pair.client.cause is CloseCause.PEER
    assert pair.client.closed
    await pair.close()


@pytest.mark.parametrize("large", ["header", "body"])
async def test_a_request_that_no_peer_would_take_is_not_sent(large: str) -> None:
    """An official server closes the connection over it, and everybody's requests on it are lost."""
    end = End()
    text = "x" * MAX_FRAME
    command = commands.request(1, {"text": text}) if large == "header" else commands.request(1, body=text.encode())
    with pytest.raises(InvalidRequest):
        await end.connection.request(command, 5.0)
    end.connection.oneway(command)
    await turn()
    assert end.transport.written == []
    end.connection.request(commands.request(1), 5.0)
    await turn()
    assert len(end.transport.written) == 1
