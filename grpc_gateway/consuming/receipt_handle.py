"""Receipt handles, by which consumers settle deliveries.

    startOffset popTime invisibleTime reviveQueueId retry brokerName queueId offset commitLogOffset [renewalId]

The format is the official proxies', so that a client can change between proxies. The first eight fields are the
broker's (`remoting.pop.ExtraInfo`), which ignores the others. The renewal id is Gantry's own: it consists of the name
of the replica that renews the delivery, and a number.
"""

import re
from typing import Final

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.pop import ORDER_REVIVE_QUEUE, ExtraInfo
from remoting.pop_offset_info import Retry

_RETRIES: Final = {retry.value: retry for retry in Retry}
# Fields of a handle, without and with those that not every proxy writes.
_MIN_FIELDS: Final = 8
_MAX_FIELDS: Final = 10
# Digits of a long and of an integer.
_LONG: Final = 19
_INT: Final = 10
_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1
_MAX_BROKER_LENGTH: Final = 255
_has_control = re.compile("[\x00-\x20\x7f]").search
_is_renewal_id = re.compile("[!-~]{1,64}").fullmatch


class ReceiptHandle:
    """One handle. Times are ms (since 1970). retry: a value of `remoting.pop_offset_info.Retry`.

    commit_log_offset: -1 if the handle does not contain it. renewal_id: empty if no replica renews the delivery.
    Handles are equal if their texts are, which the other fields follow from.
    """

    # Not a tuple: each access to a field of one takes as long as a comparison of texts.
    __slots__ = (
        "broker_name",
        "commit_log_offset",
        "invisible_time",
        "pop_time",
        "queue_id",
        "queue_offset",
        "renewal_id",
        "retry",
        "revive_queue_id",
        "start_offset",
        "text",
    )

    def __init__(
        self,
        text: str,
        start_offset: int,
        pop_time: int,
        invisible_time: int,
        revive_queue_id: int,
        retry: str,
        broker_name: str,
        queue_id: int,
        queue_offset: int,
        commit_log_offset: int,
        renewal_id: str,
    ) -> None:
        self.text = text
        self.start_offset = start_offset
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.revive_queue_id = revive_queue_id
        self.retry = retry
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.renewal_id = renewal_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReceiptHandle) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"ReceiptHandle({self.text!r})"

    @staticmethod
    def parse(text: str) -> "ReceiptHandle":
        """Parse a handle. Raises Refused (INVALID_RECEIPT_HANDLE)."""
        fields = text.split(" ", _MAX_FIELDS)
        count = len(fields)
        if not _MIN_FIELDS <= count <= _MAX_FIELDS:
            raise _invalid_format()
        retry, broker = fields[4], fields[5]
        renewal_id = fields[9] if count > 9 else ""
        if (
            retry not in _RETRIES
            or not 0 < len(broker) <= _MAX_BROKER_LENGTH
            or (not broker.isprintable() and _has_control(broker))
            or (count > 9 and not _is_renewal_id(renewal_id))
        ):
            raise _invalid_format()
        return ReceiptHandle(
            text,
            _number(fields[0], _LONG, _MAX_LONG),
            _number(fields[1], _LONG, _MAX_LONG),
            _number(fields[2], _LONG, _MAX_LONG),
            _number(fields[3], _INT, _MAX_INT),
            retry,
            broker,
            _number(fields[6], _INT, _MAX_INT),
            _number(fields[7], _LONG, _MAX_LONG),
            _commit_log_offset(fields[8]) if count > 8 else -1,
            renewal_id,
        )

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


def _number(text: str, digits: int, maximum: int) -> int:
    if len(text) > digits or not (text.isdigit() and text.isascii()):
        raise _invalid_format()
    number = int(text)
    if number > maximum:
        raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle has a number that is out of range")
    return number


def _commit_log_offset(text: str) -> int:
    return -_number(text[1:], _LONG, 10**_LONG) if text.startswith("-") else _number(text, _LONG, _MAX_LONG)


def _invalid_format() -> Refused:
    return Refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle has an invalid format")
