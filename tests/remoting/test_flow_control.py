import asyncio
import math
from collections.abc import Callable

import pytest

from protocol_negotiation.fair_turns import LARGE_READ, FairTurns
from remoting import command as commands
from remoting import flow_control
from remoting.close_cause import CloseCause
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import (
    ServiceUnavailable,
)
from remoting.flow_control import Limits
from remoting.frame import FrameDecoder
from remoting.memory_watch import LARGE, MemoryWatch
from remoting.outcomes import Reply
from tests.remoting.fake_transport import Side, peer_request, run_ready

pytestmark = pytest.mark.anyio


async def test_reads_pause_at_the_limit_of_in_flight_requests() -> None:
    side = Side(limits=Limits(requests=2))
    side.receive(peer_request(1))
    assert side.transport.is_reading()
    side.receive(peer_request(2), peer_request(3))
    assert not side.transport.is_reading()
    assert side.connection.in_flight == 2, "the third request waits in the backlog"
    side.replies[0].set_result(commands.success())
    await run_ready()
    await run_ready()
    assert side.connection.in_flight == 2
    assert not side.transport.is_reading()
    side.replies[1].set_result(commands.success())
    await run_ready()
    assert side.transport.is_reading()
    assert len(side.replies) == 3


async def test_long_polls_raise_the_limit_of_in_flight_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # So long that only the test itself lets it elapse.
    monkeypatch.setattr(flow_control, "_POLL_DETECTION_TIME", 1_000.0)
    side = Side(limits=Limits(requests=2, polls=5))
    side.receive(*map(peer_request, range(1, 8)))
    served = []
    for _ in range(3):
        side.connection.raise_limit_for_polls()
        served.append(side.connection.in_flight)
        assert side.connection.full_since is not None
        side.connection.full_since -= 1_000.0
        side.connection.raise_limit_for_polls()
        await run_ready()
    assert served == [2, 4, 5], "each detection time at the limit raises it by two, up to five"
    assert not side.transport.is_reading()
    for reply in list(side.replies)[:4]:
        reply.set_result(commands.success())
    await run_ready()
    await run_ready()
    assert side.connection.in_flight == 2, "the limit is the initial one again"


async def test_reads_pause_at_the_limit_of_in_flight_bytes() -> None:
    first, second = peer_request(1, bytes(99)), peer_request(2)
    [frame] = FrameDecoder().feed(first.encode() + first.body)
    [other] = FrameDecoder().feed(second.encode())
    size = commands.decode(frame).memory + commands.decode(other).memory
    for spare, reading in ((1, True), (0, False)):
        side = Side(limits=Limits(request_bytes=size + spare))
        side.receive(first)
        assert side.transport.is_reading()
        side.receive(second)
        assert side.transport.is_reading() is reading, "headers count as well"
        side.replies[1].set_result(commands.success())
        await run_ready()
        assert side.transport.is_reading()


async def test_oneway_requests_are_in_flight_until_their_reply_ends() -> None:
    side = Side(limits=Limits(requests=2))
    side.receive(peer_request(1, oneway=True), peer_request(2, oneway=True))
    assert not side.transport.is_reading()
    assert side.connection.in_flight == 2
    side.replies[0].set_result(commands.success())
    await run_ready()
    assert side.transport.is_reading()
    side.replies[1].set_exception(ServiceUnavailable("gone"))
    await run_ready()
    assert side.connection.in_flight == 0
    assert side.transport.written == []


async def test_oneway_requests_without_a_reply_are_not_in_flight() -> None:
    side = Side(lambda *_: None, limits=Limits(requests=1))
    side.receive(peer_request(1, oneway=True))
    assert side.transport.is_reading()


async def test_reads_pause_while_the_write_buffer_is_full() -> None:
    side = Side(limits=Limits(buffer=1000))
    assert side.transport.high == 1000
    side.connection.pause_writing()
    assert not side.transport.is_reading()
    side.connection.resume_writing()
    assert side.transport.is_reading()


@pytest.mark.parametrize(("buffered", "closed"), [(5000, False), (5001, True)])
async def test_a_write_buffer_over_the_hard_limit_closes_the_connection(buffered: int, closed: bool) -> None:
    side = Side(limits=Limits(buffer=1000, hard_buffer=5000))
    side.connection.pause_writing()
    side.transport.buffer_size = buffered
    side.connection.oneway(commands.request(1))
    await run_ready()
    assert side.transport.aborted is closed
    assert side.connection.closed is closed
    assert side.connection.cause is (CloseCause.SLOW_READER if closed else None)


async def test_sources_of_a_congested_connection_pause_until_it_drains() -> None:
    broker, first, second = Side(), Side(), Side()
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


async def test_a_source_is_paused_once_however_often_it_is_reported() -> None:
    broker, client = Side(), Side()
    for _ in range(2):
        broker.connection.pause_writing()
        broker.connection.pause_until_drained(client.connection)
        broker.connection.pause_until_drained(client.connection)
        assert not client.transport.is_reading()
        broker.connection.resume_writing()
        assert client.transport.is_reading()


async def test_sources_resume_when_the_congested_connection_ends() -> None:
    broker, client = Side(), Side()
    broker.connection.pause_writing()
    broker.connection.pause_until_drained(client.connection)
    broker.connection.connection_lost(None)
    assert client.transport.is_reading()
    assert not broker.connection.congested


async def test_reads_resume_only_when_no_limit_applies() -> None:
    client, broker = Side(limits=Limits(requests=1)), Side()
    client.receive(peer_request(1))
    client.connection.pause_writing()
    broker.connection.pause_writing()
    broker.connection.pause_until_drained(client.connection)
    releases: list[Callable[[], None]] = [
        lambda: client.replies[0].set_result(commands.success()),
        client.connection.resume_writing,
        broker.connection.resume_writing,
    ]
    for release in releases:
        assert not client.transport.is_reading()
        release()
        await run_ready()
    assert client.transport.is_reading()


async def test_a_closing_transport_is_neither_paused_nor_resumed() -> None:
    side = Side()
    side.connection.pause()
    side.transport.closing = True
    side.connection.resume()
    side.connection.pause()
    assert not side.transport.is_reading()


async def test_a_large_response_is_written_at_once() -> None:
    """Only then does the transport know how much the peer has not read."""
    side = Side()
    side.receive(peer_request(1), peer_request(2))
    side.replies[0].set_result(commands.success(body=bytes(LARGE)))
    side.replies[1].set_result(commands.success(body=bytes(10)))
    written: list[int] = []
    side.connection.memory = MemoryWatch()
    side.connection.memory.stride = LARGE - 1
    side.connection.memory.on_stride = lambda: written.append(len(side.transport.written))
    await run_ready()
    assert written == [0]
    assert [len(command.body) for command in side.transport.take()] == [LARGE, 10]


async def test_unfinished_requests_are_counted_over_all_connections() -> None:
    first, second = Side(), Side()
    watch = first.connection.memory = second.connection.memory = MemoryWatch()
    request = peer_request(1, bytes(5000))
    frame = request.encode() + request.body
    first.connection.data_received(frame[:3000])
    second.connection.data_received(frame[:1000])
    assert watch.unfinished == 4000
    first.connection.data_received(frame[3000:] + frame[:10])
    assert watch.unfinished == 1010
    first.connection.connection_lost(None)
    assert watch.unfinished == 1000
    watch.max_unfinished, watch.on_full = 1500, second.connection.shed
    second.connection.data_received(frame[1000:2000])
    assert (watch.unfinished, second.transport.aborted, second.connection.cause) == (0, True, CloseCause.OVERLOAD)


@pytest.mark.parametrize(("read_bytes", "closed"), [(0, True), (60 * 16 * 1024, True), (70 * 16 * 1024, False)])
async def test_a_peer_that_reads_too_slowly_is_disconnected(
    read_bytes: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side()
    now = side.connection.loop.time()

    class Loop:
        time = staticmethod(lambda: now)

    monkeypatch.setattr(side.connection, "loop", Loop)
    side.connection.sent_bytes = side.transport.buffer_size = 5_000_000
    side.connection.pause_writing()
    side.connection.check_unread_responses(60)
    now += 61
    side.transport.buffer_size -= read_bytes
    side.connection.check_unread_responses(60)
    assert side.transport.aborted is closed
    assert side.connection.cause is (CloseCause.SLOW_READER if closed else None)


async def test_waiting_requests_are_processed_when_the_peer_has_read_its_responses() -> None:
    side = Side(limits=Limits(requests=1))
    side.receive(peer_request(1), peer_request(2))
    side.connection.pause_writing()
    side.replies[0].set_result(commands.success())
    await run_ready()
    assert len(side.requests) == 1
    side.connection.resume_writing()
    await run_ready()
    assert len(side.requests) == 2


async def test_a_large_read_is_the_last_of_its_turn() -> None:
    side = Side(limits=Limits(frame=2**24))
    side.connection._turns = FairTurns(side.connection.loop)
    request = peer_request(1, bytes(3 * LARGE))
    frame = request.encode() + request.body
    side.connection.data_received(frame[:LARGE])
    assert not side.transport.is_reading()
    await run_ready()
    assert side.transport.is_reading()
    assert side.connection.pauses == 0
    side.connection.data_received(frame[LARGE : LARGE + 100])
    assert side.transport.is_reading()


async def test_one_large_reply_is_made_at_a_time() -> None:
    handled: list[int] = []

    def handle(_: RemotingConnection, command: RemotingCommand) -> Reply:
        handled.append(command.opaque)
        reply: Reply = asyncio.get_running_loop().create_future()
        reply.set_result(commands.success(body=bytes(LARGE)))
        return reply

    side = Side(handle)
    side.receive(*map(peer_request, range(4)))
    assert handled == [0]
    for _ in range(5):
        await run_ready()
    assert handled == [0, 1, 2, 3]
    assert [command.opaque for command in side.transport.take()] == handled
    assert side.transport.is_reading()


async def test_reads_pause_when_more_arrives_while_frames_wait() -> None:
    side = Side(limits=Limits(requests=2 * LARGE_READ))
    # Turns begin in the next turn of the event loop, which this test does not reach.
    side.connection._turns = FairTurns(side.connection.loop)
    side.receive(*map(peer_request, range(LARGE_READ + 1)))
    assert (side.connection.waiting_frames, side.connection.pauses) == (LARGE_READ + 1, 0)
    side.receive(peer_request(100))
    side.receive(peer_request(101))
    assert (side.connection.waiting_frames, side.connection.pauses) == (LARGE_READ + 3, 1)
    assert not side.transport.is_reading()
    assert not side.connection.handle_more(math.inf)
    assert len(side.requests) == LARGE_READ + 3
    assert side.transport.is_reading()
