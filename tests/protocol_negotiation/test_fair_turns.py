"""Turns of connections with waiting frames."""

import asyncio
import time

import pytest

from protocol_negotiation import fair_turns
from protocol_negotiation.fair_turns import LARGE_READ, SMALL_READ, FairTurns
from protocol_negotiation.peer import HostPort
from tests.waiting import until

pytestmark = pytest.mark.anyio


class Waiting:
    """A connection with `slices` slices to handle, each of which takes `seconds` of CPU time."""

    def __init__(
        self, turns: FairTurns, name: str, slices: int, handled: list[str], seconds: float = 0.0, host: str = ""
    ) -> None:
        self.share = turns.join(HostPort(host or f"10.0.0.{ord(name)}", 1))
        self.name, self.slices, self.handled, self.seconds = name, slices, handled, seconds
        self.failed = False

    def handle_more(self, until: float) -> bool:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        self.handled.append(self.name)
        self.slices -= 1
        return self.slices > 0

    def fail(self) -> None:
        self.failed = True


class Failing(Waiting):
    def handle_more(self, until: float) -> bool:
        raise RuntimeError("failed")


async def _finished(turns: FairTurns) -> None:
    async with asyncio.timeout(30):
        while len(turns):
            await asyncio.sleep(0.001)


async def test_addresses_take_turns_and_connections_of_one_address_share_its_turns() -> None:
    handled: list[str] = []
    turns = FairTurns(asyncio.get_running_loop())
    for name, slices, host in (("a", 2, "10.0.0.1"), ("b", 2, "10.0.0.1"), ("c", 4, "10.0.0.2")):
        turns.add(Waiting(turns, name, slices, handled, host=host))
    await _finished(turns)
    assert handled == ["a", "c", "b", "c", "a", "c", "b", "c"]


async def test_other_work_runs_between_slices() -> None:
    handled: list[str] = []
    turns = FairTurns(asyncio.get_running_loop())
    turns.add(Waiting(turns, "a", 5, handled, seconds=0.003))
    for _ in range(5):
        await asyncio.sleep(0)
        handled.append("other")
    assert handled.count("a") <= handled.count("other") + 1


async def test_a_failing_connection_is_closed_and_does_not_stop_the_others() -> None:
    handled: list[str] = []
    turns = FairTurns(asyncio.get_running_loop())
    failing = Failing(turns, "b", 1, handled)
    turns.add(failing)
    turns.add(Waiting(turns, "a", 2, handled))
    await _finished(turns)
    assert handled == ["a", "a"]
    assert failing.failed


async def test_a_connection_alone_is_handled_at_once_and_beside_another_one_if_it_receives_little() -> None:
    turns = FairTurns(asyncio.get_running_loop())
    heavy, light = turns.join(HostPort("10.0.0.1", 1)), turns.join(HostPort("10.0.0.2", 1))
    turns.admit(heavy, 1, 100.0)
    # Nothing else was active for a while.
    assert turns.admit(heavy, LARGE_READ, 101.0)
    assert not turns.admit(heavy, LARGE_READ + 1, 101.0)
    assert turns.admit(light, SMALL_READ, 101.001)
    assert not turns.admit(heavy, SMALL_READ + 1, 101.002)
    assert turns.admit(heavy, SMALL_READ, 101.002)


async def test_connections_of_one_address_have_one_share() -> None:
    turns = FairTurns(asyncio.get_running_loop())
    flood = [turns.join(HostPort("10.0.0.1", port)) for port in range(1, 5)]
    good = turns.join(HostPort("10.0.0.2", 1))
    turns.admit(good, 1, 100.0)
    admitted = [turns.admit(share, SMALL_READ, 100.0001) for share in flood]
    assert admitted == [True, False, False, False]
    assert turns.admit(good, 1, 100.0002)


async def test_large_reads_of_one_address_are_handled_at_once_within_the_time_of_a_turn() -> None:
    turns = FairTurns(asyncio.get_running_loop())
    first, second = (turns.join(HostPort("10.0.0.1", port)) for port in (1, 2))
    turns.admit(first, LARGE_READ, 100.0)
    turns.admit(second, LARGE_READ, 100.015)
    await asyncio.sleep(0)
    assert turns.admit(first, LARGE_READ, 100.025)
    assert turns.admit(second, SMALL_READ + 1, 100.026)
    assert not turns.admit(first, SMALL_READ + 1, 100.0275)
    await asyncio.sleep(0)
    assert turns.admit(first, SMALL_READ + 1, 100.028)
    assert not turns.admit(second, LARGE_READ + 1, 100.028)


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"])
async def test_large_reads_wait_beside_a_connection_that_receives_little_and_beside_another_address(host: str) -> None:
    turns = FairTurns(asyncio.get_running_loop())
    first, second = (turns.join(HostPort("10.0.0.1", port)) for port in (1, 2))
    other = turns.join(HostPort(host, 3))
    turns.admit(first, LARGE_READ, 100.0)
    turns.admit(second, LARGE_READ, 100.025)
    await asyncio.sleep(0)
    assert turns.admit(first, LARGE_READ, 100.03)
    assert turns.admit(other, 1, 100.031)
    assert not turns.admit(second, LARGE_READ, 100.032)


async def test_large_reads_wait_behind_those_that_wait_already() -> None:
    handled: list[str] = []
    turns = FairTurns(asyncio.get_running_loop())
    first, second = (turns.join(HostPort("10.0.0.1", port)) for port in (1, 2))
    turns.admit(first, LARGE_READ, 100.0)
    turns.admit(second, LARGE_READ, 100.025)
    turns.add(Waiting(turns, "a", 1, handled, host="10.0.0.1"))
    assert not turns.admit(first, SMALL_READ + 1, 100.03)
    await _finished(turns)
    await asyncio.sleep(0)
    assert turns.admit(first, SMALL_READ + 1, 100.03)


class Clock:
    """A clock in seconds that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Timed(Waiting):
    """A connection whose slices take `spent` seconds of a clock."""

    def __init__(
        self, turns: FairTurns, name: str, slices: int, handled: list[str], clock: Clock, spent: float = 0.0003
    ) -> None:
        super().__init__(turns, name, slices, handled)
        self.clock, self.spent = clock, spent

    def handle_more(self, until: float) -> bool:
        self.clock.now += self.spent
        return super().handle_more(until)


@pytest.mark.parametrize(("other", "handled_in_a_turn"), [("light", 1), ("heavy", 7)])
async def test_turns_are_short_only_beside_connections_that_receive_little(
    other: str, handled_in_a_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, handled = Clock(), list[str]()
    monkeypatch.setattr(fair_turns, "monotonic", clock)
    turns = FairTurns(asyncio.get_running_loop())
    beside = Timed(turns, "b", 1, [], clock)
    if other == "heavy":
        turns.add(beside)
        await _finished(turns)
    turns.admit(beside.share, 1, clock.now)
    turns.add(Timed(turns, "a", 20, handled, clock))
    await asyncio.sleep(0)
    assert len(handled) == handled_in_a_turn
    await _finished(turns)


async def test_after_expensive_frames_others_have_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection's slices take 20 ms, and so do its pauses after them twice."""
    clock, handled = Clock(), list[str]()
    for name in ("monotonic", "thread_time"):
        monkeypatch.setattr(fair_turns, name, clock)
    turns = FairTurns(asyncio.get_running_loop())
    turns.add(Timed(turns, "a", 2, handled, clock, 0.02))
    turns.add(Timed(turns, "b", 20, handled, clock))
    await until(lambda: len(handled) > 20)
    assert handled == ["a", *"b" * 20]
    # Not before the end of the pause, which began with the slices of the second connection.
    clock.now = 1000.0 + 0.0599
    await asyncio.sleep(0.1)
    assert len(handled) == 21
    clock.now = 1000.0 + 0.0601
    await _finished(turns)
    assert handled == ["a", *"b" * 20, "a"]
    assert turns.counts["paused"] == 2
