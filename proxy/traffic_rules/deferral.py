"""Deferred service: a request is served after a delay, by a timer rather than a task."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from proxy.core.messaging import as_future
from remoting.command import RemotingCommand
from remoting.delayed_reply import DelayedReply
from remoting.errors import RemotingError
from remoting.outcomes import Reply

_log = logging.getLogger("gantry.rules")

# Serves a request: returns the reply, now or later; None for a oneway request.
ServeRequest = Callable[[], Awaitable[RemotingCommand] | None]


def defer(seconds: float, serve: ServeRequest, oneway_reply: RemotingCommand) -> Reply:
    """Serve a request after a delay, unless its reply is completed or cancelled before.

    A drain completes replies early, and a client that leaves cancels its own. `oneway_reply` is the result for a oneway
    request; it is not sent.
    """
    loop = asyncio.get_running_loop()
    reply = DelayedReply()
    timer = loop.call_later(seconds, _serve, reply, serve, oneway_reply)
    reply.add_done_callback(lambda _: timer.cancel())
    return reply


def _serve(reply: DelayedReply, serve: ServeRequest, oneway_reply: RemotingCommand) -> None:
    if reply.done():
        return
    try:
        handling = serve()
    except RemotingError as error:
        reply.set_exception(error)
        return
    except Exception:
        _log.exception("a deferred request failed")
        reply.set_exception(RemotingError("internal error"))
        return
    if handling is None:
        reply.set_result(oneway_reply)
        return
    reply.sent_at = time.monotonic()
    served = as_future(handling)
    served.add_done_callback(partial(_copy_result, reply))
    reply.add_done_callback(partial(_cancel, served))


def _copy_result(reply: Reply, served: Reply) -> None:
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


def _cancel(served: Reply, reply: Reply) -> None:
    """Cancel the service of a request whose reply is no longer needed."""
    if not served.done():
        served.cancel()
