import asyncio

import pytest

from remoting.loop_turns import LoopTurns

pytestmark = pytest.mark.anyio


async def test_each_iteration_of_the_loop_admits_one_step() -> None:
    turns, steps, iterations = LoopTurns(), [], 0

    async def step(number: int) -> None:
        await turns.next()
        steps.append((iterations, number))

    tasks = [asyncio.ensure_future(step(number)) for number in range(10)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        iterations += 1
    assert [number for _, number in steps] == list(range(10))
    assert len({iteration for iteration, _ in steps}) == 10
    await asyncio.sleep(0)
    assert len(turns) == 0


async def test_a_cancelled_step_does_not_hold_the_others() -> None:
    turns = LoopTurns()
    steps = [asyncio.ensure_future(turns.next()) for _ in range(3)]
    await asyncio.sleep(0)
    steps[1].cancel()
    await asyncio.wait_for(steps[2], 45)
    assert steps[1].cancelled()
    # With nobody waiting, a step need not wait.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await turns.next()
