"""Transaction ids that contain everything that a replica needs to end the transaction."""

import base64
from dataclasses import dataclass
from typing import Self

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code

_VERSION = "t1"


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Location of a half message: its broker, its offset in the half-message queue and in the commit log.

    message_id: the broker's own transaction id, which is the producer's unique message id.
    """

    broker: str
    queue_offset: int
    commit_log_offset: int
    message_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id. Raises Refused (INVALID_TRANSACTION_ID)."""
        if not text or text.isspace():
            raise Refused(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
            version, broker, queue_offset, commit_log_offset, message_id = raw.split(" ")
            transaction = cls(broker, int(queue_offset), int(commit_log_offset), message_id)
        except ValueError:
            raise _invalid() from None
        if version != _VERSION or not broker or transaction.queue_offset < 0 or transaction.commit_log_offset < 0:
            raise _invalid()
        return transaction

    def __str__(self) -> str:
        text = f"{_VERSION} {self.broker} {self.queue_offset} {self.commit_log_offset} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _invalid() -> Refused:
    return Refused(Code.INVALID_TRANSACTION_ID, "there is no half message with this transaction_id")
