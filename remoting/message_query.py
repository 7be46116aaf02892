"""Ext fields of QUERY_MESSAGE, which looks messages up in the index of a broker."""

from typing import Final

# With this field, brokers look messages up by their unique ids instead of their keys (MixAll.UNIQUE_MSG_QUERY_FLAG).
BY_UNIQUE_ID: Final = "_UNIQUE_KEY_QUERY"
# The last time of a query, ms since 1970: brokers add to it.
EVER: Final = 2**62


def key_query(topic: str, key: str, most: int, begin: int = 0, end: int = EVER) -> dict[str, str]:
    """Return the fields of a query by key for messages that were stored from `begin` to `end` (ms since 1970).

    most: number of messages of the reply.
    """
    return {
        "topic": topic,
        "key": key,
        "maxNum": str(most),
        "beginTimestamp": str(begin),
        "endTimestamp": str(end),
    }


def unique_id_query(topic: str, unique_id: str, most: int) -> dict[str, str]:
    """Return the fields of a query by unique id. Brokers search by a hash, and return messages with other ids too."""
    return {**key_query(topic, unique_id, most), BY_UNIQUE_ID: "true"}
