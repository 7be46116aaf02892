"""The deadlines of many calls, on a loop whose time the test makes."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from grpc_gateway.server.deadlines import Deadlines


class Loop:
    """Time, and the timer that was set last."""

    now = 100.0
    timer: "tuple[float, Callable[[], None]] | None" = None
    timers = 0

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> "Loop":
        self.timer = (at, callback)
        self.timers += 1
        return self

    def cancel(self) -> None:
        self.timer = None

    def run(self, until: float) -> None:
        while self.timer is not None and self.timer[0] <= until:
            (at, callback), self.timer = self.timer, None
            self.now = max(self.now, at)
            callback()
        self.now = until


class Entry:
    """Takes itself out when it expires, as a call does; and others, if it is told to."""

    def __init__(self, deadlines: Deadlines, at: float) -> None:
        self.expired: list[float] = []
        self.others: list[Entry] = []
        self.deadlines = deadlines
        self.slot = deadlines.add(self, at)

    def end(self) -> None:
        self.slot.pop(self, None)

    def expire(self) -> None:
        self.expired.append(cast(Any, self.deadlines)._loop.now)
        for ended in (self, *self.others):
            ended.end()


def made() -> tuple[Loop, Deadlines]:
    loop = Loop()
    return loop, Deadlines(cast(asyncio.AbstractEventLoop, loop), 0.02)


def test_each_expires_once_and_at_most_a_tick_late() -> None:
    loop, deadlines = made()
    entries = {at: Entry(deadlines, at) for at in (103.0, 100.0, 101.005, 101.01, 200.0, 99.0)}
    loop.run(300)
    for at, entry in entries.items():
        assert len(entry.expired) == 1
        assert max(at, 100) <= entry.expired[0] <= max(at, 100) + 0.021
    assert loop.timer is None


def test_many_in_one_tick() -> None:
    loop, deadlines = made()
    entries = [Entry(deadlines, 101.0) for _ in range(50)]
    entries[0].others = entries[1:]
    loop.run(102)
    assert all(len(entry.expired) == 1 for entry in entries)


def test_what_has_ended_costs_nothing() -> None:
    loop, deadlines = made()
    for number in range(10_000):
        Entry(deadlines, 160.0 + number % 7).end()
    assert sum(map(len, deadlines._slots.values())) == 0
    assert loop.timers < 5
    loop.run(200)
    assert deadlines._slots == {}


def test_an_earlier_one_comes_first() -> None:
    loop, deadlines = made()
    late, early = Entry(deadlines, 150.0), Entry(deadlines, 101.0)
    loop.run(102)
    assert (late.expired, len(early.expired)) == ([], 1)
    deadlines.close()
    loop.run(300)
    assert late.expired == []


def test_far_deadlines_leave_nothing() -> None:
    """Each at a time of its own, all hours away: nothing is left of them long before that."""
    loop, deadlines = made()
    for number in range(1000):
        Entry(deadlines, 4000.0 + number).end()
    loop.run(102)
    assert deadlines._slots == {}


def test_one_that_fails_stops_no_clock() -> None:
    loop, deadlines = made()
    entries = [Entry(deadlines, 101.0), Entry(deadlines, 102.0)]
    entries[0].expire = lambda: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        loop.run(103)
    loop.run(103)
    assert len(entries[1].expired) == 1
