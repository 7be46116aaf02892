"""Brokers that did not answer sends.

A broker whose disk hangs answers heartbeats, so that the backend, which finds stopped brokers for all requests, does
not find it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from remoting.command import RemotingCommand
from remoting.delayed_reply import DelayedReply

_log = logging.getLogger("gantry.grpc")

# Seconds after which one send tries such a broker again.
_RETRY_SECONDS: Final = 10.0
# Seconds without an answer; a refused connection fails sooner, and costs a send nothing.
_UNRESPONSIVE_SECONDS: Final = 1.0
# More names than a cluster has: those of brokers that were removed are dropped.
_MAX_BROKERS: Final = 1_000


class UnresponsiveBrokers:
    """Brokers that sends avoid while their topic has others.

    One send in ten seconds tries such a broker, and an answer ends the avoidance.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # The time in seconds of the next attempt, by broker name.
        self._next_attempts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._next_attempts)

    def avoided(self) -> frozenset[str]:
        """Return the names of the brokers to avoid now."""
        now = self.clock()
        return frozenset(broker for broker, attempt in self._next_attempts.items() if now < attempt)

    def note_attempt(self, broker: str) -> None:
        """Record a send to a broker: until it is answered, others avoid the broker if it was unresponsive."""
        if broker in self._next_attempts:
            self._next_attempts[broker] = self.clock() + _RETRY_SECONDS

    def note_answer(self, broker: str) -> None:
        """Record an answer of a broker."""
        self._next_attempts.pop(broker, None)

    def note_failure(self, broker: str, begin: float, reply: "asyncio.Future[RemotingCommand] | None" = None) -> None:
        """Record a send that began at a time of the clock, and was not answered. reply: its future, if it has one.

        The time for which the request waited for its turn here, before it was sent, is not the broker's.
        """
        if isinstance(reply, DelayedReply):
            if reply.sent_at is None:
                return
            begin = reply.sent_at
        now = self.clock()
        if now - begin < _UNRESPONSIVE_SECONDS:
            return
        if broker not in self._next_attempts:
            _log.warning("the broker %s has not answered for %.1f s: sends prefer others", broker, now - begin)
            if len(self._next_attempts) >= _MAX_BROKERS:
                self._next_attempts.clear()
        self._next_attempts[broker] = now + _RETRY_SECONDS
