from hypothesis import given
from hypothesis import strategies as st

from remoting.timeout_wheel import TimeoutWheel


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Entry:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.expired: list[float] = []

    def expire(self) -> None:
        self.expired.append(self.clock.now)


def test_an_entry_expires_once_after_its_delay() -> None:
    clock = Clock(100.0)
    wheel, entry = TimeoutWheel(clock, tick=0.5), Entry(clock)
    wheel.add(entry, 3.0)
    assert len(wheel) == 1
    while clock.now < 110.0:
        clock.now += 0.5
        wheel.advance()
    assert entry.expired == [103.5]
    assert len(wheel) == 0


@given(
    st.floats(0, 1e6),
    st.lists(st.tuples(st.floats(-1, 30), st.floats(0, 5)), max_size=20),
)
def test_entries_expire_never_early_and_at_most_one_tick_late(start: float, steps: list[tuple[float, float]]) -> None:
    clock = Clock(start)
    wheel = TimeoutWheel(clock, tick=0.25)
    added = []
    for delay, pause in steps:
        entry = Entry(clock)
        added.append((clock.now + max(delay, 0), entry))
        wheel.add(entry, delay)
        clock.now += pause
        wheel.advance()
        # At most one tick late, and one more for rounding.
        assert all(entry.expired or clock.now < due + 0.5 for due, entry in added)
    clock.now += 100
    wheel.advance()
    assert len(wheel) == 0
    assert all(len(entry.expired) == 1 and entry.expired[0] >= due for due, entry in added)


def test_an_expiring_entry_may_add_another() -> None:
    clock = Clock()
    wheel = TimeoutWheel(clock, tick=1.0)
    second = Entry(clock)

    class First(Entry):
        def expire(self) -> None:
            super().expire()
            wheel.add(second, 0.0)

    first = First(clock)
    wheel.add(first, 1.0)
    clock.now = 5.0
    wheel.advance()
    assert first.expired == [5.0]
    assert second.expired == []
    clock.now = 6.0
    wheel.advance()
    assert second.expired == [6.0]


def test_nothing_expires_while_the_clock_stands_still() -> None:
    clock = Clock()
    wheel, entry = TimeoutWheel(clock), Entry(clock)
    wheel.add(entry, 0.0)
    for _ in range(3):
        wheel.advance()
    assert entry.expired == []


def test_an_entry_that_fails_does_not_affect_others() -> None:
    class Failing:
        def expire(self) -> None:
            raise ValueError("unexpected")

    clock = Clock()
    wheel, entries = TimeoutWheel(clock, tick=0.5), [Entry(clock), Entry(clock)]
    for entry in (entries[0], Failing(), entries[1]):
        wheel.add(entry, 3.0)
    clock.now = 10.0
    wheel.advance()
    assert [entry.expired for entry in entries] == [[10.0], [10.0]]
    wheel.add(entries[0], 1.0)
    clock.now = 12.0
    wheel.advance()
    assert entries[0].expired == [10.0, 12.0]
