import asyncio

import pytest

from grpc_gateway.taskless import eagerly

pytestmark = pytest.mark.anyio


async def test_what_does_not_wait_is_there_at_once() -> None:
    async def work() -> int:
        return 7

    assert eagerly(work()) == 7


async def test_what_fails_at_once_raises() -> None:
    async def work() -> int:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        eagerly(work())


async def test_what_waits_goes_on_later() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        found = await first
        await asyncio.sleep(0)
        gathered = await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))
        return found + sum(gathered)

    outcome = eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    await asyncio.sleep(0)
    assert not outcome.done()
    first.set_result(4)
    assert await outcome == 7


@pytest.mark.parametrize("error", [LookupError("why"), asyncio.CancelledError()])
async def test_what_fails_later_fails_the_future(error: BaseException) -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first

    outcome = eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    if isinstance(error, asyncio.CancelledError):
        first.cancel()
    else:
        first.set_exception(error)
    with pytest.raises(type(error)):
        await outcome


async def test_a_cancelled_future_lets_the_work_finish() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    finished = []

    async def work() -> int:
        finished.append(await first)
        return 1

    outcome = eagerly(work())
    assert isinstance(outcome, asyncio.Future)
    outcome.cancel()
    first.set_result(4)
    await asyncio.sleep(0)
    assert finished == [4]
