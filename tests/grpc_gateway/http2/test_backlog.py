"""The queue of connections whose received frames wait."""

import asyncio
import time

import pytest

from grpc_gateway.http2.backlog import BacklogQueue

pytestmark = pytest.mark.anyio


class Backlogged:
    """A connection with `slices` slices to handle, each of which takes `seconds`."""

    def __init__(self, name: str, slices: int, handled: list[str], seconds: float = 0.0) -> None:
        self.name, self.slices, self.handled, self.seconds = name, slices, handled, seconds

    def handle_more(self) -> bool:
        time.sleep(self.seconds)
        self.handled.append(self.name)
        self.slices -= 1
        return self.slices > 0


async def test_connections_take_turns() -> None:
    handled: list[str] = []
    queue = BacklogQueue(asyncio.get_running_loop())
    for name, slices in (("a", 3), ("b", 1), ("c", 2)):
        queue.add(Backlogged(name, slices, handled))
    await asyncio.sleep(0.01)
    assert handled == ["a", "b", "c", "a", "c", "a"]


async def test_other_work_runs_between_slow_slices() -> None:
    handled: list[str] = []
    queue = BacklogQueue(asyncio.get_running_loop())
    queue.add(Backlogged("a", 5, handled, seconds=0.005))
    for _ in range(5):
        await asyncio.sleep(0)
        handled.append("other")
    assert handled.count("a") <= handled.count("other") + 1


async def test_a_failing_connection_does_not_stop_the_others() -> None:
    class Failing:
        def handle_more(self) -> bool:
            raise RuntimeError("failed")

    handled: list[str] = []
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    queue = BacklogQueue(loop)
    queue.add(Failing())
    queue.add(Backlogged("a", 2, handled))
    await asyncio.sleep(0.01)
    assert handled == ["a", "a"]
    assert len(failures) == 1
