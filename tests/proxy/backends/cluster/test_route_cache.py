import asyncio

import pytest

from proxy.backends.cluster import route_cache
from proxy.backends.cluster.route_cache import RouteCache
from remoting.errors import RemotingError, ServiceUnavailable, TopicNotExist
from remoting.routes import TopicRoute
from tests.proxy.fakes import Clock, settle
from tests.proxy.messages import route

pytestmark = pytest.mark.anyio

OLD, NEW = route("t", "broker-a"), route("t", "broker-b")
UNKNOWN = TopicNotExist("No topic route info in name server for the topic: t")
DOWN = ServiceUnavailable("no name server")


class NameServer:
    """A name server that answers when the test permits it; `asked` counts the requests."""

    def __init__(self, answer: TopicRoute | RemotingError) -> None:
        self.answer = answer
        self.loads = 0
        self.free = asyncio.Event()
        self.free.set()

    async def load(self, topic: str) -> TopicRoute:
        self.loads += 1
        await self.free.wait()
        if isinstance(self.answer, RemotingError):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, answer: TopicRoute | RemotingError = OLD) -> None:
        self.clock = Clock()
        self.name_server = NameServer(answer)
        self.cache = RouteCache(self.name_server.load, self.clock, refresh=10, idle=300)

    async def after(self, seconds: float, answer: TopicRoute | RemotingError) -> None:
        """Advance the clock, then refresh the routes from a name server with this reply."""
        self.clock.now += seconds
        self.name_server.answer = answer
        await self.cache.refresh()


async def test_cached_route_is_returned_without_a_name_server() -> None:
    bench = Bench()
    assert bench.cache.cached("t") is None
    assert await bench.cache.get("t") is OLD
    bench.name_server.free.clear()
    assert bench.cache.cached("t") is OLD
    get = bench.cache.get("t")
    with pytest.raises(StopIteration) as done:
        get.send(None)
    assert done.value.value is OLD
    assert bench.name_server.loads == 1


async def test_concurrent_callers_share_one_load() -> None:
    bench = Bench()
    bench.name_server.free.clear()
    waiting = [asyncio.ensure_future(bench.cache.get("t")) for _ in range(10)]
    await settle()
    waiting[0].cancel()
    await settle()
    bench.name_server.free.set()
    assert await asyncio.gather(*waiting[1:]) == [OLD] * 9
    assert bench.name_server.loads == 1
    assert waiting[0].cancelled()


async def test_failed_load_is_shared_and_not_cached() -> None:
    bench = Bench(DOWN)
    failures = await asyncio.gather(*(bench.cache.get("t") for _ in range(3)), return_exceptions=True)
    assert failures == [DOWN] * 3
    assert bench.name_server.loads == 1
    bench.name_server.answer = OLD
    assert await bench.cache.get("t") is OLD


async def test_unknown_topic_is_not_loaded_again_for_a_second() -> None:
    bench = Bench(UNKNOWN)
    for _ in range(2):
        with pytest.raises(TopicNotExist):
            await bench.cache.get("t")
    assert bench.name_server.loads == 1
    assert bench.cache.cached("t") is None
    bench.name_server.answer = OLD
    bench.clock.now += 1.0
    assert await bench.cache.get("t") is OLD


@pytest.mark.parametrize("trouble", [DOWN, UNKNOWN])
async def test_former_route_stays_if_reloading_fails(trouble: RemotingError) -> None:
    bench = Bench()
    await bench.cache.get("t")
    await bench.after(30, trouble)
    assert bench.name_server.loads == 2
    assert bench.cache.cached("t") is OLD
    await bench.after(10, NEW)
    assert bench.cache.cached("t") is NEW


async def test_route_of_a_missing_topic_is_dropped_after_a_minute() -> None:
    bench = Bench()
    await bench.cache.get("t")
    await bench.after(59, UNKNOWN)
    assert bench.cache.cached("t") is OLD
    await bench.after(2, UNKNOWN)
    assert bench.cache.cached("t") is None
    with pytest.raises(TopicNotExist):
        await bench.cache.get("t")


async def test_route_stays_while_name_servers_are_unreachable() -> None:
    bench = Bench()
    await bench.cache.get("t")
    for _ in range(20):
        await bench.after(60, DOWN)
        assert bench.cache.cached("t") is OLD


@pytest.mark.parametrize(("seconds", "asked"), [(4, 1), (5, 2), (10, 2)])
async def test_recent_route_is_not_refreshed(seconds: float, asked: int) -> None:
    bench = Bench()
    await bench.cache.get("t")
    await bench.after(seconds, NEW)
    assert bench.name_server.loads == asked
    assert bench.cache.cached("t") is (OLD if asked == 1 else NEW)


@pytest.mark.parametrize("used", [True, False])
async def test_unused_entry_is_dropped(used: bool) -> None:
    bench = Bench()
    await bench.cache.get("t")
    for _ in range(61):
        if used:
            assert bench.cache.cached("t") is OLD
        await bench.after(5, OLD)
    assert len(bench.cache) == used
    assert (bench.cache.cached("t") is OLD) == used


async def test_an_unknown_topic_that_was_created_is_loaded_at_once() -> None:
    bench = Bench(UNKNOWN)
    with pytest.raises(TopicNotExist):
        await bench.cache.get("t")
    bench.name_server.answer = OLD
    bench.cache.forget_unknown(["t", "never looked up"])
    assert await bench.cache.get("t") is OLD
    bench.cache.forget_unknown(["t"])
    assert bench.cache.cached("t") is OLD


async def test_unknown_topics_are_dropped_by_a_refresh() -> None:
    bench = Bench(UNKNOWN)
    with pytest.raises(TopicNotExist):
        await bench.cache.get("t")
    await bench.after(30, OLD)
    assert (bench.name_server.loads, len(bench.cache)) == (1, 0)
    assert await bench.cache.get("t") is OLD


async def test_number_of_unknown_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_cache, "_MAX_ENTRIES", 3)
    bench = Bench()
    await bench.cache.get("known")
    bench.name_server.answer = UNKNOWN
    for number in range(5):
        with pytest.raises(TopicNotExist):
            await bench.cache.get(f"unknown {number}")
    assert len(bench.cache) == 3
    bench.name_server.answer = OLD
    for number in range(5):
        await bench.cache.get(f"more {number}")
    assert len(bench.cache) == 8, "known topics count for themselves"
    await bench.after(61, UNKNOWN)
    assert bench.cache.cached("known") is None, "full or not, what is gone is given up"


async def test_number_of_concurrent_refreshes_is_limited() -> None:
    bench = Bench()
    for number in range(100):
        await bench.cache.get(str(number))
    bench.clock.now += 30
    bench.name_server.free.clear()
    refreshing = asyncio.ensure_future(bench.cache.refresh())
    await settle()
    assert bench.name_server.loads == 100 + route_cache._MAX_REFRESHES
    bench.name_server.free.set()
    await refreshing
    assert bench.name_server.loads == 200
