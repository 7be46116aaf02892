"""Futures that only one coroutine waits for."""

import asyncio
from typing import TypeVar

_Result = TypeVar("_Result")


class PrivateFuture(asyncio.Future[_Result]):
    """A future that one coroutine alone awaits, before it has had an effect: `Running.abandon` cancels it."""

    @property
    def abandonable(self) -> bool:
        """Whether there has been no effect so far."""
        return True
