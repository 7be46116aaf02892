"""A request that was sent and has no response yet."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout
from remoting.timeout_wheel import TimeoutWheel

# Seconds between looks whether a request's future is done without a response, as that of a long poll whose client has
# gone. A callback of the future would cost each poll more.
LOOK_SECONDS: Final = 10.0
# Takes over a request whose connection was lost before its response came.
LostHandler = Callable[[RemotingCommand, "asyncio.Future[RemotingCommand]"], None]


class Requester(Protocol):
    """The connection that a request was sent over."""

    name: str

    def expire_request(self, opaque: int, timeout: float) -> None:
        """Forget a request that had no response within `timeout` seconds."""


class PendingRequest:
    """A request without a response; an entry of the timeout wheel."""

    __slots__ = ("_remaining", "_requester", "_wheel", "command", "future", "lost", "opaque", "timeout")

    def __init__(
        self,
        requester: Requester,
        command: RemotingCommand,
        future: "asyncio.Future[RemotingCommand]",
        lost: LostHandler | None,
        timeout: float,
        wheel: TimeoutWheel,
    ) -> None:
        self._requester: Requester | None = requester
        self.command: RemotingCommand | None = command
        self.future: asyncio.Future[RemotingCommand] | None = future
        self.lost = lost
        self.opaque: int = command.header["opaque"]
        self.timeout = timeout
        self._wheel = wheel
        self._remaining = 0.0

    def schedule(self, seconds: float) -> None:
        """Expire the request in this time, after looks whether its client has gone."""
        if seconds > LOOK_SECONDS:
            self._remaining = seconds - LOOK_SECONDS
            seconds = LOOK_SECONDS
        self._wheel.add(self, seconds)

    def end(self) -> "asyncio.Future[RemotingCommand] | None":
        """Drop all references, because the timeout wheel keeps this object; return the future if it is not done."""
        future = self.future
        self._requester = self.command = self.future = self.lost = None
        return None if future is None or future.done() else future

    def expire(self) -> None:
        """Fail the request with RequestTimeout, unless it has ended.

        Before its deadline only release its memory if the future is done, because the client of a long poll has gone.
        """
        requester, command, future = self._requester, self.command, self.future
        if requester is None:
            return
        if self._remaining > 0:
            if future is not None and future.done():
                self.command = self.future = self.lost = None
            remaining, self._remaining = self._remaining, 0.0
            self.schedule(remaining)
            return
        future = self.end()
        if future is not None and command is not None:
            future.set_exception(RequestTimeout(f"{requester.name} did not answer request {command.code} in time"))
        requester.expire_request(self.opaque, self.timeout)
