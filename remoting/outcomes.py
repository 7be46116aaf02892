"""Responses for the outcomes of requests: results, errors and cancellations."""

import asyncio
import logging

from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.memory_watch import LARGE

_log = logging.getLogger("gantry.remoting")


def response_of(reply: "asyncio.Future[RemotingCommand]") -> RemotingCommand:
    """Return the response in a finished future, or an error response if the future failed."""
    if reply.cancelled():
        return error_response(RemotingError("the request was given up"))
    error = reply.exception()
    if error is None:
        return reply.result()
    if not isinstance(error, RemotingError):
        _log.error("a request failed", exc_info=error)
        error = RemotingError("internal error")
    return error_response(error)


def is_large(reply: "asyncio.Future[RemotingCommand]") -> bool:
    """Return whether a finished future has a large body."""
    return not reply.cancelled() and reply.exception() is None and len(reply.result().body) >= LARGE


def error_response(error: RemotingError) -> RemotingCommand:
    return commands.response(error.code, remark=str(error))
