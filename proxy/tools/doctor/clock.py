"""Clock difference between client and server."""

import time
from collections.abc import AsyncIterator, Callable
from email.utils import parsedate_to_datetime

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Diagnosis
from proxy.tools.doctor.wire import Unanswered

# Seconds of difference for a warning and for a failure. HTTP dates have whole seconds, and a response takes time.
_WORTH_A_WORD = 2.0
_WRONG = 60.0


async def check_clock(diagnosis: Diagnosis, now: Callable[[], float] = time.time) -> AsyncIterator[Finding]:
    """Compare with the time at which the message was stored, or with HTTP's Date."""
    if not diagnosis.open:
        return
    source, skew = "the message's time of storage", diagnosis.stored
    if skew is None:
        source, skew = "HTTP's Date", await _by_http(diagnosis, now)
    if skew is None:
        yield finding("clock.unknown")
    elif abs(skew) < _WORTH_A_WORD:
        yield finding("clock.agrees", source=source, skew=skew)
    else:
        yield finding("clock.skewed" if abs(skew) < _WRONG else "clock.wrong", source=source, skew=skew)


async def _by_http(diagnosis: Diagnosis, now: Callable[[], float]) -> float | None:
    began = now()
    try:
        answer = await wire.get(diagnosis.line, "/livez")
        date = parsedate_to_datetime(answer.headers["Date"])
    except (Unanswered, Unreachable, TypeError, ValueError):
        return None
    # Dates are truncated to the second: half a second on average.
    return date.timestamp() + 0.5 - (began + now()) / 2
