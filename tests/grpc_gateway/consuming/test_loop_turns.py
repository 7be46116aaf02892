"""Work that is spread over turns of the event loop."""

import asyncio

import pytest

from grpc_gateway.consuming.loop_turns import LoopTurns

pytestmark = pytest.mark.anyio


async def test_callers_continue_in_their_order_some_in_each_turn() -> None:
    turns, order = LoopTurns(3), list[int]()

    async def work(number: int) -> None:
        await turns.turn()
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
        turn = turns.turn()
        with pytest.raises(StopIteration):
            turn.send(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
