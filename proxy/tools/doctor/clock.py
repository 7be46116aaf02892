"""Whether client and server agree on the time."""

import time
from collections.abc import AsyncIterator, Callable
from email.utils import parsedate_to_datetime

from proxy.tools.doctor import wire
from proxy.tools.doctor.connection import Unreachable
from proxy.tools.doctor.findings import Finding, finding
from proxy.tools.doctor.session import Visit
from proxy.tools.doctor.wire import Unanswered

# Seconds of difference that are worth a word, and that are wrong. HTTP tells whole seconds, and an answer takes time.
_WORTH_A_WORD = 2.0
_WRONG = 60.0


async def clock(visit: Visit, now: Callable[[], float] = time.time) -> AsyncIterator[Finding]:
    """Compare with the time at which the message was stored, or with what HTTP says of the time."""
    if not visit.open:
        return
    source, skew = "the message's time of storage", visit.stored
    if skew is None:
        source, skew = "HTTP's Date", await _by_http(visit, now)
    if skew is None:
        yield finding("clock.unknown")
    elif abs(skew) < _WORTH_A_WORD:
        yield finding("clock.agrees", source=source, skew=skew)
    else:
        yield finding("clock.skewed" if abs(skew) < _WRONG else "clock.wrong", source=source, skew=skew)


async def _by_http(visit: Visit, now: Callable[[], float]) -> float | None:
    began = now()
    try:
        answer = await wire.get(visit.line, "/livez")
        date = parsedate_to_datetime(answer.headers["Date"])
    except (Unanswered, Unreachable, TypeError, ValueError):
        return None
    # The date is cut to the second: in the middle, half a second of it is gone.
    return date.timestamp() + 0.5 - (began + now()) / 2
