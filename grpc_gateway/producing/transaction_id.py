"""Transaction ids: each names all that any replica needs to end the transaction, at any time."""

import base64
from dataclasses import dataclass
from typing import Self

from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code

_VERSION = "t1"


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Where a half message is: its broker, its offset in the queue of half messages and in the commit log.

    message_id: what the broker's own transaction id is, the producer's unique id.
    """

    broker: str
    queue_offset: int
    commit_log_offset: int
    message_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id. Raises Refused (INVALID_TRANSACTION_ID)."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
            version, broker, queue_offset, commit_log_offset, message_id = raw.split(" ")
            found = cls(broker, int(queue_offset), int(commit_log_offset), message_id)
        except ValueError:
            raise _invalid() from None
        if version != _VERSION or not broker or found.queue_offset < 0 or found.commit_log_offset < 0:
            raise _invalid()
        return found

    def __str__(self) -> str:
        text = f"{_VERSION} {self.broker} {self.queue_offset} {self.commit_log_offset} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _invalid() -> Refused:
    return Refused(Code.INVALID_TRANSACTION_ID, "the transaction id is none that this proxy gave out")
