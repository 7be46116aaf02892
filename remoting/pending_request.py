"""A request that was sent and has no response yet."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout

# Takes over a request whose connection was lost before its response came.
LostHandler = Callable[[RemotingCommand, "asyncio.Future[RemotingCommand]"], None]


class Requester(Protocol):
    """The connection that a request was sent over."""

    name: str

    def expire_request(self, opaque: int, timeout: float) -> None:
        """Forget a request that had no response within `timeout` seconds."""


class PendingRequest:
    """A request without a response; an entry of the timeout wheel."""

    __slots__ = ("_requester", "command", "future", "lost", "opaque", "timeout")

    def __init__(
        self,
        requester: Requester,
        command: RemotingCommand,
        future: "asyncio.Future[RemotingCommand]",
        lost: LostHandler | None,
        timeout: float,
    ) -> None:
        self._requester: Requester | None = requester
        self.command: RemotingCommand | None = command
        self.future: asyncio.Future[RemotingCommand] | None = future
        self.lost = lost
        self.opaque: int = command.header["opaque"]
        self.timeout = timeout

    def end(self) -> "asyncio.Future[RemotingCommand] | None":
        """Drop all references, because the timeout wheel keeps this object; return the future if it is not done."""
        future = self.future
        self._requester = self.command = self.future = self.lost = None
        return None if future is None or future.done() else future

    def abandon(self, _: "asyncio.Future[RemotingCommand]") -> None:
        """Drop all references, because the future is done although there is no response."""
        self.end()

    def expire(self) -> None:
        """Fail the request with RequestTimeout, unless it has ended."""
        requester, command = self._requester, self.command
        if requester is None or command is None:
            return
        future = self.end()
        if future is not None:
            future.set_exception(RequestTimeout(f"{requester.name} did not answer request {command.code} in time"))
        requester.expire_request(self.opaque, self.timeout)
