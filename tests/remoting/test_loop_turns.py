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


async def test_callers_continue_in_their_order_some_in_each_turn() -> None:
    turns, order = LoopTurns(3), list[int]()

    async def work(number: int) -> None:
        await turns.next()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(10)]
    await asyncio.sleep(0)
    assert order == [0, 1, 2]
    tasks[4].cancel()
    lengths = []
    while len(order) < 9:
        await asyncio.sleep(0)
        lengths.append(len(order))
    assert order == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert max(after - before for before, after in zip([3, *lengths], lengths, strict=False)) <= 3
    assert tasks[4].cancelled() or tasks[4].cancelling()


async def test_a_caller_alone_continues_at_once() -> None:
    turns = LoopTurns(1)
    for _ in range(3):
        turn = turns.next()
        with pytest.raises(StopIteration):
            turn.send(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
