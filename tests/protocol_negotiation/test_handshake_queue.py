"""The bound on concurrent TLS handshakes."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from protocol_negotiation.handshake_queue import MAX_CONTENDED_SECONDS, HandshakeQueue


class FakeTimer:
    """A timer of `FakeLoop`, which is never cancelled."""


class FakeLoop:
    """A clock in seconds, and timers that run when it advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append((self.now + delay, callback))
        return FakeTimer()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda item: item[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end


class FakeHandshake:
    """A handshake that records its start and its eviction."""

    def __init__(self, queue: HandshakeQueue, source: str | None) -> None:
        self.queue = queue
        self.source = source
        self.begun = self.evicted = False

    def begin_handshake(self) -> None:
        self.begun = True

    def evict_handshake(self) -> None:
        self.evicted = True
        self.leave()

    def leave(self) -> None:
        self.queue.leave(self, self.source)


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def queue(loop: FakeLoop) -> HandshakeQueue:
    """Return a queue of eight slots, two for each source."""
    return HandshakeQueue(8, cast(asyncio.AbstractEventLoop, loop))


def entered(queue: HandshakeQueue, *sources: str | None) -> list[FakeHandshake]:
    handshakes = [FakeHandshake(queue, source) for source in sources]
    for handshake in handshakes:
        assert queue.enter(handshake, handshake.source) is handshake.begun
    return handshakes


def begun(handshakes: list[FakeHandshake]) -> list[bool]:
    return [handshake.begun for handshake in handshakes]


def test_a_source_has_a_quarter_of_the_slots(queue: HandshakeQueue) -> None:
    assert begun(entered(queue, *"aaab")) == [True, True, False, True]
    assert (queue.running, queue.waiting) == (3, 1)


def test_an_unknown_source_may_have_all_slots(queue: HandshakeQueue) -> None:
    assert begun(entered(queue, *[None] * 9)) == [True] * 8 + [False]


def test_waiting_handshakes_start_in_turns_by_source(queue: HandshakeQueue) -> None:
    running = entered(queue, *"aabbccdd")
    first, second, other = entered(queue, *"eef")
    running[0].leave()
    assert begun([first, second, other]) == [True, False, False]
    running[2].leave()
    assert begun([first, second, other]) == [True, False, True]
    running[4].leave()
    assert begun([first, second, other]) == [True, True, True]
    assert (queue.running, queue.waiting) == (8, 0)


def test_a_source_with_its_share_is_skipped(queue: HandshakeQueue) -> None:
    running = entered(queue, *"aabbccdd")
    waiting = entered(queue, *"ae")
    running[2].leave()
    assert begun(waiting) == [False, True]
    running[0].leave()
    assert begun(waiting) == [True, True]


def test_a_waiting_handshake_may_leave(queue: HandshakeQueue) -> None:
    running = entered(queue, *"aa")
    gone, stays = entered(queue, *"aa")
    gone.leave()
    gone.leave()
    running[0].leave()
    assert begun([gone, stays]) == [False, True]
    for handshake in (running[0], running[1], stays):
        handshake.leave()
    assert (queue.running, queue.waiting) == (0, 0)


def test_slow_handshakes_are_not_evicted_while_none_waits(queue: HandshakeQueue, loop: FakeLoop) -> None:
    running = entered(queue, *"aab")
    loop.advance(10 * MAX_CONTENDED_SECONDS)
    assert not any(handshake.evicted for handshake in running)


def test_the_oldest_handshake_of_a_source_with_its_share_is_evicted(queue: HandshakeQueue, loop: FakeLoop) -> None:
    other, first = entered(queue, *"ba")
    loop.advance(1.0)
    (second,) = entered(queue, "a")
    (waiting,) = entered(queue, "a")
    loop.advance(MAX_CONTENDED_SECONDS - 1.1)
    assert (first.evicted, waiting.begun) == (False, False)
    loop.advance(0.5)
    assert (first.evicted, waiting.begun) == (True, True)
    loop.advance(10 * MAX_CONTENDED_SECONDS)
    assert (second.evicted, other.evicted) == (False, False)


def test_the_oldest_handshake_of_any_source_is_evicted_if_all_slots_are_taken(
    queue: HandshakeQueue, loop: FakeLoop
) -> None:
    running = entered(queue, *"aabbccdd")
    (waiting,) = entered(queue, "e")
    loop.advance(MAX_CONTENDED_SECONDS + 0.5)
    assert [handshake.evicted for handshake in running] == [True] + [False] * 7
    assert waiting.begun
