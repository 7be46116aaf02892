"""Receipt handles, by which consumers settle deliveries.

    startOffset popTime invisibleTime reviveQueueId retry brokerName queueId offset commitLogOffset [renewalId]

The format is the official proxies', so that a client can change between proxies. The first eight fields are the
broker's (`remoting.pop.ExtraInfo`), which ignores the others. The renewal id is Gantry's own: it consists of the name
of the replica that renews the delivery, and a number.
"""

import re
from typing import Final, NamedTuple, Self

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.pop import ORDER_REVIVE_QUEUE, ExtraInfo
from remoting.pop_offset_info import Retry

_LONG: Final = "([0-9]{1,19})"
_INT: Final = "([0-9]{1,10})"
_HANDLE: Final = re.compile(
    rf"{_LONG} {_LONG} {_LONG} {_INT} ([012]) ([^\x00-\x20\x7f]{{1,255}}) {_INT} {_LONG}"
    r"(?: (-?[0-9]{1,19})(?: ([!-~]{1,64}))?)?"
)
_RETRIES: Final = {retry.value: retry for retry in Retry}
_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1


class ReceiptHandle(NamedTuple):
    """One handle. Times are ms (since 1970). retry: a value of `remoting.pop_offset_info.Retry`.

    commit_log_offset: -1 if the handle does not contain it. renewal_id: empty if no replica renews the delivery.
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
    renewal_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle. Raises Refused (INVALID_RECEIPT_HANDLE)."""
        match = _HANDLE.fullmatch(text)
        if match is None:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle has an invalid format")
        start, popped, invisible, revive, retry, broker, queue, offset, commit_log, renewal_id = match.groups()
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
            -1 if commit_log is None else int(commit_log),
            renewal_id or "",
        )
        if max(handle[1:4]) > _MAX_LONG or max(handle[8:10]) > _MAX_LONG or max(handle[4], handle[7]) > _MAX_INT:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle has a number that is out of range")
        return handle

    @property
    def visible_at(self) -> int:
        """Time at which the broker delivers the message again unless it is acknowledged, by the broker's clock."""
        return self.pop_time + self.invisible_time

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order (FIFO)."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def info(self) -> ExtraInfo:
        """The broker's fields."""
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
        """Return the handle that replaces this one after a change of the invisible duration, without a renewal id."""
        return make_handle(
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


def make_handle(
    start_offset: int,
    pop_time: int,
    invisible_time: int,
    revive_queue_id: int,
    retry: str,
    broker_name: str,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    renewal_id: str = "",
) -> ReceiptHandle:
    """Return the handle with these fields."""
    text = (
        f"{start_offset} {pop_time} {invisible_time} {revive_queue_id} {retry} {broker_name} "
        f"{queue_id} {queue_offset} {commit_log_offset}"
    )
    if renewal_id:
        text = f"{text} {renewal_id}"
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
        renewal_id,
    )


def handle_from_pop(info: ExtraInfo, commit_log_offset: int, renewal_id: str = "") -> ReceiptHandle:
    """Return the handle of a popped message."""
    return make_handle(
        info.start_offset,
        info.pop_time,
        info.invisible_time,
        info.revive_queue_id,
        info.retry.value,
        info.broker_name,
        info.queue_id,
        info.queue_offset,
        commit_log_offset,
        renewal_id,
    )
