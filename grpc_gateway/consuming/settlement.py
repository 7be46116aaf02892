"""The settlement of one delivery, which is not renewed meanwhile."""

from typing import Final

from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.response_status import OK, Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status

# Codes after which the delivery is not renewed: it is settled, or no settlement of it can succeed.
_FINAL_CODES: Final = (Code.OK, Code.INVALID_RECEIPT_HANDLE)


class Settlement:
    """A settlement in progress, which suspends the renewal of its delivery until `end` or `release`.

    original: the consumer's handle. newest: the handle that the broker accepts. status: that of `end`.
    """

    __slots__ = ("_claimed", "_renewal", "group", "lite_topic", "newest", "original", "status", "topic")

    def __init__(
        self,
        renewal: Renewal,
        group: str,
        topic: str,
        original: ReceiptHandle,
        newest: ReceiptHandle,
        lite_topic: str,
    ) -> None:
        self._renewal = renewal
        self._claimed = bool(original.renewal_id)
        self.group = group
        self.topic = topic
        self.original = original
        self.newest = newest
        self.lite_topic = lite_topic
        self.status = OK

    def end(self, status: Status, invisible: int | None = None) -> None:
        """End the settlement with its status; a final one ends the renewal, also after `release`.

        invisible: new invisible duration in ms; None for an acknowledgement.
        """
        self.status = status
        if self.original.renewal_id and status.code in _FINAL_CODES:
            self._claimed = False
            self._renewal.settled(self.group, self.topic, self.original, self.newest, invisible)
        else:
            self.release()

    def release(self) -> None:
        """Resume the renewal, unless the settlement has ended."""
        if self._claimed:
            self._claimed = False
            self._renewal.unclaim(self.group, self.original)


async def claim(
    renewal: Renewal,
    clocks: BrokerClocks,
    group: str,
    topic: str,
    handle: ReceiptHandle,
    lite_topic: str,
    may_be_expired: bool = False,
) -> Settlement:
    """Begin the settlement of a delivery. Raises Refused if its newest handle has expired, unless `may_be_expired`."""
    newest = await renewal.claim(group, handle) if handle.renewal_id else handle
    settlement = Settlement(renewal, group, topic, handle, newest, lite_topic)
    if not may_be_expired and clocks.has_passed(newest.broker_name, newest.visible_at):
        settlement.release()
        raise Refused(Code.INVALID_RECEIPT_HANDLE, "INVALID_RECEIPT_HANDLE: receipt handle is expired")
    return settlement
