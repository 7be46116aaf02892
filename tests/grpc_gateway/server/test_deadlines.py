"""Deadlines on an event loop with a fake clock."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from grpc_gateway.server.deadlines import Deadlines


class FakeLoop:
    """An event loop with a clock that the test advances, and one timer."""

    now = 100.0
    timer: "tuple[float, Callable[[], None]] | None" = None
    timers = 0

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> "FakeLoop":
        self.timer = (at, callback)
        self.timers += 1
        return self

    def cancel(self) -> None:
        self.timer = None

    def advance(self, until: float) -> None:
        while self.timer is not None and self.timer[0] <= until:
            (at, callback), self.timer = self.timer, None
            self.now = max(self.now, at)
            callback()
        self.now = until


class Entry:
    """Removes itself when it expires, as a call does, and the entries in `others`."""

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


def create() -> tuple[FakeLoop, Deadlines]:
    loop = FakeLoop()
    return loop, Deadlines(cast(asyncio.AbstractEventLoop, loop), 0.02)


def test_each_entry_expires_once_and_at_most_one_tick_late() -> None:
    loop, deadlines = create()
    entries = {at: Entry(deadlines, at) for at in (103.0, 100.0, 101.005, 101.01, 200.0, 99.0)}
    loop.advance(300)
    for at, entry in entries.items():
        assert len(entry.expired) == 1
        assert max(at, 100) <= entry.expired[0] <= max(at, 100) + 0.021
    assert loop.timer is None


def test_entries_of_one_tick_all_expire_when_one_removes_the_others() -> None:
    loop, deadlines = create()
    entries = [Entry(deadlines, 101.0) for _ in range(50)]
    entries[0].others = entries[1:]
    loop.advance(102)
    assert all(len(entry.expired) == 1 for entry in entries)


def test_removed_entries_leave_no_slots_or_timers() -> None:
    loop, deadlines = create()
    for number in range(10_000):
        Entry(deadlines, 160.0 + number % 7).end()
    assert sum(map(len, deadlines._slots.values())) == 0
    assert loop.timers < 5
    loop.advance(200)
    assert deadlines._slots == {}


def test_a_later_added_but_earlier_entry_expires_first() -> None:
    loop, deadlines = create()
    late, early = Entry(deadlines, 150.0), Entry(deadlines, 101.0)
    loop.advance(102)
    assert (late.expired, len(early.expired)) == ([], 1)
    deadlines.close()
    loop.advance(300)
    assert late.expired == []


def test_empty_slots_of_far_deadlines_are_removed() -> None:
    """1000 slots, hours away, are removed within seconds after their entries."""
    loop, deadlines = create()
    for number in range(1000):
        Entry(deadlines, 4000.0 + number).end()
    loop.advance(102)
    assert deadlines._slots == {}


def test_an_entry_that_raises_does_not_stop_the_timer() -> None:
    loop, deadlines = create()
    entries = [Entry(deadlines, 101.0), Entry(deadlines, 102.0)]
    entries[0].expire = lambda: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        loop.advance(103)
    loop.advance(103)
    assert len(entries[1].expired) == 1
