"""Errors that a client receives after a delay, which makes guesses of secrets slow."""

import asyncio
import gc

import pytest

from proxy.core.messaging import _delayed
from remoting.errors import NotPermitted

pytestmark = pytest.mark.anyio


async def test_a_delayed_error_whose_client_has_gone_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = NotPermitted("denied")
    error.delay = 0.01
    reply = _delayed(error)
    reply.add_done_callback(lambda _: None)
    await asyncio.wait([reply])
    del reply
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_delayed_error_reaches_the_client() -> None:
    error = NotPermitted("denied")
    error.delay = 0.01
    with pytest.raises(NotPermitted, match="denied"):
        await _delayed(error)
