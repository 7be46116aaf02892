"""A telemetry stream: what is to be told to one client, and the answers that are awaited from it."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from remoting.errors import ConsumerNotOnline, Overloaded, RemotingError, RequestTimeout

# Commands that a client has not read yet, at which it is taken for one that does not read at all.
_MAX_UNREAD = 1_024
# Unique in this process; that no answer is taken for another's is seen to by each stream keeping its own.
_nonces = itertools.count(1)

Answer = asyncio.Future[TelemetryCommand]


class Stream:
    """One open telemetry stream. `failure` is set where it ends by an error of the client's: code and text."""

    __slots__ = ("_answers", "_unread", "_wake", "ended", "failure")

    def __init__(self) -> None:
        self.ended = False
        self.failure: tuple[Code, str] | None = None
        self._unread: deque[TelemetryCommand] = deque()
        self._answers: dict[str, Answer] = {}
        self._wake: asyncio.Future[None] | None = None

    # To the client.

    def write(self, command: TelemetryCommand) -> bool:
        """Tell the client; False where it will not hear it."""
        if self.ended:
            return False
        if len(self._unread) >= _MAX_UNREAD:
            self._unread.clear()
            self.fail(Code.TOO_MANY_REQUESTS, f"{_MAX_UNREAD} telemetry commands have not been read")
            return False
        self._unread.append(command)
        self._rouse()
        return True

    def ask(self, make: Callable[[str], TelemetryCommand], timeout: float) -> Answer:
        """Tell the client something that it answers, `make` getting the nonce.

        Raises by the future, at once where the stream has ended or ends: ConsumerNotOnline; RequestTimeout.
        """
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        if len(self._answers) >= _MAX_UNREAD:
            answer.set_exception(Overloaded("the client owes too many answers"))
            return answer
        nonce = str(next(_nonces))
        if not self.write(make(nonce)):
            answer.set_exception(_ended())
            return answer
        self._answers[nonce] = answer
        timer = loop.call_later(timeout, self._drop, nonce, RequestTimeout("the client did not answer in time"))

        def settled(_: Answer) -> None:
            timer.cancel()
            self._answers.pop(nonce, None)

        answer.add_done_callback(settled)
        return answer

    def answered(self, nonce: str, command: TelemetryCommand) -> None:
        """The client has answered; to a nonce that nobody asked by, or not any more, nothing happens."""
        answer = self._answers.get(nonce)
        if answer is not None and not answer.done():
            answer.set_result(command)

    async def next(self) -> TelemetryCommand | None:
        """What to tell next; None at the end."""
        while not self._unread:
            if self.ended:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return self._unread.popleft()

    # Its end.

    def fail(self, code: Code, text: str) -> None:
        """End it by an error."""
        if not self.ended:
            self.failure = (code, text)
            self.end()

    def end(self) -> None:
        """Nothing more is told by it, and nobody waits for its answers any longer."""
        if self.ended:
            return
        self.ended = True
        for nonce in list(self._answers):
            self._drop(nonce, _ended())
        self._rouse()

    def _drop(self, nonce: str, error: RemotingError) -> None:
        answer = self._answers.get(nonce)
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        self._wake = None


def _ended() -> ConsumerNotOnline:
    return ConsumerNotOnline("the client has no telemetry stream here now")
