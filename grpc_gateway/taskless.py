"""Coroutines that run without a task."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


def run_eagerly(coroutine: Coroutine[Any, Any, _Result]) -> "_Result | asyncio.Future[_Result]":
    """Run a coroutine until it waits for the first time; return its result, or a future of it.

    Raises the exception of a coroutine that does not wait before. The coroutine may await futures and
    `asyncio.sleep(0)`, and must not use the current task, as `asyncio.timeout` does. Cancelling the future does not
    cancel the coroutine: it runs to its end, and its result is discarded.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    run = _Run(coroutine)
    run.wait_for(awaited)
    return run.future


class _Run(Generic[_Result]):
    __slots__ = ("coroutine", "future")

    def __init__(self, coroutine: Coroutine[Any, Any, _Result]) -> None:
        self.coroutine = coroutine
        self.future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()

    def wait_for(self, awaited: Any) -> None:
        """Resume when a yielded future is done, or in the next turn of the event loop for None."""
        if awaited is None:
            self.future.get_loop().call_soon(self.step, None)
        else:
            # Marks the future's yield as handled, as asyncio.Task does (PEP 3156).
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self.step)

    def step(self, _: Any) -> None:
        """Resume the coroutine until it waits again or ends."""
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
            self.wait_for(awaited)
