"""The pace of operators' requests."""

import asyncio
import time

import pytest

from proxy.operations.work_pace import WorkPace

pytestmark = pytest.mark.anyio

# Seconds of CPU time of a step, more than half of those of a turn.
_STEP = 0.004


def _work_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_steps_of_many_requests_are_spread_over_turns_of_the_event_loop() -> None:
    pace, finished, turns = WorkPace(), 0, 0

    async def request() -> None:
        nonlocal finished
        for _ in range(3):
            _work_for(_STEP)
            await asyncio.sleep(0)
        finished += 1

    requests = [asyncio.ensure_future(pace.run(request())) for _ in range(20)]
    while finished < 20:
        turns += 1
        await asyncio.sleep(0)
    await asyncio.gather(*requests)
    # At most two steps a turn.
    assert turns >= 30


async def test_results_and_errors_pass() -> None:
    async def fails(future: "asyncio.Future[None]") -> int:
        try:
            await future
        except LookupError:
            return 3
        raise ValueError("no error came")

    pace = WorkPace()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(LookupError())
    assert await pace.run(fails(future)) == 3
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    with pytest.raises(ValueError, match="no error came"):
        await pace.run(fails(future))


async def test_work_is_cancelled_when_its_caller_has_left() -> None:
    left, steps, ended = False, 0, False

    async def work() -> None:
        nonlocal steps, ended
        try:
            while True:
                steps += 1
                await asyncio.sleep(0)
        finally:
            ended = True

    running = asyncio.ensure_future(WorkPace().run(work(), lambda: left))
    while steps < 3:
        await asyncio.sleep(0)
    left = True
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert ended


async def test_cancellation_while_others_have_their_turn() -> None:
    pace, finished = WorkPace(), 0

    async def work() -> None:
        nonlocal finished
        _work_for(2 * _STEP)
        await asyncio.sleep(0)
        finished += 1

    requests = [asyncio.ensure_future(pace.run(work())) for _ in range(6)]
    await asyncio.sleep(0)
    for request in requests[2:4]:
        request.cancel()
    async with asyncio.timeout(30):
        results = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert finished == 4
