"""The end of open connections whose client certificates expire."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

_log = logging.getLogger("gantry.connections")

# Seconds between two checks. A timer for each connection would stay until the certificate's end, perhaps for years.
INTERVAL = 1.0


class CertificateExpiry:
    """Open connections with client certificates; closes each when its certificate has expired.

    name: of the listener. clock: seconds since 1970.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._loop = loop
        self._clock = clock
        # The ends of the certificates, in seconds since 1970, and the earliest of them.
        # Weak, so that a connection is freed when it has ended.
        self._ends: WeakKeyDictionary[asyncio.Transport, float] = WeakKeyDictionary()
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transport: asyncio.Transport, not_after: float) -> bool:
        """Watch a connection; return False if its certificate has expired already."""
        if not_after <= self._clock():
            return False
        self._ends[transport] = not_after
        self._next = min(self._next, not_after)
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL, self._check)
        return True

    def _check(self) -> None:
        self._timer = self._loop.call_later(INTERVAL, self._check) if self._ends else None
        now = self._clock()
        if now < self._next:
            return
        expired = [transport for transport, end in self._ends.items() if end <= now and not transport.is_closing()]
        self._ends = WeakKeyDictionary({transport: end for transport, end in self._ends.items() if end > now})
        self._next = min(self._ends.values(), default=math.inf)
        for transport in expired:
            transport.abort()
        if expired:
            _log.info("listener %s: %d connections end with their client certificates", self._name, len(expired))
