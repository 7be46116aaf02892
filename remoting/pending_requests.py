"""The requests of a connection that have no response yet."""

import math
from typing import Final, Protocol

from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RequestTimeout
from remoting.outcomes import Reply
from remoting.pending_request import LostHandler, PendingRequest
from remoting.timeout_wheel import TimeoutWheel

# Seconds between looks whether the futures of requests are done without a response, as those of long polls whose
# clients have gone. A callback of the future would cost each poll more.
_LOOK_SECONDS: Final = 10.0


class RequestOwner(Protocol):
    """The connection of pending requests."""

    def expire_requests(self) -> None:
        """Call `PendingRequests.expire`."""


class PendingRequests:
    """Requests without a response, by opaque.

    A request is not an entry of the timeout wheel: entries stay there for seconds, and most requests for milliseconds.
    The entry is the connection, once for all its requests.
    """

    __slots__ = ("_look_at", "_opaque", "_requests", "_unanswered", "_wheel")

    def __init__(self, wheel: TimeoutWheel) -> None:
        self._wheel = wheel
        self._requests: dict[int, PendingRequest] = {}
        self._opaque = 0
        # The number of requests that have timed out and may still be answered.
        self._unanswered = 0
        # When the requests are looked at next, by the wheel's clock; infinite if there are none.
        self._look_at = math.inf

    def __len__(self) -> int:
        return len(self._requests)

    def next_opaque(self) -> int:
        """Return an opaque that no pending request has."""
        opaque = self._opaque
        while opaque in self._requests:
            opaque = opaque + 1 & 0x7FFFFFFF
        self._opaque = opaque + 1 & 0x7FFFFFFF
        return opaque

    def add(
        self,
        owner: RequestOwner,
        command: RemotingCommand,
        future: Reply,
        lost: LostHandler | None,
        timeout: float,
    ) -> None:
        """Add a request, which has its opaque, for `timeout` seconds."""
        now = self._wheel.now()
        self._requests[command.opaque] = PendingRequest(command, future, lost, now + timeout, timeout)
        wait = timeout if timeout < _LOOK_SECONDS else _LOOK_SECONDS
        if now + wait < self._look_at:
            self._look_in(owner, wait, now)

    def resolve(self, response: RemotingCommand) -> bool:
        """Resolve the future of the response's request, unless that has timed out; return whether it may have one."""
        request = self._requests.pop(response.opaque, None)
        if request is None:
            if not self._unanswered:
                return False
            self._unanswered -= 1
            return True
        future = request.future
        if future is not None and not future.done():
            future.set_result(response)
        return True

    def _look_in(self, owner: RequestOwner, seconds: float, now: float) -> None:
        self._look_at = now + seconds
        self._wheel.add(_Look(owner), seconds)

    def expire(self, owner: RequestOwner, name: str) -> list[float]:
        """Fail the requests to the peer `name` whose deadlines have passed with RequestTimeout; return their timeouts.

        Call it when the wheel has called the owner.
        """
        now = self._wheel.now()
        if now < self._look_at:
            # Another look is scheduled.
            return []
        expired: list[float] = []
        next_look = now + _LOOK_SECONDS
        for opaque, pending in list(self._requests.items()):
            if pending.deadline <= now:
                del self._requests[opaque]
                self._unanswered += 1
                command, future = pending.command, pending.future
                if command is not None and future is not None and not future.done():
                    future.set_exception(RequestTimeout(f"{name} did not answer request {command.code} in time"))
                expired.append(pending.timeout)
            else:
                pending.release_if_done()
                next_look = min(next_look, pending.deadline)
        self._look_at = math.inf
        if self._requests:
            self._look_in(owner, next_look - now, now)
        return expired

    def lose_all(self, name: str) -> None:
        """Remove all requests, and hand each over or fail it: the connection to the peer `name` was lost."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            if request.command is not None and request.future is not None:
                lose(request.command, request.future, request.lost, name)


class _Look:
    """Entry of the timeout wheel that looks for requests without a response."""

    __slots__ = ("_owner",)

    def __init__(self, owner: RequestOwner) -> None:
        self._owner = owner

    def expire(self) -> None:
        self._owner.expire_requests()


def lose(command: RemotingCommand, future: Reply, lost: LostHandler | None, name: str) -> None:
    """Hand a request over to `lost`, or fail it with ConnectionLost without one."""
    if future.done():
        return
    if lost is not None:
        try:
            lost(command, future)
        except Exception as error:
            # The other requests of the connection must still be taken over.
            if not future.done():
                future.set_exception(error)
    else:
        future.set_exception(ConnectionLost(f"the connection to {name} was lost"))
