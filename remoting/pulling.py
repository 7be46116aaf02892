"""PULL_MESSAGE of a reader that commits no offset."""

from typing import Final

from remoting.codes import ResponseCode
from remoting.messages import PullSysFlag

# Responses without messages; that of an offset out of the queue's range names where to continue.
NOTHING: Final = frozenset(
    map(int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED))
)


def reading_fields(
    group: str, offset: int, count: int, *, wait_ms: int = 0, expression: str = "*", kind: str = "TAG"
) -> dict[str, str]:
    """Return the ext fields of a pull, without those of its queue.

    offset: in the queue. count: the maximum number of messages. wait_ms: how long the broker may hold the pull while
    there is no message.
    """
    return {
        "consumerGroup": group,
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(int(PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait_ms else 0))),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": expression,
        "subVersion": "0",
        "expressionType": kind,
    }
