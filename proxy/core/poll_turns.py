"""Turns of long polls at a broker: a bound on those that it may be answering now.

A broker copies the messages of each answer, up to some MiB, and keeps them until we have read them. Thousands of pulls
at once would fill its memory, and every other client would wait behind them. Official brokers cannot cancel a request.

A poll counts until it is answered, or until it has waited for longer than an answer with messages takes: then the
broker has parked it. Polls over the bound wait here. Source addresses take turns, and so do the clients of each.
"""

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic

from protocol_negotiation.address_limit import source_of
from proxy.core.channel import Channel
from proxy.core.upstream_shares import Reply, Send, send_to

_log = logging.getLogger("gantry.messaging")

# Seconds after which a poll without an answer is parked: at least, and at most while large answers take long.
_PARKED_SECONDS = 0.05
_MAX_PARKED_SECONDS = 3.0
# The same as a multiple of the time that a large answer has taken, and seconds until that is forgotten.
_PARKED_FACTOR = 2.0
_SLOW_SECONDS = 2.0
# Bytes from which an answer is large: a parked poll, which ends with the first new message, rarely has such an answer.
_LARGE_ANSWER = 256 * 1024
# Polls are counted by intervals of this many seconds.
_INTERVAL = 0.01
_LOG_INTERVAL = 60.0

_Clients = OrderedDict[Channel, deque[tuple[Send, Reply]]]


class PollTurns:
    """The polls at one broker.

    limit: polls that the broker may be answering at once. active: number of those now. waited: number of polls that had
    to wait.
    """

    def __init__(self, broker: str, limit: int) -> None:
        self.limit = limit
        self.active = 0
        self.waited = 0
        self._broker = broker
        # The number of active polls by the interval in which they were sent.
        self._sent: dict[int, int] = {}
        self._parked_seconds = _PARKED_SECONDS
        self._slow_until = self._logged_at = -math.inf
        self._waiting: OrderedDict[str | int | None, _Clients] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of polls that wait now."""
        return sum(len(entries) for clients in self._waiting.values() for entries in clients.values())

    def enter(self, now: float) -> bool:
        """Count a poll that is to be sent at `now`; return False if it has to wait instead."""
        if self._waiting or not self._has_room(now):
            return False
        self._count(now)
        return True

    def leave(self, sent: float | None, now: float, reply: Reply) -> None:
        """Count the end, at `now`, of a poll that was sent at `sent`, and send waiting ones."""
        # The broker still answers a poll whose client has gone.
        if sent is None or reply.cancelled() or reply.exception() is not None:
            return
        if len(reply.result().body) >= _LARGE_ANSWER:
            self._parked_seconds = min(max(_PARKED_FACTOR * (now - sent), _PARKED_SECONDS), _MAX_PARKED_SECONDS)
            self._slow_until = now + _SLOW_SECONDS
        interval = int(sent / _INTERVAL)
        count = self._sent.get(interval)
        if count:
            self._sent[interval] = count - 1
            self.active -= 1
        if self._waiting:
            self._send_waiting(now)

    def wait(self, channel: Channel, send: Send) -> Reply:
        """Send the poll later; return the future of its reply."""
        now, loop = monotonic(), asyncio.get_running_loop()
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            _log.info("%d long polls are waiting for the broker %s to answer: others wait", self.active, self._broker)
        self.waited += 1
        reply: Reply = loop.create_future()
        clients = self._waiting.setdefault(source_of(channel.peer.address), OrderedDict())
        clients.setdefault(channel, deque()).append((send, reply))
        if self._timer is None:
            self._timer = loop.call_later(_INTERVAL, self._tick, loop)
        return reply

    def _has_room(self, now: float) -> bool:
        """Return whether one more poll may be sent; forget those that the broker has parked."""
        if now > self._slow_until:
            self._parked_seconds = _PARKED_SECONDS
        oldest = int((now - self._parked_seconds) / _INTERVAL)
        sent = self._sent
        while sent and (interval := next(iter(sent))) < oldest:
            self.active -= sent.pop(interval)
        return self.active < self.limit

    def _count(self, now: float) -> None:
        interval = int(now / _INTERVAL)
        self._sent[interval] = self._sent.get(interval, 0) + 1
        self.active += 1

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._send_waiting(monotonic())
        if self._waiting and self._timer is None:
            self._timer = loop.call_later(_INTERVAL, self._tick, loop)

    def _send_waiting(self, now: float) -> None:
        while self._waiting and self._has_room(now):
            send, reply = self._next()
            # Done: its client has gone.
            if not reply.done() and send_to(reply, send, now):
                self._count(now)

    def _next(self) -> tuple[Send, Reply]:
        """Remove the next poll that waits: of the next client of the next source address."""
        source, clients = self._waiting.popitem(last=False)
        channel, entries = clients.popitem(last=False)
        entry = entries.popleft()
        if entries:
            clients[channel] = entries
        if clients:
            self._waiting[source] = clients
        return entry


class BrokerPollTurns:
    """The polls at all brokers; `limit` of them at each.

    has_broker: returns whether a broker of this name exists.
    """

    def __init__(self, limit: int, has_broker: Callable[[str], bool]) -> None:
        self._limit = limit
        self._has_broker = has_broker
        self._brokers: dict[str, PollTurns] = {}

    @property
    def waiting(self) -> int:
        """The number of polls that wait now."""
        return sum(turns.waiting for turns in self._brokers.values())

    @property
    def waited(self) -> int:
        """The number of polls that had to wait."""
        return sum(turns.waited for turns in self._brokers.values())

    def of(self, broker: str) -> PollTurns | None:
        """Return the turns at a broker; None if it is unknown."""
        turns = self._brokers.get(broker)
        if turns is None and self._has_broker(broker):
            turns = self._brokers[broker] = PollTurns(broker, self._limit)
        return turns
