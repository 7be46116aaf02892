"""Turns of steps: work per iteration of the event loop, order, cancelled steps."""

import asyncio

import pytest

from remoting.work_turns import WorkTurns

pytestmark = pytest.mark.anyio

_MIB = 1 << 20


async def _iterations(*sizes: int) -> dict[int, list[int]]:
    """Run steps that use these bytes; return the steps of each iteration of the event loop."""
    turns, steps, iteration = WorkTurns(_MIB), dict[int, list[int]](), 0

    async def step(number: int) -> None:
        await turns.next()
        steps.setdefault(iteration, []).append(number)
        turns.use(sizes[number])

    tasks = [asyncio.ensure_future(step(number)) for number in range(len(sizes))]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        iteration += 1
    return steps


async def test_an_iteration_has_one_large_step() -> None:
    steps = await _iterations(*[16 * _MIB] * 20)
    assert [number for numbers in steps.values() for number in numbers] == list(range(20))
    assert max(map(len, steps.values())) == 1


async def test_small_steps_share_an_iteration() -> None:
    steps = await _iterations(*[1024] * 500)
    assert max(map(len, steps.values())) == 500


async def test_small_steps_that_wait_admit_one_large_step_in_an_iteration() -> None:
    sizes = [16 * _MIB, *[1024] * 300, *[16 * _MIB] * 30]
    steps = await _iterations(*sizes)
    assert sorted(number for numbers in steps.values() for number in numbers) == list(range(len(sizes)))
    assert max(sum(sizes[number] > _MIB for number in numbers) for numbers in steps.values()) == 1


async def test_a_cancelled_step_does_not_hold_the_others() -> None:
    turns = WorkTurns(_MIB)
    turns.use(_MIB)
    cancelled, waiting, last = (asyncio.ensure_future(turns.next()) for _ in range(3))
    await asyncio.sleep(0)
    waiting.cancel()
    # Its turn comes in the next iteration, after this callback has cancelled it.
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(last, 1.0)
    turns.use(1)
