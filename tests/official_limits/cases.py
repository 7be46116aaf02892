"""The table of limits: requests below, at and above each bound."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from tests.official_limits import requests as r
from tests.official_limits.requests import DELAY, FIFO, GROUP, NORMAL, TRANSACTION, at, later, message, one, receive

MIB = 2**20
# Bytes of properties that Gantry and the official proxy allow.
PROPERTIES = 16 * 1024
_ENDPOINTS = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host="127.0.0.1", port=8081)])
_GZIP = gzip.compress(b"plain" * 100)


@dataclass(frozen=True, slots=True)
class Case:
    """A request. deadline: seconds of the call. last: send it after the others, because it ends the client."""

    rpc: str
    request: Callable[[], Any]
    deadline: float = 20.0
    last: bool = False


def _names(rpc: str, label: str, build: Callable[[str], Any], names: Mapping[str, str]) -> dict[str, Case]:
    return {f"{label}: {name}": Case(rpc, partial(build, text)) for name, text in names.items()}


_TOPIC_NAMES = {
    "empty": "",
    "blank": " ",
    "127 characters": "t" * 127,
    "128 characters": "t" * 128,
    "a space inside": "a b",
    "a dot": "a.b",
    "percent and bar": "a%b|c",
    "a character outside ASCII": "tö",
    "a system topic": "SELF_TEST_TOPIC",
    "a schedule topic": "SCHEDULE_TOPIC_XXXX",
    "unknown": "limits-unknown",
}
_GROUP_NAMES = {
    "empty": "",
    "blank": " ",
    "120 characters": "g" * 120,
    "121 characters": "g" * 121,
    "255 characters": "g" * 255,
    "256 characters": "g" * 256,
    "a space inside": "a b",
    "a dot": "a.b",
    "a system group": "CID_RMQ_SYS_x",
}
_HANDLES = {"empty": "", "garbage": "garbage", "three fields": "1 2 3", "letters as numbers": "a b c d e broker-a 0 0"}


def _filter(kind: Any, expression: str) -> Case:
    return Case(
        "ReceiveMessage", lambda: receive(expression=d.FilterExpression(type=kind, expression=expression)), deadline=20
    )


SENDS: dict[str, Case] = {
    "body: empty": Case("SendMessage", lambda: one(body=b"")),
    "body: 4 MiB": Case("SendMessage", lambda: one(body=bytes(4 * MIB))),
    "body: 4 MiB + 1": Case("SendMessage", lambda: one(body=bytes(4 * MIB + 1))),
    "body: gzip that is none": Case("SendMessage", lambda: one(body=b"plain", body_encoding=d.GZIP)),
    "body: gzip that is truncated": Case("SendMessage", lambda: one(body=_GZIP[:-9], body_encoding=d.GZIP)),
    "body: gzip of 4 MiB": Case("SendMessage", lambda: one(body=gzip.compress(bytes(4 * MIB)), body_encoding=d.GZIP)),
    "body: gzip of 4 MiB + 1": Case(
        "SendMessage", lambda: one(body=gzip.compress(bytes(4 * MIB + 1)), body_encoding=d.GZIP)
    ),
    "user properties: 128": Case("SendMessage", lambda: one(user={f"k{i}": "v" for i in range(128)})),
    "user properties: 129": Case("SendMessage", lambda: one(user={f"k{i}": "v" for i in range(129)})),
    "user properties: 16 KiB in all": Case("SendMessage", lambda: one(user={"k": "v" * (PROPERTIES - 1)})),
    "user properties: 16 KiB + 1 in all": Case("SendMessage", lambda: one(user={"k": "v" * PROPERTIES})),
    "user properties: 128 with 16 KiB in all": Case(
        "SendMessage", lambda: one(user={f"k{i:03}": "v" * 124 for i in range(128)})
    ),
    "user property key: empty": Case("SendMessage", lambda: one(user={"": "v"})),
    "user property key: of the system": Case("SendMessage", lambda: one(user={"UNIQ_KEY": "v"})),
    "user property key: control character": Case("SendMessage", lambda: one(user={"a\x01b": "v"})),
    "user property key: 16 KiB": Case("SendMessage", lambda: one(user={"k" * PROPERTIES: ""})),
    "user property value: empty": Case("SendMessage", lambda: one(user={"k": ""})),
    "user property value: control character": Case("SendMessage", lambda: one(user={"k": "a\x02b"})),
    "tag: blank": Case("SendMessage", lambda: one(tag="  ")),
    "tag: with a bar": Case("SendMessage", lambda: one(tag="a|b")),
    "tag: control character": Case("SendMessage", lambda: one(tag="a\nb")),
    "tag: 16 KiB": Case("SendMessage", lambda: one(tag="t" * PROPERTIES)),
    "tag: 16 KiB + 1": Case("SendMessage", lambda: one(tag="t" * (PROPERTIES + 1))),
    "key: blank": Case("SendMessage", lambda: one(keys=[" "])),
    "key: empty": Case("SendMessage", lambda: one(keys=[""])),
    "key: control character": Case("SendMessage", lambda: one(keys=["a\x7fb"])),
    "key: 16 KiB": Case("SendMessage", lambda: one(keys=["k" * PROPERTIES])),
    "key: 16 KiB + 1": Case("SendMessage", lambda: one(keys=["k" * (PROPERTIES + 1)])),
    "key: 16 KiB with a user property": Case(
        "SendMessage", lambda: one(keys=["k" * (PROPERTIES - 10)], user={"k": "v" * 9})
    ),
    "keys: 16 KiB of 64 keys": Case("SendMessage", lambda: one(keys=[f"{i:02}" + "k" * 254 for i in range(64)])),
    "message group: 63 bytes": Case("SendMessage", lambda: one(FIFO, message_group="g" * 63)),
    "message group: 64 bytes": Case("SendMessage", lambda: one(FIFO, message_group="g" * 64)),
    "message group: blank": Case("SendMessage", lambda: one(FIFO, message_group=" ")),
    "message group: control character": Case("SendMessage", lambda: one(FIFO, message_group="a\tb")),
    "message id: empty": Case("SendMessage", lambda: one(message_id="")),
    "message id: blank": Case("SendMessage", lambda: one(message_id=" ")),
    "message id: control character": Case("SendMessage", lambda: one(message_id="a\x01b")),
    "message id: 300 characters": Case("SendMessage", lambda: one(message_id="0" * 300)),
    "trace context: 1 KiB": Case("SendMessage", lambda: one(trace_context="t" * 1024)),
    "trace context: 33 KiB": Case("SendMessage", lambda: one(trace_context="t" * 33 * 1024)),
    "trace context: control character": Case("SendMessage", lambda: one(trace_context="a\x01b")),
    "born host: control character": Case("SendMessage", lambda: one(born_host="a\x02b")),
    "delivery time: a day less a minute": Case("SendMessage", lambda: one(DELAY, delivery_timestamp=later(86_340))),
    "delivery time: a day and a minute": Case("SendMessage", lambda: one(DELAY, delivery_timestamp=later(86_460))),
    "delivery time: past": Case("SendMessage", lambda: one(DELAY, delivery_timestamp=at(1_000_000))),
    "delivery time: before 1970": Case("SendMessage", lambda: one(DELAY, delivery_timestamp=at(-1_000))),
    "recovery: an hour": Case(
        "SendMessage",
        lambda: one(TRANSACTION, message_type=d.TRANSACTION, orphaned_transaction_recovery_duration=r.seconds(3_600)),
    ),
    "recovery: an hour and a second": Case(
        "SendMessage",
        lambda: one(TRANSACTION, message_type=d.TRANSACTION, orphaned_transaction_recovery_duration=r.seconds(3_601)),
    ),
    "recovery: negative": Case(
        "SendMessage",
        lambda: one(TRANSACTION, message_type=d.TRANSACTION, orphaned_transaction_recovery_duration=r.seconds(-1)),
    ),
    "type: FIFO to NORMAL": Case("SendMessage", lambda: one(message_group="g")),
    "type: DELAY to NORMAL": Case("SendMessage", lambda: one(delivery_timestamp=later(60))),
    "type: TRANSACTION to NORMAL": Case("SendMessage", lambda: one(message_type=d.TRANSACTION)),
    "type: PRIORITY to NORMAL": Case("SendMessage", lambda: one(priority=1)),
    "type: NORMAL to FIFO": Case("SendMessage", lambda: one(FIFO)),
    "type: NORMAL to DELAY": Case("SendMessage", lambda: one(DELAY)),
    "type: NORMAL to TRANSACTION": Case("SendMessage", lambda: one(TRANSACTION)),
    "messages: none": Case("SendMessage", r.send),
    "messages: two": Case("SendMessage", lambda: r.send(message(), message())),
    "messages: two topics": Case("SendMessage", lambda: r.send(message(), message(FIFO, message_group="g"))),
    "messages: the second is invalid": Case("SendMessage", lambda: r.send(message(), message(tag=" "))),
    **_names("SendMessage", "send, topic", one, _TOPIC_NAMES),
}

RECEIVES: dict[str, Case] = {
    "invisible: 0": Case("ReceiveMessage", lambda: receive(invisible=0)),
    "invisible: 10 s less 1 ms": Case("ReceiveMessage", lambda: receive(invisible=9.999)),
    "invisible: 10 s": Case("ReceiveMessage", lambda: receive(invisible=10)),
    "invisible: 12 h": Case("ReceiveMessage", lambda: receive(invisible=43_200)),
    "invisible: 12 h and 1 ms": Case("ReceiveMessage", lambda: receive(invisible=43_200.001)),
    "invisible: negative": Case("ReceiveMessage", lambda: receive(invisible=-1)),
    "polling: deadline too near": Case("ReceiveMessage", receive, deadline=3),
    "batch: 0": Case("ReceiveMessage", lambda: receive(batch=0)),
    "batch: negative": Case("ReceiveMessage", lambda: receive(batch=-1)),
    "batch: 33": Case("ReceiveMessage", lambda: receive(batch=33)),
    "filter: SQL that cannot be parsed": _filter(d.SQL, "a >"),
    "filter: empty SQL": _filter(d.SQL, ""),
    "filter: SQL": _filter(d.SQL, "a > 1"),
    "filter: tags": _filter(d.TAG, "a || b"),
    "filter: empty tags": _filter(d.TAG, ""),
    "filter: only bars": _filter(d.TAG, "||"),
    "filter: no type": _filter(d.FILTER_TYPE_UNSPECIFIED, "*"),
    "filter: 17 KiB": _filter(d.TAG, "t" * 17 * 1024),
    **_names("ReceiveMessage", "receive, topic", lambda name: receive(name), _TOPIC_NAMES),
    **_names("ReceiveMessage", "receive, group", lambda name: receive(group=name), _GROUP_NAMES),
}

SETTLEMENTS: dict[str, Case] = {
    "ack: no entries": Case("AckMessage", r.ack),
    "ack: two bad handles": Case("AckMessage", lambda: r.ack("", "garbage")),
    "change: negative": Case("ChangeInvisibleDuration", lambda: r.change("garbage", -1)),
    "change: over 12 h": Case("ChangeInvisibleDuration", lambda: r.change("garbage", 43_201)),
    **_names("AckMessage", "ack, handle", lambda handle: r.ack(handle), _HANDLES),
    **_names("ChangeInvisibleDuration", "change, handle", lambda handle: r.change(handle), _HANDLES),
    **_names("ForwardMessageToDeadLetterQueue", "dead letter, handle", lambda handle: r.forward(handle), _HANDLES),
    "ack: a bad topic": Case("AckMessage", lambda: r.ack("garbage", topic="a b")),
    "ack: a bad group": Case("AckMessage", lambda: r.ack("garbage", group="a b")),
    "change: a bad topic": Case("ChangeInvisibleDuration", lambda: r.change("garbage", topic="a b")),
    "dead letter: a bad group": Case(
        "ForwardMessageToDeadLetterQueue", lambda: r.forward("garbage", group="CID_RMQ_SYS_x")
    ),
}

OTHERS: dict[str, Case] = {
    "transaction id: empty": Case("EndTransaction", lambda: r.end_transaction("")),
    "transaction id: garbage": Case("EndTransaction", lambda: r.end_transaction("garbage")),
    "transaction id: message id missing": Case("EndTransaction", lambda: r.end_transaction("garbage", "")),
    "transaction: a bad topic": Case("EndTransaction", lambda: r.end_transaction("garbage", topic="a b")),
    "recall: no handle": Case("RecallMessage", lambda: pb.RecallMessageRequest(topic=r.resource(DELAY))),
    "recall: garbage": Case(
        "RecallMessage", lambda: pb.RecallMessageRequest(topic=r.resource(DELAY), recall_handle="garbage")
    ),
    "recall: a bad topic": Case(
        "RecallMessage", lambda: pb.RecallMessageRequest(topic=r.resource("a b"), recall_handle="garbage")
    ),
    **_names(
        "QueryRoute",
        "route, topic",
        lambda name: pb.QueryRouteRequest(topic=r.resource(name), endpoints=_ENDPOINTS),
        _TOPIC_NAMES,
    ),
    **_names(
        "QueryAssignment",
        "assignment, group",
        lambda name: pb.QueryAssignmentRequest(topic=r.resource(NORMAL), group=r.resource(name), endpoints=_ENDPOINTS),
        _GROUP_NAMES,
    ),
    "assignment: a bad topic": Case(
        "QueryAssignment",
        lambda: pb.QueryAssignmentRequest(topic=r.resource("a b"), group=r.resource(GROUP), endpoints=_ENDPOINTS),
    ),
    "route: no endpoints": Case("QueryRoute", lambda: pb.QueryRouteRequest(topic=r.resource(NORMAL))),
    "heartbeat: a bad group": Case(
        "Heartbeat", lambda: pb.HeartbeatRequest(group=r.resource("a b"), client_type=d.SIMPLE_CONSUMER)
    ),
    "termination: a bad group": Case(
        "NotifyClientTermination", lambda: pb.NotifyClientTerminationRequest(group=r.resource("a b")), last=True
    ),
}

CASES = SENDS | RECEIVES | SETTLEMENTS | OTHERS
