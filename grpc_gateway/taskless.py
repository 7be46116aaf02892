"""Coroutines that are run at once, without a task."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


def eagerly(coroutine: Coroutine[Any, Any, _Result]) -> "_Result | asyncio.Future[_Result]":
    """Run a coroutine up to where it waits; its result, or a future of it. Raises what the coroutine raises till then.

    It may wait for futures and for turns of the loop, and must not ask which task it is (as `asyncio.timeout` does).
    Cancelling the future does not stop it: what it has begun is finished, only nobody hears of it.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    run = _Run(coroutine)
    run.wait(awaited)
    return run.future


class _Run(Generic[_Result]):
    __slots__ = ("coroutine", "future")

    def __init__(self, coroutine: Coroutine[Any, Any, _Result]) -> None:
        self.coroutine = coroutine
        self.future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()

    def wait(self, awaited: Any) -> None:
        """Go on when what was yielded is done: a future, or None for the loop's next turn."""
        if awaited is None:
            self.future.get_loop().call_soon(self.step, None)
        else:
            # So a future is told that its waiter has seen to it (PEP 3156; asyncio.Task does the same).
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self.step)

    def step(self, _: Any) -> None:
        future = self.future
        try:
            awaited = self.coroutine.send(None)
        except StopIteration as stop:
            if not future.done():
                future.set_result(stop.value)
        except asyncio.CancelledError:
            future.cancel()
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            self.wait(awaited)
