"""Floods of frames from servers: many small responses, to requests and to none."""

import asyncio
from functools import partial

import pytest

from proxy.backends.cluster import server_turns
from proxy.backends.cluster.server_turns import ServerTurns
from proxy.backends.cluster.upstream import MAX_UNKNOWN, Upstream
from proxy.observability.metrics.upstream import UpstreamCounts
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost, UnsupportedRequest
from remoting.frame import encode_prefix
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel
from tests.remoting.fake_transport import Clock, FakeTransport, peer_response

pytestmark = pytest.mark.anyio

MANY = 200


class Link:
    """A connection to a server on a fake transport."""

    def __init__(self, turns: ServerTurns) -> None:
        self.clock = Clock()
        self.wheel = TimeoutWheel(self.clock)
        self.connection = Upstream(self.wheel, _refuse, lambda _: None, "broker-a", turns)
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def ask(self, count: int = MANY) -> list[Reply]:
        return [self.connection.request(commands.request(RequestCode.GET_MAX_OFFSET), 3.0) for _ in range(count)]

    def receive(self, opaques: range) -> None:
        responses = [peer_response(opaque) for opaque in opaques]
        self.connection.data_received(b"".join(response.encode() for response in responses))


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"request {command.code}")


@pytest.fixture
async def turns() -> ServerTurns:
    return ServerTurns(asyncio.get_running_loop())


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a turn be over at once."""
    monkeypatch.setattr(server_turns, "TURN_SECONDS", 1e-9)


def _note(done: list[int], number: int, _: Reply) -> None:
    done.append(number)


async def _until_handled(link: Link) -> int:
    """Wait until no frames wait; return the number of turns of the event loop."""
    for turn in range(10 * MANY):
        if not link.connection.waiting_frames:
            return turn
        await asyncio.sleep(0)
    raise AssertionError(f"{link.connection.waiting_frames} frames still wait")


async def test_frames_within_the_time_of_a_turn_are_handled_at_once(
    turns: ServerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine may be busy.
    monkeypatch.setattr(server_turns, "TURN_SECONDS", 60.0)
    link = Link(turns)
    futures = link.ask(64)
    link.receive(range(64))
    assert all(future.done() for future in futures)
    assert (len(turns), turns.divided) == (0, 0)


@pytest.mark.usefixtures("short")
async def test_many_frames_are_handled_in_several_turns_in_their_order(turns: ServerTurns) -> None:
    link = Link(turns)
    done: list[int] = []
    for number, future in enumerate(link.ask()):
        future.add_done_callback(partial(_note, done, number))
    link.receive(range(MANY // 2))
    assert 0 < link.connection.responses < MANY // 2
    assert link.transport.is_reading(), "a pause costs system calls"
    link.receive(range(MANY // 2, MANY))
    assert not link.transport.is_reading()
    assert await _until_handled(link) > 1
    await asyncio.sleep(0)
    assert done == list(range(MANY))
    assert link.transport.is_reading()
    assert (len(turns), turns.divided) == (0, 1)


@pytest.mark.usefixtures("short")
async def test_connections_take_turns(turns: ServerTurns) -> None:
    flooded, other = Link(turns), Link(turns)
    flooded.receive(range(5_000))
    futures = other.ask(40)
    other.receive(range(40))
    await _until_handled(other)
    assert all(future.done() for future in futures)
    assert flooded.connection.waiting_frames > 4_000


@pytest.mark.usefixtures("short")
async def test_waiting_frames_are_handled_while_the_server_does_not_read(turns: ServerTurns) -> None:
    """A server that cannot write stops reading: both sides would wait for each other."""
    link = Link(turns)
    futures = link.ask()
    link.connection.pause_writing()
    link.receive(range(MANY))
    await _until_handled(link)
    assert all(future.done() for future in futures)


@pytest.mark.usefixtures("short")
async def test_responses_before_the_end_of_a_connection_are_used(turns: ServerTurns) -> None:
    link = Link(turns)
    futures = link.ask(MANY + 1)
    link.receive(range(MANY))
    link.connection.connection_lost(None)
    assert [future.exception() is None for future in futures] == [True] * MANY + [False]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(turns) == 0


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("waiting", [0, MANY // 2], ids=["at once", "behind frames that wait"])
async def test_responses_before_an_invalid_frame_are_used(turns: ServerTurns, waiting: int) -> None:
    link = Link(turns)
    futures = link.ask(MANY + 1)
    link.receive(range(waiting))
    responses = b"".join(peer_response(opaque).encode() for opaque in range(waiting, MANY))
    link.connection.data_received(responses + b"\xff" * 64)
    await _until_handled(link)
    link.connection.connection_lost(None)
    assert [future.exception() is None for future in futures] == [True] * MANY + [False]
    assert link.connection.cause is CloseCause.PROTOCOL


@pytest.mark.usefixtures("short")
async def test_a_flood_of_invalid_headers_ends_the_connection_once(turns: ServerTurns) -> None:
    link = Link(turns)
    (future,) = link.ask(1)
    invalid = encode_prefix(0, 2, 0) + b"[]"
    link.connection.data_received(peer_response(99).encode() * 20 + invalid * 5_000)
    link.connection.data_received(b"\xff" * 64)
    await _until_handled(link)
    assert (link.connection.undecodable, link.connection.cause) == (1, CloseCause.PROTOCOL)
    link.connection.connection_lost(None)
    assert future.exception() is not None


async def test_responses_to_no_request_are_counted_and_close_the_connection(turns: ServerTurns) -> None:
    link, counts = Link(turns), UpstreamCounts()
    counts.opened(link.connection)
    futures = link.ask(2)
    first, again = range(1_000, 1_000 + MAX_UNKNOWN - 1), range(1_000, 1_000 + MAX_UNKNOWN)
    link.receive(first)
    await _until_handled(link)
    link.receive(range(1))
    assert futures[0].done()
    link.receive(first)
    await _until_handled(link)
    assert not link.transport.closing, "a response to a request came between them"
    assert link.connection.unknown_responses == 2 * MAX_UNKNOWN - 2
    link.receive(again)
    await _until_handled(link)
    assert link.connection.cause is CloseCause.PROTOCOL
    assert link.transport.aborted
    with pytest.raises(ConnectionLost):
        await futures[1]
    metrics = {family.name: dict(samples) for family, samples in counts.read()}
    assert metrics["gantry_upstream_unknown_responses"] == {(): 2 * MAX_UNKNOWN - 1}


async def test_late_responses_are_not_unknown(turns: ServerTurns) -> None:
    link = Link(turns)
    futures = link.ask(MANY)
    # A connection that receives nothing for so long is closed.
    link.connection.read_at = link.connection.loop.time() + 60
    link.clock.now += 3.2
    link.wheel.advance()
    assert all(future.done() for future in futures)
    link.receive(range(MANY + 1))
    await _until_handled(link)
    assert link.connection.unknown_responses == 1
    # The exceptions of the requests that timed out.
    await asyncio.gather(*futures, return_exceptions=True)
