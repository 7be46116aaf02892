"""Coroutines that run without a task."""

import asyncio

import pytest

from remoting.taskless import run_eagerly

pytestmark = pytest.mark.anyio


async def test_a_coroutine_that_does_not_wait_returns_its_result() -> None:
    async def work() -> int:
        return 7

    assert run_eagerly(work()) == 7


async def test_a_coroutine_that_fails_before_waiting_raises() -> None:
    async def work() -> int:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        run_eagerly(work())


async def test_a_coroutine_that_waits_resolves_a_future() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        awaited = await first
        await asyncio.sleep(0)
        gathered = await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))
        return awaited + sum(gathered)

    outcome = run_eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    await asyncio.sleep(0)
    assert not outcome.done()
    first.set_result(4)
    assert await outcome == 7


@pytest.mark.parametrize("error", [LookupError("why"), asyncio.CancelledError()])
async def test_a_coroutine_that_fails_after_waiting_fails_its_future(error: BaseException) -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first

    outcome = run_eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    if isinstance(error, asyncio.CancelledError):
        first.cancel()
    else:
        first.set_exception(error)
    with pytest.raises(type(error)):
        await outcome


async def test_cancelling_the_future_does_not_cancel_the_coroutine() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    finished = []

    async def work() -> int:
        finished.append(await first)
        return 1

    outcome = run_eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    outcome.cancel()
    first.set_result(4)
    await asyncio.sleep(0)
    assert finished == [4]
