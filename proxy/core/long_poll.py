"""The early end of long polls."""

import asyncio

from remoting.command import RemotingCommand
from remoting.errors import RemotingError


def end_poll(reply: asyncio.Future[RemotingCommand], outcome: RemotingCommand | RemotingError) -> bool:
    """End a long poll with a reply or an error; return whether it was in flight."""
    if reply.done():
        return False
    if isinstance(outcome, RemotingCommand):
        reply.set_result(outcome)
    else:
        reply.set_exception(outcome)
    return True
