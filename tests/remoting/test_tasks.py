"""Tasks that are repeated, and futures without a waiter."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from remoting.tasks import every, retrieve_error

pytestmark = pytest.mark.anyio


class Turns:
    """Sleeps that take no time, up to a number of them; then the task is cancelled."""

    def __init__(self, number: int) -> None:
        self.slept: list[float] = []
        self._number = number

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == self._number:
            raise asyncio.CancelledError
        self.slept.append(seconds)


async def run(
    turns: Turns, work: Callable[[], None], seconds: float | Callable[[], float] = 2.0, name: str = "work"
) -> None:
    with pytest.raises(asyncio.CancelledError):
        await every(seconds, work, name=name, sleep=turns.sleep)


async def test_work_follows_each_sleep() -> None:
    done: list[int] = []
    turns = Turns(3)
    await run(turns, lambda: done.append(len(turns.slept)))
    assert (turns.slept, done) == ([2.0, 2.0, 2.0], [1, 2, 3])


async def test_a_coroutine_is_awaited() -> None:
    done = []

    async def work() -> bool:
        await asyncio.sleep(0)
        done.append(True)
        return True

    with pytest.raises(asyncio.CancelledError):
        await every(1.0, work, name="work", sleep=Turns(2).sleep)
    assert len(done) == 2


async def test_the_interval_is_read_before_each_sleep() -> None:
    intervals = iter((1.0, 5.0, 3.0, 0.0))
    turns = Turns(3)
    await run(turns, lambda: None, lambda: next(intervals))
    assert turns.slept == [1.0, 5.0, 3.0]


async def test_a_failure_is_logged_with_the_name_and_the_work_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(3)
    done: list[int] = []

    def work() -> None:
        done.append(1)
        raise ValueError("a mistake")

    await run(turns, work, name="survey")
    assert len(done) == 3
    # One line per second, even if the work is repeated without a pause.
    assert [record.getMessage() for record in caplog.records] == ["the background task 'survey' failed"]
    assert "a mistake" in caplog.text


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_retrieved_error_is_not_logged(cancelled: bool) -> None:
    loop = asyncio.get_running_loop()
    logged: list[object] = []
    loop.set_exception_handler(lambda _, context: logged.append(context))
    for retrieved in (True, False):
        future: asyncio.Future[None] = loop.create_future()
        if retrieved:
            future.add_done_callback(retrieve_error)
        if cancelled:
            future.cancel()
        else:
            future.set_exception(ValueError("late"))
        await asyncio.sleep(0)
        del future
        gc.collect()
        assert bool(logged) is (not retrieved and not cancelled)
