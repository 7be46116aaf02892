"""A request that was sent and has no response yet."""

from collections.abc import Callable

from remoting.command import RemotingCommand
from remoting.outcomes import Reply

# Takes over a request whose connection was lost before its response came.
LostHandler = Callable[[RemotingCommand, Reply], None]


class PendingRequest:
    """A request without a response. deadline: in seconds of the timeout wheel's clock, `timeout` seconds after it was
    sent.
    """

    __slots__ = ("command", "deadline", "future", "lost", "timeout")

    def __init__(
        self,
        command: RemotingCommand,
        future: Reply,
        lost: LostHandler | None,
        deadline: float,
        timeout: float,
    ) -> None:
        self.command: RemotingCommand | None = command
        self.future: Reply | None = future
        self.lost = lost
        self.deadline = deadline
        self.timeout = timeout

    def release_if_done(self) -> None:
        """Release the memory of a request whose future is done without a response, as of a client that has gone."""
        if self.future is not None and self.future.done():
            self.command = self.future = self.lost = None
