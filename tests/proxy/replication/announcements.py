"""Announcements for the tests of the heartbeat sync, as the official Java proxy writes them."""

from typing import Any

import orjson

SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": "TAG",
    "subString": "*",
    "subVersion": 1700000000000,
    "tagsSet": [],
    "topic": "orders",
}
PART = {
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [SUBSCRIPTION],
}
PROXY = "192.0.2.20%8080%8081"
# The time of announcements in milliseconds since 1970, and consumer data with that time.
STAMP = 1_700_000_000_000
STAMPED = {**PART, "lastUpdateTimestamp": STAMP}


def java_data(kind: str = "REGISTER", /, **changes: Any) -> dict[str, Any]:
    """Return HeartbeatSyncerData; fastjson omits null values, which are most of them when a client leaves."""
    channel = {
        "remoteProxyIp": "192.0.2.20",
        "remoteAddress": "192.0.2.7:50000",
        "localAddress": "192.0.2.20:8080",
        "type": "REMOTING",
        "extendAttribute": orjson.dumps([SUBSCRIPTION]).decode(),
    }
    return {
        "channelData": orjson.dumps(channel).decode(),
        "clientId": "theirs",
        **(PART if kind == "REGISTER" else {}),
        "group": "g",
        "heartbeatType": kind,
        "language": "JAVA",
        "lastUpdateTimestamp": STAMP,
        "localProxyId": PROXY,
        "version": 481,
        **changes,
    }


def java(kind: str = "REGISTER", /, **changes: Any) -> bytes:
    """Return the message body."""
    return orjson.dumps(java_data(kind, **changes))
