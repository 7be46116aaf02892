"""Coroutines that run without a task."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from remoting.private_future import PrivateFuture

_Result = TypeVar("_Result")


class Receiver(Protocol):
    """Takes the outcome of a coroutine."""

    def respond(self, response: Any) -> None:
        """Take its result."""

    def fail(self, error: BaseException) -> None:
        """Take its exception."""


def start(coroutine: Coroutine[Any, Any, _Result]) -> "_Result | Running[_Result]":
    """Run a coroutine until it waits for the first time; return its result, or the coroutine as it goes on.

    Raises the exception of a coroutine that does not wait before. The coroutine may await futures and
    `asyncio.sleep(0)`, and must not use the current task, as `asyncio.timeout` does.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    running = Running(coroutine)
    running.wait_for(awaited)
    return running


def run_eagerly(coroutine: Coroutine[Any, Any, _Result]) -> "_Result | asyncio.Future[_Result]":
    """Run a coroutine as `start` does; return its result, or a future of it.

    Cancelling the future does not cancel the coroutine: it runs to its end, and its result is discarded.
    """
    outcome = start(coroutine)
    return outcome.future() if isinstance(outcome, Running) else outcome


class Running(Generic[_Result]):
    """A coroutine that waits. receiver: takes its outcome; to be set in the turn of the event loop that started it.

    The receiver is called in the turn that ends the coroutine: a future would take another one.
    """

    __slots__ = ("_awaited", "_coroutine", "receiver")

    def __init__(self, coroutine: Coroutine[Any, Any, _Result]) -> None:
        self.receiver: Receiver | None = None
        self._awaited: Any = None
        self._coroutine = coroutine

    def future(self) -> "asyncio.Future[_Result]":
        """Return a future of the result, which becomes the receiver."""
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self.receiver = _FutureReceiver(future)
        return future

    def __await__(self) -> Generator[Any, None, _Result]:
        return self.future().__await__()

    def wait_for(self, awaited: Any) -> None:
        """Resume when a yielded future is done, or in the next turn of the event loop for None."""
        self._awaited = awaited
        if awaited is None:
            asyncio.get_running_loop().call_soon(self._step, None)
        else:
            # Marks the future's yield as handled, as asyncio.Task does (PEP 3156).
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._step)

    def abandon(self) -> None:
        """Cancel the coroutine if it waits for a `PrivateFuture` without an effect so far; else it runs to its end."""
        awaited = self._awaited
        if isinstance(awaited, PrivateFuture) and awaited.abandonable:
            awaited.cancel()

    def _step(self, _: Any) -> None:
        """Resume the coroutine until it waits again or ends."""
        receiver = self.receiver
        assert receiver is not None
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            receiver.respond(stop.value)
        except (Exception, asyncio.CancelledError) as error:
            receiver.fail(error)
        else:
            self.wait_for(awaited)


class _FutureReceiver:
    """Passes an outcome to a future, unless it is cancelled."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._future = future

    def respond(self, response: Any) -> None:
        if not self._future.done():
            self._future.set_result(response)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._future.cancel()
        elif not self._future.done():
            self._future.set_exception(error)
