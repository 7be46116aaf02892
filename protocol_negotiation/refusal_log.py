"""The log of refused connections: one line each, and never a flood."""

import logging
from collections.abc import Callable

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import Peer

logger = logging.getLogger("gantry.negotiation")

LINES_PER_SECOND = 10

# A balancer's check of the port connects and leaves, or waits: no reason to wake anybody.
_QUIET = {Outcome.CLOSED: logging.DEBUG, Outcome.SILENT: logging.INFO}


class RefusalLog:
    """Writes refusals to the logger ``gantry.negotiation``: at most `LINES_PER_SECOND` lines a second of `clock`
    (seconds, as ``loop.time``); what goes beyond is counted, and the count is written by `flush`.

    `on_suppressed` is called when a count begins, so that somebody flushes a second later.
    """

    __slots__ = ("_clock", "_lines", "_name", "_on_suppressed", "_second", "_suppressed")

    def __init__(self, name: str, clock: Callable[[], float], on_suppressed: Callable[[], object]) -> None:
        self._name = name
        self._clock = clock
        self._on_suppressed = on_suppressed
        self._second = -1
        self._lines = 0
        self._suppressed = 0

    def refused(self, outcome: Outcome, peer: Peer, first_bytes: bytes, reason: str) -> None:
        level = _QUIET.get(outcome, logging.WARNING)
        if not logger.isEnabledFor(level):
            return
        if not self._within_budget():
            self._suppress()
            return
        logger.log(
            level,
            "listener %s: %s from %s%s: %s; first bytes: %s",
            self._name,
            outcome.value,
            peer.address,
            f" via {peer.via}" if peer.via else "",
            reason,
            first_bytes.hex(" ") or "none",
        )

    def flush(self) -> None:
        """Writes the count of the lines that were left out since the last time, if any."""
        if self._suppressed:
            logger.warning("listener %s: %d more connections refused", self._name, self._suppressed)
            self._suppressed = 0

    def _within_budget(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND

    def _suppress(self) -> None:
        self._suppressed += 1
        if self._suppressed == 1:
            self._on_suppressed()
