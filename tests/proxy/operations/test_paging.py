"""Pages of long lists: others have their turn while one is made."""

import asyncio
import contextlib
import time

import pytest

from proxy.operations import paging
from proxy.operations.paging import Order

pytestmark = pytest.mark.anyio


async def test_others_have_their_turn_while_a_page_is_made() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def slow(item: int) -> int:
        time.sleep(0.001)
        return item

    task = asyncio.ensure_future(others())
    cut = await paging.cut(
        range(50), lambda item: slow(item) % 2 == 0, lambda item: (item, ""), Order("n", False), 10, None
    )
    assert (cut.items, cut.total) == ([*range(0, 20, 2)], 25)
    during_cut, turns = turns, 0
    assert await paging.described(range(50), slow) == [*range(50)]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    # 50 ms of work, 5 ms at a time.
    assert min(during_cut, turns) >= 5
