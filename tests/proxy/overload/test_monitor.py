"""The monitor of the memory: its levels, and the actions of each."""

import asyncio
import logging

import pytest

from proxy.overload.monitor import Level
from proxy.settings.limits import LimitSettings
from remoting.codes import RequestCode
from remoting.errors import Overloaded
from remoting.outcomes import Reply
from tests.proxy.fakes import Clock
from tests.proxy.overload.fakes import MIB
from tests.proxy.overload.stage import Stage, request_context

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_below_the_soft_bound_nothing_happens(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(responses=200)
    assert on.measure(383) is Level.NORMAL
    assert (on.closed, on.refusals) == ([], [])


async def test_memory_that_may_be_free_is_returned_below_the_soft_bound_too(clock: Clock) -> None:
    on = Stage(clock)
    on.measure(104)
    assert on.process.trims == 0
    on.process.freed = 100 * MIB
    on.measure(300)
    assert (on.process.trims, on.overload.memory) == (1, 200 * MIB)


async def test_levels_end_below_the_bounds_at_which_they_begin(clock: Clock) -> None:
    on = Stage(clock)
    levels = [on.measure(mib) for mib in (384, 350, 345, 383, 448, 390, 383, 350, 340)]
    soft, normal, hard = Level.SOFT, Level.NORMAL, Level.HARD
    assert levels == [soft, soft, normal, normal, hard, hard, soft, soft, normal]


async def test_at_the_soft_bound_connections_over_their_share_are_not_read_until_it_ends(clock: Clock) -> None:
    on = Stage(clock)
    large, small = on.connect(unfinished=90), on.connect(requests=1)
    on.measure(400)
    assert large.pauses == 0
    clock.now += 1.1
    on.measure(400)
    on.measure(400)
    assert (large.pauses, small.pauses, on.overload.counts["pause"]) == (1, 0, 1)
    on.measure(300)
    assert (large.pauses, on.closed) == (0, [])


async def test_a_connection_that_stays_paused_is_closed(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(unfinished=90)
    on.connect(unfinished=1)
    for _ in range(34):
        on.measure(400)
        clock.now += 1
    assert on.closed == [0]


async def test_freed_memory_is_returned_before_load_is_shed(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(responses=100)
    on.process.freed = 200 * MIB
    assert on.measure(460) is Level.NORMAL
    assert on.closed == []


async def test_memory_that_cannot_be_returned_is_tried_less_often(clock: Clock) -> None:
    on = Stage(clock)
    for _ in range(100):
        on.measure(400)
        clock.now += 0.1
    assert 4 <= on.process.trims <= 7


async def test_memory_is_returned_often_and_thoroughly_after_an_overload(clock: Clock) -> None:
    """Connections that have ended release their memory step by step."""
    on = Stage(clock)
    on.measure(460)
    clock.now += 10
    on.measure(300)
    on.process.trims = 0
    for _ in range(100):
        on.measure(300)
        clock.now += 0.1
    assert 9 <= on.process.trims <= 14
    assert on.process.thorough_trims == on.process.trims
    clock.now += 20
    on.process.trims = on.process.thorough_trims = 0
    for _ in range(200):
        on.measure(300)
        clock.now += 0.1
    assert 1 <= on.process.trims <= 8
    assert on.process.thorough_trims == 0


async def test_at_the_hard_bound_the_largest_connections_are_closed_down_to_the_soft_bound(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    on = Stage(clock)
    for mib in (10, 50, 20, 40):
        on.connect(unfinished=mib)
    on.connections[1].channel.session.client_id = "hog@1"
    with caplog.at_level(logging.WARNING, "gantry.overload"):
        assert on.measure(470) is Level.HARD
    # 86 MiB over the soft bound.
    assert on.closed == [1, 3]
    assert on.refusals == ["470 MiB of memory are in use, of at most 512 MiB"]
    [line] = [record.message for record in caplog.records if "closing" in record.message]
    assert "closing 2 connections that hold 90 MiB" in line
    assert "192.0.2.7:50000, client hog@1 (unfinished 52428800, requests 0, unread responses 0)" in line
    # Their memory is freed in the next turns.
    on.overload.check()
    assert on.closed == [1, 3]
    await asyncio.sleep(0.05)
    assert on.overload.level is Level.SOFT
    assert on.refusals[-1] is None
    assert on.overload.counts["close"] == 2


async def test_connections_that_hold_little_are_not_closed(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(unfinished=40)
    on.connect().held_request_bytes = 8192
    assert on.measure(500) is Level.HARD
    assert on.closed == [0]


async def test_an_old_connection_is_closed_before_a_larger_new_one(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(responses=70)
    on.measure(400)
    clock.now += 0.9
    on.connect(responses=90)
    # 66 MiB over the soft bound.
    assert on.measure(450) is Level.HARD
    assert on.closed == [0]


async def test_requests_are_refused_only_if_closing_connections_was_not_enough(clock: Clock) -> None:
    on = Stage(clock)
    on.connect(responses=30)
    assert on.measure(500) is Level.HARD
    on.request()
    on.connect(responses=30)
    clock.now += 1.1
    on.measure(500)
    with pytest.raises(Overloaded, match="too little memory"):
        on.request()
    on.request(RequestCode.ACK_MESSAGE)
    assert on.overload.counts["refuse_request"] == 1
    on.measure(380)
    on.request()


async def test_requests_are_served_if_the_connections_do_not_hold_the_memory(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    on = Stage(clock)
    for _ in range(3):
        assert on.measure(500) is Level.HARD
        clock.now += 1
    on.request()
    assert "but connections hold 0 MiB only" in caplog.text


async def test_unfinished_requests_have_a_bound_between_measurements(clock: Clock) -> None:
    on = Stage(clock)
    for mib in (40, 30, 30, 20):
        on.connect(unfinished=mib)
    on.overload.watch.hold(128 * MIB)
    assert on.closed == []
    on.overload.watch.hold(1)
    # Down to three quarters of 128 MiB.
    assert on.closed == [0]


async def test_moved_bytes_bring_a_measurement_forward(clock: Clock) -> None:
    on = Stage(clock)
    on.process.size = 400 * MIB
    on.overload.watch.move(8 * MIB)
    assert on.overload.memory == 80 * MIB
    on.overload.watch.move(1)
    assert (on.overload.memory, on.overload.level) == (400 * MIB, Level.SOFT)


async def test_over_the_budget_the_polls_of_the_largest_connection_end(clock: Clock) -> None:
    on = Stage(clock, total_bytes=100 * MIB)
    large, small = on.connect(requests=80), on.connect(requests=1)
    polls = []
    for connection in (large, small):
        poll: Reply = asyncio.Future()
        connection.channel.session.polls[poll] = request_context(RequestCode.PULL_MESSAGE)
        polls.append(poll)
    on.budget.used = 101 * MIB
    on.request()
    assert [poll.done() for poll in polls] == [True, False]
    with pytest.raises(Overloaded):
        polls[0].result()
    polls[1].cancel()
    assert on.overload.counts["end_poll"] == 1
    # Polls that have ended are counted for a moment; above a quarter more, requests are refused.
    on.budget.used = 126 * MIB
    with pytest.raises(Overloaded, match="in flight"):
        on.request()


async def test_new_limits_apply_at_once(clock: Clock) -> None:
    on = Stage(clock)
    on.overload.apply(LimitSettings(memory=1024 * MIB, total_bytes=7, unfinished_bytes=9))
    assert (on.overload.ceiling.memory, on.budget.limit, on.overload.watch.max_unfinished) == (1024 * MIB, 7, 9)


async def test_a_ceiling_that_is_too_low_is_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    Stage(clock).overload.apply(LimitSettings(memory=128 * MIB))
    assert "limits.memory is raised to 144 MiB for this process: 80 MiB are used at the start" in caplog.text
