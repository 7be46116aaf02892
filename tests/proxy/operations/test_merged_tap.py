"""The taps of two workers as one stream."""

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest

from proxy.core.events import Observer
from proxy.operations import merged_tap
from proxy.operations.failures import FailureKind, OperationFailed
from proxy.operations.merged_tap import Events, MergedTap, TapQuery
from proxy.operations.request_tap import EventKind, RequestTap, TapEvent, TapFilter, Watcher
from proxy.operations.workers import Workers
from tests.proxy.operations.observations import observation
from tests.proxy.workers.fakes import FakeSupervisor

pytestmark = pytest.mark.anyio

QUERY = TapQuery(TapFilter(topic="t"))


class Taps:
    """Two workers with a tap each."""

    def __init__(self, max_watchers: int = 1) -> None:
        self.supervisor = FakeSupervisor(2)
        self.outcomes: Counter[str] = Counter()
        self.observers: list[list[Observer]] = [[], []]
        self.taps = [RequestTap(observers, max_watchers) for observers in self.observers]
        self.merged = [self._merged(number) for number in range(2)]

    def _merged(self, number: int) -> MergedTap:
        workers = Workers(self.outcomes)

        async def prepare() -> None:
            pass

        rpc = self.supervisor.workers[number]
        workers.join(rpc, prepare)
        merged = MergedTap(self.taps[number], workers)
        merged.join(rpc)
        return merged

    def observe(self, worker: int) -> None:
        """Answer a request at a worker."""
        for observe in self.observers[worker]:
            observe(observation(topic="t"))

    async def watched(self, worker: int) -> Watcher:
        """Wait until a worker has a watcher."""
        async with asyncio.timeout(30):
            while not self.taps[worker].watchers:
                await asyncio.sleep(0)
        (watcher,) = self.taps[worker].watchers
        return watcher

    async def unwatched(self) -> None:
        """Wait until no worker has a watcher."""
        async with asyncio.timeout(30):
            while any(tap.watchers for tap in self.taps):
                await asyncio.sleep(0)


@pytest.fixture
async def taps() -> Taps:
    return Taps()


async def next_of(events: Events) -> TapEvent:
    async with asyncio.timeout(30):
        return await anext(events)


async def test_single_worker_streams_its_own_events() -> None:
    observers: list[Observer] = []
    tap = RequestTap(observers, 1)
    async with aclosing(MergedTap(tap, Workers(Counter())).stream(QUERY)) as events:
        assert (await next_of(events)).kind is EventKind.WATCHING
        observers[0](observation(topic="t"))
        event = await next_of(events)
        assert event.kind is EventKind.REQUEST
        assert "worker" not in event.data


async def test_streams_are_merged_and_end_with_the_first(taps: Taps, monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than any delay of this process.
    monkeypatch.setattr(merged_tap, "_RETRY_DELAY", 30.0)
    async with aclosing(taps.merged[0].stream(QUERY)) as events:
        assert await next_of(events) == TapEvent(EventKind.WATCHING)
        other = await taps.watched(1)
        for worker in (1, 0):
            taps.observe(worker)
            event = await next_of(events)
            assert (event.kind, event.data["worker"], event.data["topic"]) == (EventKind.REQUEST, worker, "t")
        other.close()
        (await taps.watched(0)).close()
        async with asyncio.timeout(30):
            assert [event async for event in events] == []
    await taps.unwatched()
    assert taps.supervisor.workers[1]._served == {}


async def test_keep_alives_are_those_of_the_first_stream(taps: Taps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.operations.request_tap.KEEP_ALIVE", 0.01)
    async with aclosing(taps.merged[0].stream(QUERY)) as events:
        await next_of(events)
        await taps.watched(1)
        assert [await next_of(events) for _ in range(3)] == [TapEvent(EventKind.KEEP_ALIVE)] * 3


async def test_stream_that_ends_alone_is_missing_until_it_begins_again(
    taps: Taps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_tap, "_RETRY_DELAY", 0.01)
    async with aclosing(taps.merged[0].stream(QUERY)) as events:
        await next_of(events)
        (await taps.watched(1)).close()
        assert await next_of(events) == TapEvent(EventKind.MISSING, {"worker": 1})
        assert await next_of(events) == TapEvent(EventKind.JOINED, {"worker": 1})
        await taps.watched(1)
        taps.observe(1)
        assert (await next_of(events)).data["worker"] == 1
        taps.supervisor.kill(1)
        assert await next_of(events) == TapEvent(EventKind.MISSING, {"worker": 1})
    assert taps.outcomes["gone"] >= 1


async def test_closing_the_stream_ends_those_of_all_workers(taps: Taps) -> None:
    async with aclosing(taps.merged[0].stream(QUERY)) as events:
        await next_of(events)
        await taps.watched(1)
    await taps.unwatched()
    assert taps.observers == [[], []]


async def test_stream_of_another_worker_alone(taps: Taps) -> None:
    async with aclosing(taps.merged[0].stream(QUERY, worker=1)) as events:
        assert await next_of(events) == TapEvent(EventKind.WATCHING)
        assert not taps.taps[0].watchers
        taps.observe(1)
        assert (await next_of(events)).data["worker"] == 1
        taps.supervisor.kill(1)
        assert await next_of(events) == TapEvent(EventKind.MISSING, {"worker": 1})
        assert [event async for event in events] == []


@pytest.mark.parametrize("worker", [None, 1])
async def test_stream_that_cannot_begin_raises(worker: int | None) -> None:
    taps = Taps(max_watchers=0)
    with pytest.raises(OperationFailed) as raised:
        await next_of(taps.merged[0].stream(QUERY, worker))
    assert raised.value.failure.kind is FailureKind.TOO_MANY
    taps.supervisor.kill(1)
    with pytest.raises(OperationFailed) as raised:
        await next_of(taps.merged[0].stream(QUERY, worker=1))
    assert (raised.value.failure.kind, raised.value.missing_workers) == (FailureKind.UNAVAILABLE, [1])
