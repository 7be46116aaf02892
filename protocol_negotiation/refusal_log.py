"""Rate-limited log of refused connections."""

import logging
from collections.abc import Callable

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import Peer

logger = logging.getLogger("gantry.negotiation")

MAX_LINES_PER_SECOND = 10

# A load balancer's TCP check connects and closes, or waits; neither needs attention.
_QUIET = {Outcome.CLOSED: logging.DEBUG, Outcome.SILENT: logging.INFO}


class RefusalLog:
    """Log of refused connections, written to the logger ``gantry.negotiation``.

    It has at most `MAX_LINES_PER_SECOND` lines per second of `clock` (in seconds). Further refusals are counted, and
    `flush` logs their number. `on_suppressed` is called at the first of them, to schedule `flush`.
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
        """Log one refusal."""
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
        """Log the number of refusals that were suppressed since the last flush, if any."""
        if self._suppressed:
            logger.warning("listener %s: %d more connections refused", self._name, self._suppressed)
            self._suppressed = 0

    def _within_budget(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= MAX_LINES_PER_SECOND

    def _suppress(self) -> None:
        self._suppressed += 1
        if self._suppressed == 1:
            self._on_suppressed()
