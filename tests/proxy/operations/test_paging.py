"""Pages of long lists; test_merge.py has their cursors."""

import asyncio
import contextlib
import time

import pytest

from proxy.operations import paging
from proxy.operations.paging import PageRequest, Place

pytestmark = pytest.mark.anyio


async def test_other_tasks_run_while_a_page_is_made() -> None:
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
        range(50), lambda item: slow(item) % 2 == 0, lambda item: Place(item, 0, ""), PageRequest.parse("n", 10)
    )
    assert (cut.items, cut.rest, cut.total) == ([*range(0, 20, 2)], 25, 25)
    turns_during_cut, turns = turns, 0
    assert await paging.described(range(50), slow) == [*range(50)]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    # 50 ms of work, with a yield every 5 ms.
    assert min(turns_during_cut, turns) >= 5
