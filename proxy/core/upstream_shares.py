"""Fair shares of each broker: a bound on one source address's requests in flight while others use the same broker.

A broker serves requests in the order of their arrival. Without a bound, everybody's requests would wait behind those of
a client with a thousand in flight. Requests over the bound wait here, in their order, until earlier ones have ended.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from weakref import WeakValueDictionary

from protocol_negotiation.address_limit import source_of
from protocol_negotiation.peer import HostPort
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.delayed_reply import DelayedReply
from remoting.errors import RemotingError
from remoting.outcomes import Reply, copy_outcome

_log = logging.getLogger("gantry.messaging")

# Seconds for which another source counts as a user of the broker after its last request.
_ACTIVE_SECONDS = 0.2
# Seconds between two changes of a window's size.
_ADAPTATION_SECONDS = 0.05
# A window is this multiple of the requests that would be in flight if the broker always replied in its least time. This
# is also the factor by which one source at most increases the time of others.
_WINDOW_FACTOR = 1.5
# Seconds after which an older least time is forgotten.
_LEAST_SECONDS = 10.0
_LOG_INTERVAL = 60.0
# Sends a request that has waited, at a time of `monotonic`, and returns the future of its response; None if it is
# oneway, or a response if it need not be sent. Raises RemotingError if it is too late.
Send = Callable[[float], Reply | RemotingCommand | None]


class _Broker:
    """A broker: the source that used it last, when another one did before, and its least time of a reply."""

    __slots__ = ("_earlier", "_since", "changed_at", "last", "least", "name", "windows")

    def __init__(self, name: str) -> None:
        self.name = name
        self.windows: WeakValueDictionary[str | int | None, Window] = WeakValueDictionary()
        self.last: object = None
        self.changed_at = -math.inf
        # Seconds: since `_since`, and in the interval before it.
        self.least = self._earlier = math.inf
        self._since = -math.inf

    def least_time(self, now: float) -> float:
        """Return the least time of a reply lately, in seconds; 0 if there was none."""
        if now - self._since > _LEAST_SECONDS:
            self._earlier, self.least, self._since = self.least, math.inf, now
        least = min(self.least, self._earlier)
        return 0.0 if math.isinf(least) else least


class Window:
    """The requests of one source address at one broker, shared by the sessions of the source.

    in_flight: requests without a reply. waiting: requests that have not been sent.
    """

    __slots__ = (
        "__weakref__",
        "_adapted_at",
        "_broker",
        "_logged_at",
        "_replies",
        "_shares",
        "_size",
        "_source",
        "in_flight",
        "waiting",
    )

    def __init__(self, shares: "UpstreamShares", broker: _Broker, source: str) -> None:
        self._shares = shares
        self._broker = broker
        self._source = source
        self._size = shares.window
        self.in_flight = 0
        self.waiting: deque[tuple[Send, DelayedReply]] = deque()
        self._replies = 0
        self._adapted_at = self._logged_at = -math.inf

    def enter(self, now: float) -> bool:
        """Count a request that is to be sent at `now`; return False if it has to wait instead."""
        broker = self._broker
        if broker.last is not self:
            broker.changed_at = -math.inf if broker.last is None else now
            broker.last = self
        if self.waiting:
            return False
        if self.in_flight >= self._size and now - broker.changed_at <= _ACTIVE_SECONDS and not self._has_room(now):
            return False
        self.in_flight += 1
        return True

    def leave(self, sent: float | None, now: float, _: bool) -> None:
        """Count the end, at `now`, of a request that was sent at `sent`, and send waiting ones."""
        self.in_flight -= 1
        self._replies += 1
        if sent is not None and now - sent < self._broker.least:
            self._broker.least = now - sent
        if self.waiting:
            self._send_waiting(now)

    def wait(self, send: Send) -> Reply:
        """Send the request later; return the future of its reply."""
        now = monotonic()
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            _log.info(
                "%s has %d requests in flight at the broker %s, which other clients use too: further ones wait",
                self._source,
                self.in_flight,
                self._broker.name,
            )
        self._shares.waited += 1
        reply = DelayedReply()
        self.waiting.append((send, reply))
        return reply

    def _send_waiting(self, now: float) -> None:
        while self.waiting and (self.in_flight < self._size or self._has_room(now)):
            self._send_next(now)

    def _has_room(self, now: float) -> bool:
        """Return whether a full window may have one more request: no other source is active, or the size has grown."""
        if now - self._broker.changed_at > _ACTIVE_SECONDS:
            return True
        elapsed = now - self._adapted_at
        if elapsed >= _ADAPTATION_SECONDS:
            needed = _WINDOW_FACTOR * self._replies / elapsed * self._broker.least_time(now)
            self._size = max(self._shares.window, int(needed))
            self._adapted_at, self._replies = now, 0
        return self.in_flight < self._size

    def _send_next(self, now: float) -> None:
        send, reply = self.waiting.popleft()
        if not reply.done() and send_to(reply, send, now):
            self.in_flight += 1


def send_to(reply: DelayedReply, send: Send, now: float) -> bool:
    """Send a request that has waited, whose reply is set on `reply`; return whether there will be a response."""
    try:
        sent = send(now)
    except RemotingError as error:
        reply.set_exception(error)
        return False
    if sent is None or isinstance(sent, RemotingCommand):
        # That of a oneway request is not sent.
        reply.set_result(commands.success() if sent is None else sent)
        return False
    reply.sent_at = now
    sent.add_done_callback(partial(copy_outcome, reply))
    reply.add_done_callback(partial(_cancel, sent))
    return True


def _cancel(sent: Reply, _: Reply) -> None:
    """Release the memory of a request whose client has gone."""
    sent.cancel()


class UpstreamShares:
    """The windows of all sources and brokers.

    window: requests in flight of one source at one broker that are always allowed; more if the broker replies slowly
    even without a queue. waited: number of requests that had to wait.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.waited = 0
        self._brokers: dict[str, _Broker] = {}

    @property
    def waiting(self) -> int:
        """The number of requests that wait now."""
        return sum(len(window.waiting) for broker in self._brokers.values() for window in broker.windows.values())

    def of(self, address: HostPort, broker: str) -> Window:
        """Return the window of this client's source address at a broker. A session keeps it."""
        use = self._brokers.get(broker)
        if use is None:
            use = self._brokers[broker] = _Broker(broker)
        source = source_of(address)
        window = use.windows.get(source)
        if window is None:
            window = use.windows[source] = Window(self, use, address.host)
        return window
