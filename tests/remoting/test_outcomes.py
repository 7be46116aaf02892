"""Responses for the outcomes of requests."""

import asyncio
import gc
import weakref

import pytest

from remoting.errors import Overloaded
from remoting.outcomes import Reply, response_of

pytestmark = pytest.mark.anyio


async def test_a_failed_request_is_released_without_garbage_collection() -> None:
    """An overloaded server fails many requests, each with its command, before the next collection of old objects."""
    gc.collect()
    gc.disable()
    try:
        reply: Reply = asyncio.get_running_loop().create_future()
        reply.set_exception(Overloaded("try again later"))
        assert response_of(reply).remark == "try again later"
        released = weakref.ref(reply)
        del reply
        assert released() is None
    finally:
        gc.enable()
