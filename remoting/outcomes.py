"""Replies, and responses for their outcomes: results, errors and cancellations."""

import asyncio
import logging

from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.memory_watch import LARGE

_log = logging.getLogger("gantry.remoting")

# The response to a request, which comes later; fails with a RemotingError of the code and remark of an error response.
Reply = asyncio.Future[RemotingCommand]


def response_of(reply: Reply) -> RemotingCommand:
    """Return the response in a finished future, or an error response if the future failed."""
    try:
        return reply.result()
    except RemotingError as error:
        # Its frames refer to the future: a cycle, which would stay in memory until the next garbage collection.
        error.__traceback__ = None
        return error_response(error)
    except asyncio.CancelledError:
        return error_response(RemotingError("the request was given up"))
    except Exception as error:
        _log.error("a request failed", exc_info=error)
        return error_response(RemotingError("internal error"))


def copy_outcome(target: Reply, source: Reply) -> None:
    """Give a future the outcome of a finished one, unless it has its own."""
    if target.done():
        return
    if source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


def is_large(reply: Reply) -> bool:
    """Return whether a finished future has a large body."""
    return not reply.cancelled() and reply.exception() is None and len(reply.result().body) >= LARGE


def error_response(error: RemotingError) -> RemotingCommand:
    return commands.response(error.code, remark=str(error))
