"""Receipt handles: what a consumer acknowledges a delivery by.

    startOffset popTime invisibleTime reviveQueueId retry brokerName queueId offset commitLogOffset [holder]

The text that official proxies give out, so that a client may go from one kind of proxy to the other. The first eight
fields are the broker's (`remoting.pop.ExtraInfo`), it leaves the rest aside. Handles that are renewed for their
consumer have one field more, of our own: which replica holds the delivery, and a number.
"""

import re
from typing import NamedTuple, Self

from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.pop import ORDER_REVIVE_QUEUE, ExtraInfo
from remoting.pop_offset_info import Retry

_LONG = "([0-9]{1,19})"
_INT = "([0-9]{1,10})"
_HANDLE = re.compile(
    rf"{_LONG} {_LONG} {_LONG} {_INT} ([012]) ([^\x00-\x20\x7f]{{1,255}}) {_INT} {_LONG}"
    r"(?: (-?[0-9]{1,19})(?: ([!-~]{1,64}))?)?"
)
_RETRIES = {retry.value: retry for retry in Retry}
_MAX_LONG, _MAX_INT = 2**63 - 1, 2**31 - 1


class ReceiptHandle(NamedTuple):
    """One handle. Times are ms (since 1970), retry is a value of `remoting.pop_offset_info.Retry`.

    commit_log_offset: -1 where the handle does not say. holder: empty where nobody renews it.
    """

    text: str
    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    holder: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a handle. Raises Refused (INVALID_RECEIPT_HANDLE)."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the receipt handle is none that a proxy gives out")
        start, popped, invisible, revive, retry, broker, queue, offset, stored, holder = found.groups()
        handle = cls(
            text,
            int(start),
            int(popped),
            int(invisible),
            int(revive),
            retry,
            broker,
            int(queue),
            int(offset),
            -1 if stored is None else int(stored),
            holder or "",
        )
        if max(handle[1:4]) > _MAX_LONG or max(handle[8:10]) > _MAX_LONG or max(handle[4], handle[7]) > _MAX_INT:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the receipt handle has a number out of range")
        return handle

    @property
    def visible_at(self) -> int:
        """When the message is handed out again unless it has been acknowledged, by the broker's clock."""
        return self.pop_time + self.invisible_time

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order (FIFO)."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def info(self) -> ExtraInfo:
        """What brokers know of it."""
        return ExtraInfo(
            self.start_offset,
            self.pop_time,
            self.invisible_time,
            self.revive_queue_id,
            _RETRIES[self.retry],
            self.broker_name,
            self.queue_id,
            self.queue_offset,
        )

    def changed(self, pop_time: int, invisible_time: int, revive_queue_id: int) -> "ReceiptHandle":
        """The handle that replaces this one after a change of the invisible duration; nobody holds it."""
        return made(
            self.queue_offset,
            pop_time,
            invisible_time,
            revive_queue_id,
            self.retry,
            self.broker_name,
            self.queue_id,
            self.queue_offset,
            self.commit_log_offset,
        )


def made(
    start_offset: int,
    pop_time: int,
    invisible_time: int,
    revive_queue_id: int,
    retry: str,
    broker_name: str,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    holder: str = "",
) -> ReceiptHandle:
    """The handle of these fields."""
    text = (
        f"{start_offset} {pop_time} {invisible_time} {revive_queue_id} {retry} {broker_name} "
        f"{queue_id} {queue_offset} {commit_log_offset}"
    )
    if holder:
        text = f"{text} {holder}"
    return ReceiptHandle(
        text,
        start_offset,
        pop_time,
        invisible_time,
        revive_queue_id,
        retry,
        broker_name,
        queue_id,
        queue_offset,
        commit_log_offset,
        holder,
    )


def of_popped(info: ExtraInfo, commit_log_offset: int, holder: str = "") -> ReceiptHandle:
    """The handle of a popped message."""
    return made(
        info.start_offset,
        info.pop_time,
        info.invisible_time,
        info.revive_queue_id,
        info.retry.value,
        info.broker_name,
        info.queue_id,
        info.queue_offset,
        commit_log_offset,
        holder,
    )
