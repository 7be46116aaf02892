"""The reply to a request that waits for its turn."""

from remoting.command import RemotingCommand
from remoting.private_future import PrivateFuture


class DelayedReply(PrivateFuture[RemotingCommand]):
    """A future reply. sent_at: when the request was sent, in seconds of `time.monotonic`; None while it waits."""

    sent_at: float | None = None

    @property
    def abandonable(self) -> bool:
        """Whether the request has not been sent."""
        return self.sent_at is None
