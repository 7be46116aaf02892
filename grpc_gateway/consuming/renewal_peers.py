"""Renewals of other replicas: their newest receipt handles, and the events to send to them."""

import logging
from collections import deque

from grpc_gateway.consuming import renewal_events
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal_events import RenewalEvent
from remoting.errors import BodyError

_log = logging.getLogger("gantry.grpc")

# Handles of other replicas, and events to send, that are kept; the oldest are discarded.
_MAX_HANDLES = 500_000
_MAX_EVENTS = 100_000
# Events per message.
_BATCH_SIZE = 500


class RenewalPeers:
    """Exchange of renewal events with the other replicas.

    replica: this replica's name, different at each start; empty if it exchanges no events.
    """

    def __init__(self, replica: str) -> None:
        self._enabled = bool(replica)
        self._replica = replica or "0"
        self._next_number = 0
        # By original handle, in the order of expiry: group, newest handle, expiry in seconds of the renewal's clock.
        self._handles: dict[str, tuple[str, str, float]] = {}
        self._events: deque[RenewalEvent] = deque(maxlen=_MAX_EVENTS)

    def new_renewal_id(self) -> str:
        """Return the renewal id for a delivery of this replica."""
        self._next_number += 1
        return f"{self._replica}-{self._next_number}"

    def publish(self, event: RenewalEvent) -> None:
        """Queue an event for the other replicas."""
        if self._enabled:
            self._events.append(event)

    def publish_settlement(self, handle: ReceiptHandle, event: RenewalEvent) -> None:
        """Queue the settlement of a delivery if another replica renews it; `handle` is the original one."""
        if self._enabled and not handle.renewal_id.startswith(f"{self._replica}-"):
            self._handles.pop(handle.text, None)
            self._events.append(event)

    def take_messages(self) -> list[bytes]:
        """Return the queued events as messages, and empty the queue."""
        batches = []
        while self._events:
            events = [self._events.popleft() for _ in range(min(_BATCH_SIZE, len(self._events)))]
            batches.append(renewal_events.encode(self._replica, events))
        return batches

    def decode(self, body: bytes) -> list[RenewalEvent]:
        """Return the events of a message; none for a message of this replica, or one that cannot be decoded."""
        try:
            replica, events = renewal_events.decode(body)
        except BodyError as error:
            _log.warning("%s", error)
            return []
        return [] if replica == self._replica else events

    def record_renewal(self, event: RenewalEvent, expires: float) -> None:
        """Store the newest handle of a delivery that another replica has renewed."""
        # Removed first, so that the dictionary keeps the order of expiry.
        self._handles.pop(event.original, None)
        if len(self._handles) >= _MAX_HANDLES:
            del self._handles[next(iter(self._handles))]
        self._handles[event.original] = (event.group, event.handle, expires)

    def newest(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """Return the newest handle of a delivery; the given one if no renewal in this group is recorded."""
        recorded = self._handles.get(handle.text)
        return ReceiptHandle.parse(recorded[1]) if recorded is not None and recorded[0] == group else handle

    def expire(self, now: float) -> None:
        """Discard expired handles."""
        for original, (_, _, expires) in list(self._handles.items()):
            if expires > now:
                break
            del self._handles[original]
