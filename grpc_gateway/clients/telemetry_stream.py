"""A telemetry stream: commands queued for one client, and the replies expected from it."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from remoting.errors import ConsumerNotOnline, Overloaded, RemotingError, RequestTimeout

# Commands queued for a client, and their bytes; more end the stream, since the client does not read it. A half message
# to be checked has up to 4 MiB.
_MAX_QUEUED = 1_024
_MAX_QUEUED_BYTES = 16 * 1024 * 1024
# Requests to one client without a reply.
_MAX_REQUESTS = 1_024
# Nonces are unique in this process; replies are matched per stream.
_nonces = itertools.count(1)

Reply = asyncio.Future[TelemetryCommand]


class TelemetryStream:
    """One open telemetry stream.

    principal: the sender that opened it, opaque here. `failure` is the code and text of a stream that ends with an
    error. queued_bytes: of the commands that wait to be sent.
    """

    __slots__ = ("_queue", "_replies", "_wakeup", "ended", "failure", "principal", "queued_bytes")

    def __init__(self, principal: Any = None) -> None:
        self.principal = principal
        self.ended = False
        self.failure: tuple[Code, str] | None = None
        self.queued_bytes = 0
        # With their sizes.
        self._queue: deque[tuple[TelemetryCommand, int]] = deque()
        self._replies: dict[str, Reply] = {}
        self._wakeup: asyncio.Future[None] | None = None

    def write(self, command: TelemetryCommand) -> bool:
        """Queue a command for the client. Return False if the stream has ended, or ends because its queue is full."""
        if self.ended:
            return False
        count, size = len(self._queue), command.ByteSize()
        if count >= _MAX_QUEUED or (count and self.queued_bytes + size > _MAX_QUEUED_BYTES):
            unread = f"{count} telemetry commands of {self.queued_bytes} bytes"
            self._queue.clear()
            self.queued_bytes = 0
            self.fail(Code.TOO_MANY_REQUESTS, f"the client has not read {unread}")
            return False
        self._queue.append((command, size))
        self.queued_bytes += size
        self._wake()
        return True

    def request(self, make: Callable[[str], TelemetryCommand], timeout: float) -> Reply:
        """Send the command that `make` returns for a nonce, and return the future of its reply.

        timeout: seconds. The future raises Overloaded, RequestTimeout, and ConsumerNotOnline when the stream ends.
        """
        loop = asyncio.get_running_loop()
        reply: Reply = loop.create_future()
        if len(self._replies) >= _MAX_REQUESTS:
            reply.set_exception(Overloaded(f"the client has not replied to {_MAX_REQUESTS} requests"))
            return reply
        nonce = str(next(_nonces))
        if not self.write(make(nonce)):
            reply.set_exception(_offline())
            return reply
        self._replies[nonce] = reply
        timer = loop.call_later(timeout, self.fail_request, nonce, RequestTimeout("the client did not reply in time"))

        def remove(_: Reply) -> None:
            timer.cancel()
            self._replies.pop(nonce, None)

        reply.add_done_callback(remove)
        return reply

    def receive_reply(self, nonce: str, command: TelemetryCommand) -> None:
        """Complete the request with this nonce; ignore an unknown nonce."""
        reply = self._replies.get(nonce)
        if reply is not None and not reply.done():
            reply.set_result(command)

    def fail_request(self, nonce: str, error: RemotingError) -> None:
        """Fail the request with this nonce; ignore an unknown nonce."""
        reply = self._replies.get(nonce)
        if reply is not None and not reply.done():
            reply.set_exception(error)

    async def next(self) -> TelemetryCommand | None:
        """Return the next queued command, waiting for one; None at the end of the stream."""
        while not self._queue:
            if self.ended:
                return None
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        command, size = self._queue.popleft()
        self.queued_bytes -= size
        return command

    def fail(self, code: Code, text: str) -> None:
        """End the stream with an error."""
        if not self.ended:
            self.failure = (code, text)
            self.end()

    def end(self) -> None:
        """End the stream after the queued commands, and fail all requests without a reply."""
        if self.ended:
            return
        self.ended = True
        for nonce in list(self._replies):
            self.fail_request(nonce, _offline())
        self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        self._wakeup = None


def _offline() -> ConsumerNotOnline:
    return ConsumerNotOnline("the client has no telemetry stream on this replica")
