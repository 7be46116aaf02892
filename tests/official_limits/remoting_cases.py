"""The remoting half of the table of limits: requests to the remoting ports of both proxies."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from remoting.codes import RequestCode
from tests.cluster.client import BROKER, heartbeat, message_queue, pull_fields, queue_fields, send_fields, v2
from tests.official_limits.requests import DELAY, GROUP, LONGEST, NORMAL

MIB = 2**20
_C = RequestCode
# Brokers allow this number of bytes of properties.
_PROPERTIES = 32 * 1024 - 1
_HANDLE = "0 1700000000000 60000 0 0 broker-a 0 0"


@dataclass(frozen=True, slots=True)
class RemotingCase:
    """A request. Fields whose value is None are left out."""

    code: int
    fields: Mapping[str, object | None] = field(default_factory=dict)
    body: bytes = b""


def _send(topic: str = NORMAL, text: str = "", body: bytes = b"x", **changes: object) -> RemotingCase:
    return RemotingCase(_C.SEND_MESSAGE_V2, v2(send_fields(topic, text) | {"bname": BROKER} | changes), body)


def _batch(*bodies: bytes) -> RemotingCase:
    """Return a batch; each message has lengths, CRC, flag, body and properties."""
    parts = [struct.pack("!iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies]
    fields = v2(send_fields(NORMAL, bname=BROKER, batch=True))
    return RemotingCase(_C.SEND_BATCH_MESSAGE, fields, b"".join(parts))


def _pull(**changes: object) -> RemotingCase:
    fields = pull_fields(NORMAL, GROUP) | {"bname": BROKER} | changes
    return RemotingCase(_C.PULL_MESSAGE, fields)


def _pop(**changes: object) -> RemotingCase:
    fields = {
        "consumerGroup": GROUP,
        "topic": NORMAL,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": False,
        "bname": BROKER,
    }
    return RemotingCase(_C.POP_MESSAGE, fields | changes)


def _settlement(code: int, **changes: object) -> RemotingCase:
    fields = {
        "consumerGroup": GROUP,
        "topic": NORMAL,
        "queueId": 0,
        "extraInfo": _HANDLE,
        "offset": 0,
        "bname": BROKER,
    }
    return RemotingCase(code, fields | changes)


def _invisible(**changes: object) -> RemotingCase:
    return _settlement(_C.CHANGE_MESSAGE_INVISIBLETIME, **{"invisibleTime": 30_000} | changes)


def _ack(**changes: object) -> RemotingCase:
    return _settlement(_C.ACK_MESSAGE, **changes)


def _lock(code: int, *brokers: str) -> RemotingCase:
    queues = [message_queue(NORMAL, 0, broker) for broker in brokers]
    body = {"consumerGroup": GROUP, "clientId": "limits", "mqSet": queues}
    return RemotingCase(code, {"bname": BROKER}, orjson.dumps(body))


_TOPICS = {
    "empty": "",
    "blank": " ",
    "127 characters": LONGEST,
    "128 characters": "t" * 128,
    "a space inside": "a b",
    "a dot": "a.b",
    "a character outside ASCII": "tö",
    "a system topic": "SELF_TEST_TOPIC",
    "a schedule topic": "SCHEDULE_TOPIC_XXXX",
    "300 characters": "t" * 300,
}
_GROUPS = {
    "empty": "",
    "blank": " ",
    "255 characters": "g" * 255,
    "300 characters": "g" * 300,
    "a space inside": "a b",
}

SENDS: dict[str, RemotingCase] = {
    "send, body: empty": _send(body=b""),
    "send, body: 4 MiB": _send(body=bytes(4 * MIB)),
    "send, body: 4 MiB + 1": _send(body=bytes(4 * MIB + 1)),
    "send, body: 8 MiB": _send(body=bytes(8 * MIB)),
    "send, properties: at the broker's limit": _send(text="k\1" + "v" * (_PROPERTIES - 200)),
    "send, properties: over the broker's limit": _send(text="k\1" + "v" * (_PROPERTIES + 1)),
    "send, properties: 64 KiB": _send(text="k\1" + "v" * 65_536),
    "send, queue: negative": _send(queueId=-1),
    "send, queue: beyond the topic": _send(queueId=999),
    "send, queue: no number": _send(queueId="x"),
    "send, delay level: 1": _send(DELAY, "DELAY\x011\2"),
    "send, delay level: 18": _send(DELAY, "DELAY\x0118\2"),
    "send, delay level: 19": _send(DELAY, "DELAY\x0119\2"),
    "send, delay level: negative": _send(DELAY, "DELAY\x01-1\2"),
    "send, delay level: no number": _send(DELAY, "DELAY\x01x\2"),
    "send, timer: over the broker's limit": _send(DELAY, f"TIMER_DELAY_SEC\x01{400 * 86_400}\2"),
    "send, timer: past": _send(DELAY, "TIMER_DELIVER_MS\x011000\2"),
    "send, reconsume times: over the limit": _send(f"%RETRY%{GROUP}", reconsumeTimes=99, maxReconsumeTimes=3),
    "send, default topic: missing": _send(f"{NORMAL}-none", defaultTopic="none"),
    "send, fields: none": RemotingCase(_C.SEND_MESSAGE_V2),
    "send, broker: unknown": RemotingCase(_C.SEND_MESSAGE_V2, v2(send_fields(NORMAL, bname="nowhere")), b"x"),
    "batch: one": _batch(b"x"),
    "batch: none": _batch(),
    "batch: 100": _batch(*[b"x"] * 100),
    "batch: 4 MiB + 1 together": _batch(*[bytes(MIB)] * 4, b"x"),
    "batch: truncated": RemotingCase(_C.SEND_BATCH_MESSAGE, _batch(b"x").fields, _batch(b"x").body[:-5]),
    "batch: with a delay": RemotingCase(
        _C.SEND_BATCH_MESSAGE, {**_batch(b"x").fields, "b": DELAY, "i": "DELAY\x011\2"}, _batch(b"x").body
    ),
    **{f"send, topic: {name}": _send(text) for name, text in _TOPICS.items()},
}

CONSUMING: dict[str, RemotingCase] = {
    "pull, messages: 0": _pull(maxMsgNums=0),
    "pull, messages: negative": _pull(maxMsgNums=-1),
    "pull, messages: a million": _pull(maxMsgNums=1_000_000),
    "pull, offset: negative": _pull(queueOffset=-1),
    "pull, offset: far": _pull(queueOffset=10**12),
    "pull, offset: over 64 bits": _pull(queueOffset=10**30),
    "pull, queue: beyond the topic": _pull(queueId=999),
    "pull, queue: negative": _pull(queueId=-1),
    "pull, filter: SQL that cannot be parsed": _pull(subscription="a >", expressionType="SQL92"),
    "pull, filter: unknown type": _pull(subscription="*", expressionType="XPATH"),
    "pull, polling time: negative": _pull(queueOffset=10**12, sysFlag=6, suspendTimeoutMillis=-1),
    **{f"pull, topic: {name}": _pull(topic=text) for name, text in _TOPICS.items()},
    **{f"pull, group: {name}": _pull(consumerGroup=text) for name, text in _GROUPS.items()},
    "pop, messages: 0": _pop(maxMsgNums=0),
    "pop, messages: 33": _pop(maxMsgNums=33),
    "pop, messages: negative": _pop(maxMsgNums=-1),
    "pop, invisible: 0": _pop(invisibleTime=0),
    "pop, invisible: 10 s less 1 ms": _pop(invisibleTime=9_999),
    "pop, invisible: 12 h and 1 ms": _pop(invisibleTime=43_200_001),
    "pop, invisible: negative": _pop(invisibleTime=-1),
    "pop, polling time: negative": _pop(pollTime=-1),
    "pop, queue: beyond the topic": _pop(queueId=999),
    "pop, filter: SQL that cannot be parsed": _pop(exp="a >", expType="SQL92"),
    "pop, topic: empty": _pop(topic=""),
    "pop, topic: a space inside": _pop(topic="a b"),
    "pop, topic: unknown": _pop(topic="limits-unknown"),
    "pop, group: a space inside": _pop(consumerGroup="a b"),
    "change, invisible: negative": _invisible(invisibleTime=-1),
    "change, invisible: over 12 h": _invisible(invisibleTime=43_200_001),
    "change, handle: garbage": _invisible(extraInfo="garbage"),
    "change, queue: beyond the topic": _invisible(queueId=999),
    "ack, handle: garbage": _ack(extraInfo="garbage"),
    "ack, offset: far": _ack(offset=10**12),
    "ack, queue: beyond the topic": _ack(queueId=999),
    "ack, topic: unknown": _ack(topic="limits-unknown"),
}

OTHERS: dict[str, RemotingCase] = {
    "unknown code": RemotingCase(29_999),
    "negative code": RemotingCase(-5),
    "code of brokers only: notify members": RemotingCase(_C.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": GROUP}),
    "lite topic: pop of a group without any": RemotingCase(
        _C.POP_LITE_MESSAGE, {**_pop().fields, "clientId": "limits", "maxMsgNum": 32, "attemptId": "a"}
    ),
    "lite topic: subscription of nothing": RemotingCase(_C.LITE_SUBSCRIPTION_CTL, {"bname": BROKER}, b"{}"),
    "route, topic: empty": RemotingCase(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": ""}),
    "route, topic: unknown": RemotingCase(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": "limits-unknown"}),
    "route, topic: none": RemotingCase(_C.GET_ROUTEINFO_BY_TOPIC),
    "heartbeat: no body": RemotingCase(_C.HEART_BEAT),
    "heartbeat: no object": RemotingCase(_C.HEART_BEAT, body=b"[1]"),
    "heartbeat: broken": RemotingCase(_C.HEART_BEAT, body=b"{"),
    "heartbeat: no client id": RemotingCase(_C.HEART_BEAT, body=b'{"producerDataSet":[],"consumerDataSet":[]}'),
    "heartbeat: a group": RemotingCase(_C.HEART_BEAT, body=heartbeat("limits", {GROUP: [NORMAL]}, [])),
    "members of an unknown group": RemotingCase(_C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "limits-unknown"}),
    "lock: no queues": _lock(_C.LOCK_BATCH_MQ),
    "lock: an unknown broker": _lock(_C.LOCK_BATCH_MQ, "nowhere"),
    "lock: no body": RemotingCase(_C.LOCK_BATCH_MQ, {"bname": BROKER}),
    "offset: negative queue": RemotingCase(_C.GET_MAX_OFFSET, queue_fields(NORMAL, -1)),
    "offset: beyond the topic": RemotingCase(_C.GET_MAX_OFFSET, queue_fields(NORMAL, 999)),
    "offset: no number": RemotingCase(_C.GET_MAX_OFFSET, {**queue_fields(NORMAL), "queueId": "x"}),
    "commit: negative": RemotingCase(
        _C.UPDATE_CONSUMER_OFFSET, queue_fields(NORMAL, consumerGroup=GROUP, commitOffset=-1)
    ),
    "commit: unknown topic": RemotingCase(
        _C.UPDATE_CONSUMER_OFFSET, queue_fields("limits-unknown", consumerGroup=GROUP, commitOffset=1)
    ),
    "read offset: unknown group": RemotingCase(
        _C.QUERY_CONSUMER_OFFSET, queue_fields(NORMAL, consumerGroup="limits-unknown")
    ),
    "recall: garbage": RemotingCase(
        _C.RECALL_MESSAGE, {"producerGroup": "p", "topic": DELAY, "recallHandle": "garbage", "bname": BROKER}
    ),
    "send back: unknown message": RemotingCase(
        _C.CONSUMER_SEND_MSG_BACK, {"group": GROUP, "offset": 1, "delayLevel": 3, "bname": BROKER}
    ),
    "end of a transaction: unknown": RemotingCase(
        _C.END_TRANSACTION,
        {
            "producerGroup": "p",
            "topic": NORMAL,
            "tranStateTableOffset": 1,
            "commitLogOffset": 1,
            "commitOrRollback": 8,
            "fromTransactionCheck": False,
            "msgId": "x",
            "bname": BROKER,
        },
    ),
}

REMOTING_CASES = SENDS | CONSUMING | OTHERS
