"""Operations of request codes and rpcs, for both protocols."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as f

from remoting.names import DLQ_PREFIX, RETRY_PREFIX

SEND, RECEIVE, ACK, NACK, BURY = "send", "receive", "ack", "nack", "bury"

# Names of remoting request codes and of v2 rpcs. All others are upkeep: routes, heartbeats, tools.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    SEND: (
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_BATCH_MESSAGE",
        "SEND_REPLY_MESSAGE",
        "SEND_REPLY_MESSAGE_V2",
        "SendMessage",
    ),
    RECEIVE: ("PULL_MESSAGE", "LITE_PULL_MESSAGE", "POP_MESSAGE", "POP_LITE_MESSAGE", "ReceiveMessage", "PullMessage"),
    # A pulling consumer acknowledges by committing its offset.
    ACK: ("ACK_MESSAGE", "BATCH_ACK_MESSAGE", "UPDATE_CONSUMER_OFFSET", "AckMessage", "UpdateOffset"),
    # Negative acknowledgement: deliver again later.
    NACK: ("CONSUMER_SEND_MSG_BACK", "CHANGE_MESSAGE_INVISIBLETIME", "ChangeInvisibleDuration"),
    BURY: ("ForwardMessageToDeadLetterQueue",),
}


def is_operation(*operations: str) -> Column:
    """Return whether the column `code` is one of the operations."""
    return f.col("code").isin(*(code for name in operations for code in OPERATIONS[name]))


def origin(topic: Column) -> Column:
    """Return a topic without the prefix of retry and dead-letter topics; the rest is the group's name."""
    return f.regexp_replace(topic, f"^({RETRY_PREFIX}|{DLQ_PREFIX})", "")


# Expression, of Spark and DuckDB, for the requests that a record stands for. One NaN would make every sum NaN; DuckDB
# finds none by comparisons, since a file's statistics leave it out.
WEIGHT = "CASE WHEN NOT isnan(weight) AND weight > 0 AND weight < 1e9 THEN weight ELSE 1.0 END"
