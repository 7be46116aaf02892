"""Delays of the responses to failed authentications, by source."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_network

from proxy.auth.policy import parse_address

# Failures of a source without a delay: a client with a wrong secret tries each of its requests.
_FREE_FAILURES = 3
_FIRST_DELAY = 0.1
_MAX_DELAY = 3.0
_MAX_DOUBLINGS = 10
# Seconds after which a failure counts half.
_HALF_LIFE = 60.0
_MAX_SOURCES = 10_000
# An IPv6 client has at least a /64 network for itself.
_IPV6_PREFIX = 64


class FailureDelays:
    """Returns a longer delay for each failure of a source, up to a few seconds; time halves the number of failures."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Number of failures, and the time of the last one.
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def count(self, host: str) -> float:
        """Return the number of failures of a source, which time halves."""
        count, at = self._failures.get(_source(host), (0.0, 0.0))
        return count * math.exp2((at - self._clock()) / _HALF_LIFE)

    def fail(self, host: str) -> float:
        """Count a failure of a source and return the delay of its response in seconds."""
        source, count = _source(host), self.count(host) + 1
        self._failures[source] = (count, self._clock())
        self._failures.move_to_end(source)
        if len(self._failures) > _MAX_SOURCES:
            self._failures.popitem(last=False)
        if count <= _FREE_FAILURES:
            return 0.0
        doublings = min(count - _FREE_FAILURES - 1, _MAX_DOUBLINGS)
        return min(_MAX_DELAY, _FIRST_DELAY * math.exp2(doublings))


def _source(host: str) -> str:
    address = parse_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, _IPV6_PREFIX), strict=False))
    return host
