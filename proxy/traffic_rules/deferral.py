"""Deferral: a request is served some time after it came, without a task that waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from proxy.core.messaging import Reply, as_future
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.rules")

# Serves a request: the reply, now or later; None for a oneway request.
Serving = Callable[[], Awaitable[RemotingCommand] | None]


def later(wait: float, serve: Serving, nothing: RemotingCommand) -> Reply:
    """Serve in so many seconds, unless the reply was settled before: by a drain, or as nobody wants it any more.

    `nothing` is the reply to a oneway request, which nobody sees.
    """
    loop = asyncio.get_running_loop()
    reply: Reply = loop.create_future()
    timer = loop.call_later(wait, _serve, reply, serve, nothing)
    reply.add_done_callback(lambda _: timer.cancel())
    return reply


def _serve(reply: Reply, serve: Serving, nothing: RemotingCommand) -> None:
    if reply.done():
        return
    try:
        handling = serve()
    except RemotingError as error:
        reply.set_exception(error)
        return
    except Exception:
        _log.exception("a request that was held failed")
        reply.set_exception(RemotingError("internal error"))
        return
    if handling is None:
        reply.set_result(nothing)
        return
    served = as_future(handling)
    served.add_done_callback(partial(_settle, reply))
    reply.add_done_callback(partial(_abandon, served))


def _settle(reply: Reply, served: Reply) -> None:
    if served.cancelled():
        reply.cancel()
        return
    error = served.exception()
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(served.result())


def _abandon(served: Reply, reply: Reply) -> None:
    """Nobody waits for it any more: whoever serves it has to know."""
    if not served.done():
        served.cancel()
