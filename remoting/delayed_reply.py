"""The reply to a request that waits for its turn."""

import asyncio

from remoting.command import RemotingCommand


class DelayedReply(asyncio.Future[RemotingCommand]):
    """A future reply. sent_at: when the request was sent, in seconds of `time.monotonic`; None while it waits."""

    sent_at: float | None = None
