"""The end of open connections whose client certificates expire or are revoked."""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from protocol_negotiation.peer import PeerCertificate
from protocol_negotiation.revocations import Revocations

_log = logging.getLogger("gantry.connections")

# Seconds between two checks. A timer for each connection would stay until the certificate's end, perhaps for years.
INTERVAL = 1.0


class _Watched(NamedTuple):
    """The certificate of an open connection. end: of its validity, in seconds since 1970."""

    end: float
    serial_number: int
    connection: ReferenceType[ssl.SSLObject]


class CertificateExpiry:
    """Open connections with client certificates; closes each when its certificate has expired or has been revoked.

    name: of the listener. revocations: returns the revoked certificates; None without a revocation list. clock: seconds
    since 1970.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        revocations: Callable[[], Revocations | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._loop = loop
        self._revocations = revocations
        self._clock = clock
        # Weak, so that a connection is freed when it has ended.
        self._watched: WeakKeyDictionary[asyncio.Transport, _Watched] = WeakKeyDictionary()
        # The earliest end of a certificate.
        self._next = math.inf
        # Those with which the open connections have been compared.
        self._compared: Revocations | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transport: asyncio.Transport, certificate: PeerCertificate, connection: ssl.SSLObject) -> bool:
        """Watch a connection; return False if its certificate has expired already."""
        if certificate.not_after <= self._clock():
            return False
        watched = _Watched(certificate.not_after, int(certificate.serial_number, 16), ref(connection))
        self._watched[transport] = watched
        self._next = min(self._next, watched.end)
        revocations = self._revocations()
        if revocations is not None and revocations.may_contain(watched.serial_number):
            # Its handshake may have begun before the list was read.
            self._compared = None
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL, self._check)
        return True

    def _check(self) -> None:
        self._timer = self._loop.call_later(INTERVAL, self._check) if self._watched else None
        self._close(self._take_expired(), "have expired")
        revocations = self._revocations()
        if revocations is not self._compared:
            self._compared = revocations
            if revocations is not None:
                revoked = [one for one, watched in self._watched.items() if _is_revoked(watched, revocations)]
                self._close(revoked, "have been revoked")

    def _take_expired(self) -> list[asyncio.Transport]:
        """Return the connections whose certificates have expired, and forget them."""
        now = self._clock()
        if now < self._next:
            return []
        expired = [transport for transport, watched in self._watched.items() if watched.end <= now]
        for transport in expired:
            del self._watched[transport]
        self._next = min((watched.end for watched in self._watched.values()), default=math.inf)
        return expired

    def _close(self, transports: list[asyncio.Transport], reason: str) -> None:
        closed = [transport for transport in transports if not transport.is_closing()]
        for transport in closed:
            transport.abort()
        if closed:
            _log.info(
                "listener %s: closed %d connections whose client certificates %s", self._name, len(closed), reason
            )


def _is_revoked(watched: _Watched, revocations: Revocations) -> bool:
    # Few certificates pass the first test, and only these are read.
    if not revocations.may_contain(watched.serial_number):
        return False
    connection = watched.connection()
    return connection is not None and revocations.contain_peer(connection)
