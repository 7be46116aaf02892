"""Renewal: deliveries stay invisible for as long as their consumer works on them.

The replica that a message was received from holds it: it renews the handle before the invisible duration is over,
until the consumer settles the delivery, is gone, or has had it for too long. Consumers know nothing of that and
settle by the handle that they got, which is exchanged for the newest here. Brokers know only the newest, so replicas
tell each other (`tidings`): the holder what it renewed, everybody else what they settled of a holder's. A replica
that dies takes its renewals along, and its messages come back after one more invisible duration.

No clock and no timer of its own: `sweep` is called about once a second.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming import renewal_events, settlement_commands
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal_events import Event, RenewalEvent
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.topic_group_config import GroupConfig

_log = logging.getLogger("gantry.grpc")

# A delivery is renewed when this part of its invisible duration is left: time enough for a few tries.
_LEFT = 0.25
# Seconds until a renewal that failed, or found no room, is tried again.
_AGAIN = 2.0
# Deliveries held at most, those of other replicas that are known, and what is still to be told.
_MAX_HELD = 200_000
_MAX_KNOWN = 500_000
_MAX_UNTOLD = 100_000
# Renewals under way at a time: brokers serve consumers with the same threads.
_MAX_UNDER_WAY = 512
# Tidings of one message.
_BATCH = 500


class _Held:
    """A delivery that we renew. Times are seconds of the loop's clock."""

    __slots__ = (
        "attempt",
        "claims",
        "client",
        "due",
        "expires",
        "first",
        "group",
        "last",
        "lite_topic",
        "newest",
        "original",
        "renewing",
        "settlement",
        "topic",
    )

    def __init__(
        self, client: Client, group: str, topic: str, lite_topic: str, handle: ReceiptHandle, attempt: int, now: float
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.lite_topic = lite_topic
        self.original = handle.text
        self.newest = handle
        self.attempt = attempt
        self.first = now
        self.expires = 0.0
        self.due = 0
        # Settlements under way: until they are answered, nothing is renewed.
        self.claims = 0
        self.renewing: asyncio.Future[RemotingCommand] | None = None
        # What another replica did, that has to be done to the handle which a renewal under way will bring.
        self.settlement: RenewalEvent | None = None
        # The renewal under way is the last.
        self.last = False


class Delivery(NamedTuple):
    """A delivery that is held, for whoever looks. Times are seconds of the loop's clock: since when, until when."""

    client: Client
    group: str
    topic: str
    lite_topic: str
    newest: ReceiptHandle
    attempt: int
    since: float
    until: float
    renewing: bool


class Renewal:
    """The deliveries that this replica holds, and what it knows of other replicas'.

    clock: seconds. replica: this replica's name among those that share, different each time it starts; empty: nobody
    shares, and nothing is told.
    """

    def __init__(self, core: Core, options: Options, clock: Callable[[], float], replica: str = "") -> None:
        self._core = core
        self._options = options
        self._clock = clock
        self._shared = bool(replica)
        self._name = replica or "0"
        self._number = 0
        self._held: dict[str, _Held] = {}
        # By the second they are due.
        self._due: dict[int, dict[str, _Held]] = {}
        self._swept = int(clock())
        self._clients: dict[Client, set[str]] = {}
        self._under_way = 0
        # Renewals that brokers were asked for, by their outcome.
        self.counts = {"renewed": 0, "failed": 0}
        # Of other replicas: the original handle to group, newest handle, and until when that is of use; in the order
        # of the latter.
        self._known: dict[str, tuple[str, str, float]] = {}
        self._untold: deque[RenewalEvent] = deque(maxlen=_MAX_UNTOLD)

    def __len__(self) -> int:
        """How many deliveries are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[Delivery]:
        """The deliveries that are held, the oldest first."""
        for held in list(self._held.values()):
            yield Delivery(
                held.client,
                held.group,
                held.topic,
                held.lite_topic,
                held.newest,
                held.attempt,
                held.first,
                held.expires,
                held.renewing is not None,
            )

    # For receiving.

    def holder(self) -> str:
        """What to put into the handle of one more delivery, which is then held; empty: there is no room."""
        if len(self._held) >= _MAX_HELD:
            return ""
        self._number += 1
        return f"{self._name}-{self._number}"

    def hold(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle, attempt: int, lite_topic: str = ""
    ) -> None:
        """Renew a delivery, which has just been popped, until it is settled. attempt: which it is, from 1."""
        now = self._clock()
        held = _Held(client, group, topic, lite_topic, handle, attempt, now)
        self._held[handle.text] = held
        theirs = self._clients.get(client)
        if theirs is None:
            theirs = self._clients[client] = set()
        theirs.add(handle.text)
        self._extend(held, now)

    def drop(self, handle: ReceiptHandle) -> None:
        """Renew a delivery no longer."""
        held = self._held.get(handle.text)
        if held is not None:
            self._forget(held)

    # For settling.

    async def claim(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """The newest handle of a delivery, to settle it by. It is not renewed until `settled` or `unclaim`."""
        held = self._of(group, handle)
        if held is None:
            known = self._known.get(handle.text)
            return ReceiptHandle.parse(known[1]) if known is not None and known[0] == group else handle
        held.claims += 1
        if held.renewing is not None:
            # The broker might serve the settlement before the renewal that was sent earlier.
            try:
                await asyncio.wait((held.renewing,))
            except BaseException:
                held.claims -= 1
                raise
        return held.newest

    def unclaim(self, group: str, handle: ReceiptHandle) -> None:
        """A settlement failed: the delivery is held as before."""
        held = self._of(group, handle)
        if held is not None:
            held.claims -= 1

    def settled(
        self, group: str, topic: str, handle: ReceiptHandle, used: ReceiptHandle, invisible: int | None = None
    ) -> None:
        """The delivery of the handle has been settled by the handle `used`; invisible: hidden for so long (ms)."""
        held = self._of(group, handle)
        if held is not None:
            self._forget(held)
        elif self._shared and not handle.holder.startswith(f"{self._name}-"):
            self._known.pop(handle.text, None)
            event = Event.ACKNOWLEDGED if invisible is None else Event.CHANGED
            self._untold.append(RenewalEvent(event, group, topic, handle.text, used.text, invisible or 0))

    def _of(self, group: str, handle: ReceiptHandle) -> _Held | None:
        """What is held by this handle. Whoever names another group has nothing to settle here."""
        held = self._held.get(handle.text)
        return None if held is None or held.group != group else held

    # For clients that go.

    def gone(self, client: Client) -> None:
        """A client is gone: everything it holds is made visible to others."""
        for original in list(self._clients.get(client, ())):
            held = self._held[original]
            self._forget(held)
            if held.renewing is None and not held.claims:
                self._tell_broker(held, settlement_commands.SOON)

    # As time goes by.

    def sweep(self, now: float) -> None:
        """Renew what is due, and let go of what clients hold that are gone; `now` is the clock's time."""
        for client in [client for client in self._clients if self._is_gone(client, now)]:
            self.gone(client)
        for second in range(self._swept, int(now) + 1):
            for held in list(self._due.pop(second, {}).values()):
                self._renew(held, now)
        self._swept = int(now) + 1
        for original, (_, _, until) in list(self._known.items()):
            if until > now:
                break
            del self._known[original]

    def _is_gone(self, client: Client, now: float) -> bool:
        return client.closed or (client.stream is None and now - client.seen > self._options.client_expiry)

    def _renew(self, held: _Held, now: float) -> None:
        if held.claims or self._under_way >= _MAX_UNDER_WAY:
            self._failed(held, now, Code.TOO_MANY_REQUESTS)
            return
        invisible = int(self._options.renewal * 1000)
        if now - held.first > self._options.renewal_limit:
            # Whoever takes so long does not come back: the message does, as after any failed delivery.
            config = self._core.cached_group(held.group) or GroupConfig(held.group)
            invisible, held.last = config.backoff.delay(held.attempt), True
        command = settlement_commands.change(held.group, held.topic, held.newest, invisible, held.lite_topic)
        try:
            renewing = self._core.handle(held.client, command)
        except RemotingError as error:
            self._failed(held, now, settlement_commands.of_failure(error).code)
            return
        assert renewing is not None
        held.renewing = renewing
        self._under_way += 1
        renewing.add_done_callback(partial(self._renewed, held))

    def _renewed(self, held: _Held, renewing: "asyncio.Future[RemotingCommand]") -> None:
        held.renewing = None
        self._under_way -= 1
        now = self._clock()
        code, newest = _outcome(held.newest, renewing)
        self.counts["failed" if newest is None else "renewed"] += 1
        if newest is not None:
            held.newest = newest
        if self._held.get(held.original) is not held:
            # The client has gone meanwhile.
            if not held.last:
                self._tell_broker(held, settlement_commands.SOON)
        elif held.settlement is not None:
            self._settle(held, held.settlement)
        elif newest is None:
            self._failed(held, now, code)
        else:
            self._told(held)
            if held.last:
                self._forget(held)
            else:
                self._extend(held, now)

    def _failed(self, held: _Held, now: float, code: int) -> None:
        if code == Code.INVALID_RECEIPT_HANDLE or held.last or now > held.expires:
            self._forget(held)
        else:
            self._again(held, now)

    def _extend(self, held: _Held, now: float) -> None:
        step = self._options.renewal
        held.expires = now + step
        self._plan(held, now + step * (1 - _LEFT))

    def _again(self, held: _Held, now: float) -> None:
        self._plan(held, now + _AGAIN)

    def _plan(self, held: _Held, at: float) -> None:
        planned = self._due.get(held.due)
        if planned is not None:
            planned.pop(held.original, None)
        held.due = max(int(at), self._swept)
        self._due.setdefault(held.due, {})[held.original] = held

    def _forget(self, held: _Held) -> None:
        original = held.original
        if self._held.pop(original, None) is None:
            return
        planned = self._due.get(held.due)
        if planned is not None:
            planned.pop(original, None)
        theirs = self._clients[held.client]
        theirs.discard(original)
        if not theirs:
            del self._clients[held.client]

    def _tell_broker(self, held: _Held, invisible: int | None) -> None:
        """Hide the message for so long, or acknowledge it; what becomes of that is not waited for."""
        settlement_commands.quietly(
            self._core,
            held.client,
            settlement_commands.ack(held.group, held.topic, held.newest, held.lite_topic)
            if invisible is None
            else settlement_commands.change(held.group, held.topic, held.newest, invisible, held.lite_topic),
        )

    # Among replicas.

    def _told(self, held: _Held) -> None:
        if self._shared:
            self._untold.append(RenewalEvent(Event.RENEWED, held.group, held.topic, held.original, held.newest.text))

    def news(self) -> list[bytes]:
        """What there is to tell the other replicas: messages, each told once."""
        told = []
        while self._untold:
            some = [self._untold.popleft() for _ in range(min(_BATCH, len(self._untold)))]
            told.append(renewal_events.encode(self._name, some))
        return told

    def hear(self, body: bytes) -> None:
        """Take what another replica tells."""
        try:
            replica, heard = renewal_events.decode(body)
        except BodyError as error:
            _log.warning("%s", error)
            return
        if replica == self._name:
            return
        now = self._clock()
        for tiding in heard:
            if tiding.event is Event.RENEWED:
                self._note(tiding, now)
            else:
                self._settled_elsewhere(tiding)

    def _note(self, tiding: RenewalEvent, now: float) -> None:
        # Anew, so that the order is that of time.
        self._known.pop(tiding.original, None)
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[tiding.original] = (tiding.group, tiding.handle, now + 2 * self._options.renewal)

    def _settled_elsewhere(self, tiding: RenewalEvent) -> None:
        held = self._held.get(tiding.original)
        if held is None or held.group != tiding.group:
            return
        if held.renewing is not None:
            held.settlement = tiding
        else:
            self._settle(held, tiding)

    def _settle(self, held: _Held, tiding: RenewalEvent) -> None:
        """Another replica has settled the delivery; what its handle was not good for any more, is done here."""
        self._forget(held)
        if held.newest.text == tiding.handle:
            return
        # A change makes a new checkpoint, whatever the handle was worth: that of our newest is then one too many.
        # Deliveries in order have but one.
        again = tiding.event is Event.CHANGED and held.newest.is_order
        self._tell_broker(held, tiding.invisible if again else None)


def _outcome(handle: ReceiptHandle, renewing: "asyncio.Future[RemotingCommand]") -> tuple[int, ReceiptHandle | None]:
    """The code that a renewal ended with, and the new handle."""
    if renewing.cancelled():
        return Code.PROXY_TIMEOUT, None
    try:
        reply = renewing.result()
        code = settlement_commands.of_reply(reply).code
        return code, settlement_commands.changed(handle, reply) if code == Code.OK else None
    except (Refused, RemotingError) as error:
        return settlement_commands.of_failure(error).code, None
