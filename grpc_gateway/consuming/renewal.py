"""Renewal of the invisible duration of deliveries for as long as their consumers work on them.

The replica that received a message renews its receipt handle before the invisible duration ends, until the consumer
settles the delivery, is gone, or has had it for too long. Consumers are not aware of renewal: they settle with their
original handle, which is replaced by the newest one here. Since brokers accept only the newest handle, replicas send
each other events (`renewal_events`): the renewing replica its renewals, the others their settlements of its
deliveries. The renewals of a replica that crashes end, and its messages are redelivered after one more invisible
duration.

Renewal has no timer of its own: call `sweep` about once a second.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming import settlement_commands
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal_events import RenewalEvent, RenewalEventType
from grpc_gateway.consuming.renewal_peers import RenewalPeers
from grpc_gateway.consuming.renewed_delivery import DeliverySnapshot, RenewedDelivery
from grpc_gateway.consuming.settlement_status import settlement_error_status, settlement_status
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.topic_group_config import GroupConfig

# A delivery is renewed when this fraction of its invisible duration is left, which allows for a few retries.
_REMAINING_FRACTION = 0.25
# Seconds before the retry of a renewal that failed or exceeded the limit in flight.
_RETRY_DELAY = 2.0
_MAX_DELIVERIES = 200_000
# Renewals in flight: brokers serve them with the same threads as consumers.
_MAX_IN_FLIGHT = 512


class Renewal:
    """The deliveries that this replica renews.

    clock: seconds. replica: this replica's name among those that exchange events, different at each start; empty if
    there is no exchange. counts: renewals by outcome.
    """

    def __init__(self, core: Core, options: GatewayOptions, clock: Callable[[], float], replica: str = "") -> None:
        self._core = core
        self._options = options
        self._clock = clock
        self._peers = RenewalPeers(replica)
        # By original handle.
        self._deliveries: dict[str, RenewedDelivery] = {}
        # By the second of their next renewal, then by original handle.
        self._schedule: dict[int, dict[str, RenewedDelivery]] = {}
        self._next_sweep = int(clock())
        self._by_client: dict[Client, set[str]] = {}
        self._in_flight = 0
        self.counts = {"renewed": 0, "failed": 0}

    def __len__(self) -> int:
        """Return the number of renewed deliveries."""
        return len(self._deliveries)

    def __iter__(self) -> Iterator[DeliverySnapshot]:
        """Iterate over the renewed deliveries, oldest first."""
        for delivery in list(self._deliveries.values()):
            yield delivery.snapshot()

    # Receives.

    def new_renewal_id(self) -> str:
        """Return the renewal id for the handle of a delivery to `add`; empty if the limit is reached."""
        return "" if len(self._deliveries) >= _MAX_DELIVERIES else self._peers.new_renewal_id()

    def add(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle, attempt: int, lite_topic: str = ""
    ) -> None:
        """Renew a delivery that has just been popped until it is settled. attempt: delivery attempt, from 1."""
        now = self._clock()
        delivery = RenewedDelivery(client, group, topic, lite_topic, handle, attempt, now)
        self._deliveries[handle.text] = delivery
        handles = self._by_client.get(client)
        if handles is None:
            handles = self._by_client[client] = set()
        handles.add(handle.text)
        self._extend(delivery, now)

    def discard(self, handle: ReceiptHandle) -> None:
        """Stop renewing a delivery."""
        delivery = self._deliveries.get(handle.text)
        if delivery is not None:
            self._remove(delivery)

    # Settlements.

    async def claim(self, group: str, handle: ReceiptHandle) -> ReceiptHandle:
        """Return the newest handle of a delivery, and suspend its renewal until `settled` or `unclaim`."""
        delivery = self._find(group, handle)
        if delivery is None:
            return self._peers.newest(group, handle)
        delivery.claims += 1
        if delivery.renewing is not None:
            # The broker could serve the settlement before the renewal in flight, which would replace its handle.
            try:
                await asyncio.wait((delivery.renewing,))
            except BaseException:
                delivery.claims -= 1
                raise
        return delivery.newest

    def unclaim(self, group: str, handle: ReceiptHandle) -> None:
        """Resume the renewal after a failed settlement."""
        delivery = self._find(group, handle)
        if delivery is not None:
            delivery.claims -= 1

    def settled(
        self, group: str, topic: str, handle: ReceiptHandle, used: ReceiptHandle, invisible: int | None = None
    ) -> None:
        """Stop the renewal of a settled delivery, on this or on another replica.

        handle: the original handle. used: the handle of the settlement. invisible: new invisible duration in ms; None
        for an acknowledgement.
        """
        delivery = self._find(group, handle)
        if delivery is not None:
            self._remove(delivery)
        else:
            event_type = RenewalEventType.ACKNOWLEDGED if invisible is None else RenewalEventType.CHANGED
            event = RenewalEvent(event_type, group, topic, handle.text, used.text, invisible or 0)
            self._peers.publish_settlement(handle, event)

    def _find(self, group: str, handle: ReceiptHandle) -> RenewedDelivery | None:
        """Return the delivery with this original handle, unless it belongs to another group."""
        delivery = self._deliveries.get(handle.text)
        return None if delivery is None or delivery.group != group else delivery

    # Departed clients.

    def client_departed(self, client: Client) -> None:
        """Stop renewing the client's deliveries, and return them to the broker."""
        for original in list(self._by_client.get(client, ())):
            delivery = self._deliveries[original]
            self._remove(delivery)
            if delivery.renewing is None and not delivery.claims:
                self._change_in_background(delivery, settlement_commands.RETURN_DELAY)

    def _has_departed(self, client: Client, now: float) -> bool:
        return client.closed or (client.stream is None and now - client.last_call_at > self._options.client_expiry)

    # Renewals.

    def sweep(self, now: float) -> None:
        """Renew the deliveries that are due, and return those of departed clients; `now` is the clock's time."""
        for client in [client for client in self._by_client if self._has_departed(client, now)]:
            self.client_departed(client)
        for second in range(self._next_sweep, int(now) + 1):
            for delivery in list(self._schedule.pop(second, {}).values()):
                self._renew(delivery, now)
        self._next_sweep = int(now) + 1
        self._peers.expire(now)

    def _renew(self, delivery: RenewedDelivery, now: float) -> None:
        if delivery.claims or self._in_flight >= _MAX_IN_FLIGHT:
            self._retry_or_remove(delivery, now, Code.TOO_MANY_REQUESTS)
            return
        invisible = int(self._options.renewal * 1000)
        if now - delivery.received_at > self._options.renewal_limit:
            # The consumer is taken for stuck: redeliver with the group's backoff, as after any failed delivery.
            config = self._core.cached_group(delivery.group) or GroupConfig(delivery.group)
            invisible, delivery.is_last_renewal = config.backoff.delay(delivery.attempt), True
        command = settlement_commands.change_invisible_duration(
            delivery.group, delivery.topic, delivery.newest, invisible, delivery.lite_topic
        )
        try:
            renewing = self._core.handle(delivery.client, command)
        except RemotingError as error:
            self._retry_or_remove(delivery, now, settlement_error_status(error).code)
            return
        assert renewing is not None
        delivery.renewing = renewing
        self._in_flight += 1
        renewing.add_done_callback(partial(self._renewed, delivery))

    def _renewed(self, delivery: RenewedDelivery, renewing: "asyncio.Future[RemotingCommand]") -> None:
        delivery.renewing = None
        self._in_flight -= 1
        now = self._clock()
        code, newest = _outcome(delivery.newest, renewing)
        self.counts["failed" if newest is None else "renewed"] += 1
        if newest is not None:
            delivery.newest = newest
        if self._deliveries.get(delivery.original) is not delivery:
            # The client has departed during the renewal.
            if not delivery.is_last_renewal:
                self._change_in_background(delivery, settlement_commands.RETURN_DELAY)
        elif delivery.peer_settlement is not None:
            self._apply_peer_settlement(delivery, delivery.peer_settlement)
        elif newest is None:
            self._retry_or_remove(delivery, now, code)
        else:
            self._peers.publish(
                RenewalEvent(RenewalEventType.RENEWED, delivery.group, delivery.topic, delivery.original, newest.text)
            )
            if delivery.is_last_renewal:
                self._remove(delivery)
            else:
                self._extend(delivery, now)

    def _retry_or_remove(self, delivery: RenewedDelivery, now: float, code: int) -> None:
        if code == Code.INVALID_RECEIPT_HANDLE or delivery.is_last_renewal or now > delivery.expires:
            self._remove(delivery)
        else:
            self._schedule_at(delivery, now + _RETRY_DELAY)

    def _extend(self, delivery: RenewedDelivery, now: float) -> None:
        duration = self._options.renewal
        delivery.expires = now + duration
        self._schedule_at(delivery, now + duration * (1 - _REMAINING_FRACTION))

    def _schedule_at(self, delivery: RenewedDelivery, at: float) -> None:
        self._unschedule(delivery)
        delivery.due = max(int(at), self._next_sweep)
        self._schedule.setdefault(delivery.due, {})[delivery.original] = delivery

    def _unschedule(self, delivery: RenewedDelivery) -> None:
        scheduled = self._schedule.get(delivery.due)
        if scheduled is not None:
            scheduled.pop(delivery.original, None)

    def _remove(self, delivery: RenewedDelivery) -> None:
        if self._deliveries.pop(delivery.original, None) is None:
            return
        self._unschedule(delivery)
        handles = self._by_client[delivery.client]
        handles.discard(delivery.original)
        if not handles:
            del self._by_client[delivery.client]

    def _change_in_background(self, delivery: RenewedDelivery, invisible: int) -> None:
        self._send_in_background(
            delivery,
            settlement_commands.change_invisible_duration(
                delivery.group, delivery.topic, delivery.newest, invisible, delivery.lite_topic
            ),
        )

    def _send_in_background(self, delivery: RenewedDelivery, command: RemotingCommand) -> None:
        settlement_commands.send_in_background(self._core, delivery.client, command)

    # Exchange with other replicas.

    def take_messages(self) -> list[bytes]:
        """Return the messages to send to the other replicas; each is returned once."""
        return self._peers.take_messages()

    def receive_message(self, body: bytes) -> None:
        """Apply the events of a message from another replica."""
        events = self._peers.decode(body)
        now = self._clock()
        for event in events:
            if event.event_type is RenewalEventType.RENEWED:
                self._peers.record_renewal(event, now + 2 * self._options.renewal)
            else:
                self._receive_settlement(event)

    def _receive_settlement(self, event: RenewalEvent) -> None:
        delivery = self._deliveries.get(event.original)
        if delivery is None or delivery.group != event.group:
            return
        if delivery.renewing is not None:
            delivery.peer_settlement = event
        else:
            self._apply_peer_settlement(delivery, event)

    def _apply_peer_settlement(self, delivery: RenewedDelivery, event: RenewalEvent) -> None:
        """Stop renewing a delivery that another replica settled, and settle it again if that used an old handle."""
        self._remove(delivery)
        if delivery.newest.text == event.handle:
            return
        if event.event_type is RenewalEventType.CHANGED and delivery.newest.is_order:
            # Deliveries in order have a single checkpoint, which has to get the invisible duration.
            self._change_in_background(delivery, event.invisible)
        else:
            # A broker accepts an acknowledgement only with the newest handle. A change has created another checkpoint,
            # even with an old handle, so that of the newest handle has to go.
            self._send_in_background(
                delivery,
                settlement_commands.ack(delivery.group, delivery.topic, delivery.newest, delivery.lite_topic),
            )


def _outcome(handle: ReceiptHandle, renewing: "asyncio.Future[RemotingCommand]") -> tuple[int, ReceiptHandle | None]:
    """Return the v2 code of a completed renewal, and the new handle if it succeeded."""
    if renewing.cancelled():
        return Code.PROXY_TIMEOUT, None
    try:
        reply = renewing.result()
        code = settlement_status(reply).code
        return code, settlement_commands.changed_handle(handle, reply) if code == Code.OK else None
    except (Refused, RemotingError) as error:
        return settlement_error_status(error).code, None
