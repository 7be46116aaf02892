"""Turns of long polls at a broker: a bound on those that it may be answering now.

A broker copies the messages of each reply, up to some MiB, and keeps them until we have read them. Thousands of pulls
at once would fill its memory, and every other client would wait behind them. Official brokers cannot cancel a request.

A poll counts until it is answered or parked at the broker. A broker handles polls in the order of their arrival: it has
parked those that were sent before one that it has answered. Without such a reply, it has parked a poll after a while;
after a long one if it is sending much, so that the poll may be waiting for its turn. Polls over the bound wait here.
Source addresses take turns, and so do the clients of each.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from time import monotonic

from protocol_negotiation.address_limit import source_of
from proxy.core.channel import Channel, Session
from proxy.core.upstream_shares import Send, send_to
from remoting.delayed_reply import DelayedReply
from remoting.outcomes import Reply

_log = logging.getLogger("gantry.messaging")

# Seconds after which a poll without a reply is parked: while the broker sends little, and while it sends much.
_PARKED_SECONDS = 0.05
_LATE_PARKED_SECONDS = 3.0
# Bytes that brokers send in _PARKED_SECONDS, which are much.
_MUCH = 1024 * 1024
# Seconds by which a broker's threads may change the order of polls.
_DISORDER = 0.02
# Polls are counted by intervals of this many seconds.
_INTERVAL = 0.01
_LOG_INTERVAL = 60.0


# The polls of each client that have not been sent, by their replies. A poll whose reply is done leaves at once.
_Clients = OrderedDict[Channel, OrderedDict[DelayedReply, Send]]


class PollTurns:
    """The polls over one connection to a broker.

    limit: polls that the broker may be answering at once. received: returns the number of bytes that brokers have sent
    so far. active: number of polls that count now. waited: number of polls that had to wait.
    """

    def __init__(self, broker: str, limit: int, received: Callable[[], int]) -> None:
        self.limit = limit
        self.active = 0
        self.waited = 0
        self._broker = broker
        self._received = received
        # The number of active polls by the interval in which they were sent.
        self._sent: dict[int, int] = {}
        # When the last poll was sent that the broker has answered.
        self._answered = 0.0
        # When `received` was last called, and its result.
        self._read_at, self._read = 0.0, 0
        # Until when the broker counts as sending much: a busy event loop may not read for a while.
        self._much_until = self._logged_at = -math.inf
        self._waiting: OrderedDict[str | int | None, _Clients] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of polls that wait now."""
        return sum(len(entries) for clients in self._waiting.values() for entries in clients.values())

    def enter(self, now: float) -> bool:
        """Count a poll that is to be sent at `now`; return False if it has to wait instead."""
        # `_has_room` and `_count`, for speed: parked polls are forgotten now and then, and when there is no room.
        if self._waiting or (
            (now - self._read_at >= _PARKED_SECONDS or self.active >= self.limit) and not self._has_room(now)
        ):
            return False
        interval, sent = int(now / _INTERVAL), self._sent
        sent[interval] = sent.get(interval, 0) + 1
        self.active += 1
        return True

    def leave(self, sent: float | None, now: float, answered: bool) -> None:
        """Count the end, at `now`, of a poll that was sent at `sent`, and send waiting ones."""
        # The broker still answers a poll whose client has gone.
        if sent is None or not answered:
            return
        if sent > self._answered:
            self._answered = sent
        interval = int(sent / _INTERVAL)
        count = self._sent.get(interval)
        if count:
            self._sent[interval] = count - 1
            self.active -= 1
        if self._waiting:
            self._send_waiting(now)

    def wait(self, channel: Channel, send: Send) -> Reply:
        """Send the poll later; return the future of its reply."""
        now = monotonic()
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            _log.info("%d long polls are waiting for the broker %s to answer: others wait", self.active, self._broker)
        self.waited += 1
        reply = DelayedReply()
        source = source_of(channel.peer.address)
        clients = self._waiting.setdefault(source, OrderedDict())
        clients.setdefault(channel, OrderedDict())[reply] = send
        reply.add_done_callback(partial(self._discard, source, channel))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_INTERVAL, self._tick, loop)
        return reply

    def _has_room(self, now: float) -> bool:
        """Return whether one more poll may be sent; forget those that the broker has parked."""
        if now - self._read_at >= _PARKED_SECONDS:
            before, self._read, self._read_at = self._read, self._received(), now
            if self._read - before > _MUCH:
                self._much_until = now + _LATE_PARKED_SECONDS
        parked = now - (_LATE_PARKED_SECONDS if now < self._much_until else _PARKED_SECONDS)
        oldest = int(max(parked, self._answered - _DISORDER) / _INTERVAL)
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
            reply, send = self._next()
            # Done: its client has gone.
            if not reply.done() and send_to(reply, send, now):
                self._count(now)

    def _discard(self, source: str | int | None, channel: Channel, reply: DelayedReply) -> None:
        """Forget a poll that has been sent, or whose client has gone."""
        clients = self._waiting.get(source)
        entries = None if clients is None else clients.get(channel)
        if clients is None or entries is None or entries.pop(reply, None) is None:
            return
        if not entries:
            del clients[channel]
        if not clients:
            del self._waiting[source]

    def _next(self) -> tuple[DelayedReply, Send]:
        """Remove the next poll that waits: of the next client of the next source address."""
        source, clients = self._waiting.popitem(last=False)
        channel, entries = clients.popitem(last=False)
        entry = entries.popitem(last=False)
        if entries:
            clients[channel] = entries
        if clients:
            self._waiting[source] = clients
        return entry


class BrokerPollTurns:
    """The polls at all brokers; `limit` of them at each.

    connections: number of connections for polls to each broker, each with its share of the limit: a broker answers in
    order only over one connection. has_broker: returns whether a broker of this name exists. received: returns the
    number of bytes that brokers have sent so far.
    """

    def __init__(
        self, limit: int, connections: int, has_broker: Callable[[str], bool], received: Callable[[], int]
    ) -> None:
        self._limit = max(limit // connections, 1)
        self._connections = connections
        self._has_broker = has_broker
        self._received = received
        self._turns: dict[tuple[str, int], PollTurns] = {}

    @property
    def waiting(self) -> int:
        """The number of polls that wait now."""
        return sum(turns.waiting for turns in self._turns.values())

    @property
    def waited(self) -> int:
        """The number of polls that had to wait."""
        return sum(turns.waited for turns in self._turns.values())

    def of(self, broker: str, session: Session) -> PollTurns | None:
        """Return the turns of a session's polls at a broker; None if it is unknown."""
        key = (broker, session.number % self._connections)
        turns = self._turns.get(key)
        if turns is None and self._has_broker(broker):
            turns = self._turns[key] = PollTurns(broker, self._limit, self._received)
        return turns
