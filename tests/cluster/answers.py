"""The same requests, most of them invalid or unusual, to a real broker and to the embedded one, and a comparison.

An answer is its code, its fields, and whether it has a body (of JSON: its keys). Remarks are not compared.
`KNOWN` are the accepted differences, each with its reason; `docs/embedded-broker.md` lists them.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import orjson

from remoting import messages, pop, properties
from remoting.codes import RequestCode as C
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.pop import PoppedMessage
from tests.cluster.client import BROKER, Client, pull_fields, send_fields, v2
from tests.cluster.conftest import OPTIONS
from tests.cluster.servers import Cluster
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster

# Code, fields without values that differ each time, body.
Answer = tuple[int, dict[str, str], object]

# Fields whose values differ each time.
_VARIABLE_FIELDS = frozenset(
    (
        "indexLastUpdatePhyoffset",
        "indexLastUpdateTimestamp",
        "msgId",
        "popTime",
        "recallHandle",
        "reviveQid",
        "timestamp",
        "totalTopicNum",
        "transactionId",
        "version",
    )
)
_CLEAR = "a clear refusal instead of a Java exception (code 1)"
_FILTER = "RocketMQ leaves out a filter that it cannot compile and gives everything"
_POSITION = "tables are in the log too, so that no message begins at 0"
_TOOL = "a tool's request that is not served"

KNOWN: Mapping[str, str] = {
    "send: empty": _CLEAR,
    "batch: empty": _CLEAR,
    "batch: cut": _CLEAR,
    "ack: no handle": _CLEAR,
    "tool 401": _CLEAR,
    "pull: bad SQL": _FILTER,
    "pull: bad type": _FILTER,
    "view: 0": _POSITION,
    "send back: 0": _POSITION,
    **{f"tool {code}": _TOOL for code in (25, 45, 321, 323, 354, 355, 513)},
    "tool 206": "one address is broker and name server",
    **{f"name server {code}": _TOOL for code in (104, 205, 318, 322)},
}

_TOOLS: tuple[tuple[int, dict[str, object]], ...] = (
    *((code, {}) for code in (21, 23, 24, 25, 26, 28, 43, 45, 201, 206, 227, 301, 305, 306, 316, 317, 318, 323, 326)),
    *((code, {}) for code in (328, 333, 334, 339, 340, 346, 354, 355, 401, 402, 514, 1000)),
    (202, {"topic": "T"}),
    (204, {"producerGroup": "test-producers"}),
    (208, {"consumerGroup": "gq"}),
    (223, {"topic": "T", "group": "gm"}),
    (230, {"group": "x"}),
    (300, {"topic": "T"}),
    (303, {"topic": "T", "group": "gq"}),
    (307, {"consumerGroup": "gm", "clientId": "nobody"}),
    (315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}),
    (321, {"topic": "T", "queueId": 0, "index": 0, "count": 3, "consumerGroup": ""}),
    (343, {"group": "gq"}),
    (345, {"group": "gm", "topic": "T"}),
    (347, {"topic": "T"}),
    (513, {"topic": "T"}),
)
_NAME_SERVER: tuple[tuple[int, dict[str, object]], ...] = (
    *((code, {}) for code in (104, 106, 206, 304, 311, 312, 313, 318, 319, 322)),
    (101, {"namespace": "n", "key": "k"}),
    (105, {"topic": "T", "acceptStandardJsonOnly": True}),
    (205, {"brokerName": BROKER}),
    (219, {"namespace": "n"}),
    (224, {"cluster": "DefaultCluster"}),
)


class Asker:
    """Sends requests to one broker. `answers` contains the answers by label."""

    def __init__(self, client: Client, name_server: Client) -> None:
        self.client = client
        self.name_server = name_server
        self.answers: dict[str, Answer] = {}

    async def ask(
        self, label: str, code: int, fields: Mapping[str, object], body: bytes = b"", client: Client | None = None
    ) -> RemotingCommand | None:
        """Send one request; return its response, None without one."""
        try:
            reply = await (client or self.client).ask(code, fields, body, timeout=8)
        except RemotingError as error:
            self.answers[label] = (-1, {}, type(error).__name__)
            return None
        named = {name: "…" if name in _VARIABLE_FIELDS else value for name, value in reply.fields.items()}
        self.answers[label] = (reply.code, named, _shape(reply.body))
        return reply

    async def send(self, label: str, topic: str, body: bytes, pairs: dict[str, str] | None = None, **more: Any) -> None:
        fields = v2(send_fields(topic, properties.encode(pairs or {}), **more))
        await self.ask(f"send: {label}", C.SEND_MESSAGE_V2, fields, body)

    async def pull(self, label: str, topic: str = "T", **changes: object) -> None:
        await self.ask(f"pull: {label}", C.PULL_MESSAGE, {**pull_fields(topic, "g"), **changes})

    async def pop(self, label: str, topic: str = "T", **changes: object) -> list[PoppedMessage]:
        fields = {
            "topic": topic,
            "queueId": 0,
            "consumerGroup": "gp",
            "maxMsgNums": 2,
            "invisibleTime": 20_000,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": False,
        }
        reply = await self.ask(f"pop: {label}", C.POP_MESSAGE, {**fields, **changes})
        if reply is None or not reply.body:
            return []
        return pop.popped(messages.decode_messages(reply.body), topic, reply.fields, BROKER)


def _shape(body: bytes) -> object:
    """Return whether there is a body; the keys of a JSON object."""
    try:
        data = orjson.loads(body)
    except ValueError:
        return bool(body)
    return sorted(data) if isinstance(data, dict) else type(data).__name__


async def _topics(asker: Asker) -> None:
    for name, queues, perm in (("T", 1, 6), ("E", 1, 6), ("F", 2, 6), ("RO", 1, 4), ("WO", 1, 2)):
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
        fields |= {"perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        await asker.ask(f"topic {name}", C.UPDATE_AND_CREATE_TOPIC, fields)


async def _send(asker: Asker) -> None:
    for number in range(5):
        pairs = {"UNIQ_KEY": f"K{number}", "TAGS": "ab"[number % 2], "KEYS": "k1 k2"}
        await asker.send(f"number {number}", "T", b"%d" % number, pairs)
    await asker.send("empty", "T", b"")
    await asker.send("no topic", "nope", b"x", defaultTopic="nothing")
    await asker.send("a new topic", "auto", b"x")
    await asker.send("no such queue", "T", b"x", queue=9)
    await asker.send("any queue", "T", b"x", queue=-1)
    await asker.send("read-only", "RO", b"x")
    await asker.send("a system topic", "SCHEDULE_TOPIC_XXXX", b"x")
    await asker.send("a bad name", "a b%", b"x")
    await asker.send("TBW102", "TBW102", b"x")
    await asker.send("long properties", "T", b"x", {"a": "b" * 33_000})
    await asker.send("a long name", "t" * 130, b"x")
    await asker.send("too large", "T", bytes(4 * 2**20 + 1))
    await asker.send("a priority", "T", b"x", {"_SYS_MSG_PRIORITY_": "3"})
    await asker.send("a bad delay", "T", b"x", {"TIMER_DELAY_MS": "abc"})
    await asker.send("too far ahead", "T", b"x", {"TIMER_DELAY_MS": str(4 * 86_400_000)})
    await asker.send("in the past", "T", b"x", {"TIMER_DELIVER_MS": "1000"})
    await asker.send("level 99", "E", b"x", {"DELAY": "99"})
    await asker.send("level -1", "E", b"x", {"DELAY": "-1"})
    await asker.send("a new retry topic", "%RETRY%gn", b"x", reconsumeTimes=1, maxReconsumeTimes=3)
    await asker.send("dead letters", "%DLQ%gn", b"x")
    batch = v2(send_fields("T", batch=True))
    await asker.ask("batch: empty", C.SEND_BATCH_MESSAGE, batch)
    await asker.ask("batch: cut", C.SEND_BATCH_MESSAGE, batch, b"abcdefgh")
    await asker.ask("end: no such half", C.END_TRANSACTION, {**_END, "commitLogOffset": 10**9})
    for offset in (0, 10**9):
        back = {"group": "gb", "offset": offset, "delayLevel": 1, "originTopic": "T", "maxReconsumeTimes": 3}
        await asker.ask(f"send back: {offset}", C.CONSUMER_SEND_MSG_BACK, back)
    for topic in ("T", "nope"):
        recall = {"topic": topic, "recallHandle": "abc", "producerGroup": "p"}
        await asker.ask(f"recall: {topic}", C.RECALL_MESSAGE, recall)


_END = {
    "producerGroup": "p",
    "topic": "T",
    "tranStateTableOffset": 0,
    "commitOrRollback": 8,
    "fromTransactionCheck": False,
    "msgId": "m",
    "transactionId": "t",
}


async def _read(asker: Asker) -> None:
    # Brokers deliver messages a moment after the response to the send.
    await anyio.sleep(0.5)
    await asker.pull("all")
    await asker.pull("a tag", subscription="a")
    await asker.pull("no such tag", subscription="zz")
    await asker.pull("bad SQL", subscription="a > ", expressionType="SQL92")
    await asker.pull("SQL", subscription="TAGS = 'a'", expressionType="SQL92")
    await asker.pull("no expression", subscription="")
    await asker.pull("bad type", subscription="a", expressionType="XX")
    await asker.pull("no topic", "nope")
    await asker.pull("no such queue", queueId=7)
    await asker.pull("offset -1", queueOffset=-1)
    await asker.pull("beyond", queueOffset=100)
    await asker.pull("an empty queue", "F")
    await asker.pull("an empty queue, further", "F", queueOffset=3)
    await asker.pull("write-only", "WO")
    await asker.pull("no subscription", sysFlag=0, consumerGroup="gx")
    for code in (C.GET_MAX_OFFSET, C.GET_MIN_OFFSET, C.GET_EARLIEST_MSG_STORETIME):
        for topic, queue in (("T", 0), ("T", 9), ("nope", 0)):
            await asker.ask(f"{code.name}: {topic} {queue}", code, {"topic": topic, "queueId": queue})
    for topic, timestamp in (("T", 0), ("T", 2**50), ("nope", 0)):
        fields = {"topic": topic, "queueId": 0, "timestamp": timestamp}
        await asker.ask(f"search: {topic} {timestamp}", C.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    for key in ("k1", "zz"):
        fields = {"topic": "T", "key": key, "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 2**62}
        await asker.ask(f"key: {key}", C.QUERY_MESSAGE, fields)
    for offset in (0, 10**9):
        await asker.ask(f"view: {offset}", C.VIEW_MESSAGE_BY_ID, {"offset": offset})


async def _offsets(asker: Asker) -> None:
    queue = {"topic": "T", "queueId": 0, "consumerGroup": "gq"}
    for zero in (None, True, False):
        fields = {**queue, "setZeroIfNotFound": zero}
        await asker.ask(f"offset: a new group, {zero}", C.QUERY_CONSUMER_OFFSET, fields)
    await asker.ask("offset: no topic", C.QUERY_CONSUMER_OFFSET, {**queue, "topic": "nope"})
    await asker.ask("offset: no such queue", C.QUERY_CONSUMER_OFFSET, {**queue, "queueId": 9})
    for offset in (2, 2000, -5):
        await asker.ask(f"commit: {offset}", C.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": offset})
        await asker.ask(f"offset: after {offset}", C.QUERY_CONSUMER_OFFSET, queue)
    await asker.ask("commit: no topic", C.UPDATE_CONSUMER_OFFSET, {**queue, "topic": "nope", "commitOffset": 1})


async def _groups(asker: Asker, other: Client) -> None:
    client = asker.client
    await client.heartbeat({"gm": ["T"]})
    await other.heartbeat({"gm": ["T"]})
    for group in ("gm", "nobody"):
        await asker.ask(f"consumers: {group}", C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        await asker.ask(f"connections: {group}", C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        await asker.ask(f"config of group {group}", C.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    queue = [{"topic": "T", "brokerName": BROKER, "queueId": 0}]
    for code, who in ((C.LOCK_BATCH_MQ, client), (C.LOCK_BATCH_MQ, other), (C.UNLOCK_BATCH_MQ, client)):
        body = orjson.dumps({"consumerGroup": "gm", "clientId": who.client_id, "mqSet": queue})
        await asker.ask(f"{code.name}: {'first' if who is client else 'second'}", code, {}, body)
    for topic in ("T", "nope"):
        wish = {"topic": topic, "consumerGroup": "gm", "clientId": client.client_id, "strategyName": "AVG"}
        body = orjson.dumps({**wish, "messageModel": "CLUSTERING"})
        await asker.ask(f"assignment: {topic}", C.QUERY_ASSIGNMENT, {}, body)
        await asker.ask(f"config of topic {topic}", C.GET_TOPIC_CONFIG, {"topic": topic})


async def _pop(asker: Asker) -> None:
    first, second = await asker.pop("two")
    ack = _handle_fields(first, "T")
    await asker.ask("ack", C.ACK_MESSAGE, ack)
    await asker.ask("ack: again", C.ACK_MESSAGE, ack)
    await asker.ask("ack: beyond", C.ACK_MESSAGE, {**ack, "offset": 1000})
    await asker.ask("ack: no such queue", C.ACK_MESSAGE, {**ack, "queueId": 5})
    await asker.ask("ack: no topic", C.ACK_MESSAGE, {**ack, "topic": "nope"})
    await asker.ask("ack: no handle", C.ACK_MESSAGE, {**ack, "extraInfo": "abc"})
    for body in (b"", b"{}", b'{"brokerName":"broker-a","acks":[]}'):
        await asker.ask(f"acks: {body.decode()}", C.BATCH_ACK_MESSAGE, {}, body)
    change = {**_handle_fields(second, "T"), "invisibleTime": 30_000}
    await asker.ask("change", C.CHANGE_MESSAGE_INVISIBLETIME, change)
    await asker.ask("change: acknowledged", C.CHANGE_MESSAGE_INVISIBLETIME, {**ack, "invisibleTime": 30_000})
    await asker.ask("change: beyond", C.CHANGE_MESSAGE_INVISIBLETIME, {**change, "offset": 999})
    await asker.ask("change: no such queue", C.CHANGE_MESSAGE_INVISIBLETIME, {**change, "queueId": 7})
    await asker.pop("too many", maxMsgNums=33)
    await asker.pop("none", maxMsgNums=0)
    await asker.pop("no topic", "nope")
    await asker.pop("no such queue", queueId=9)
    await asker.pop("bad SQL", expType="SQL92", exp="a >")
    await asker.pop("write-only", "WO")
    await asker.pop("an empty queue", "F")
    await asker.pop("too late", bornTime=1000)
    await asker.pop("from the end", consumerGroup="gl", initMode=1)
    look = {"topic": "T", "queueId": 0, "consumerGroup": "gk", "maxMsgNums": 2, "pollTime": 0, "order": False}
    look["bornTime"] = int(time.time() * 1000)
    for topic in ("T", "F", "nope", "WO"):
        for code in (C.PEEK_MESSAGE, C.NOTIFICATION, C.POLLING_INFO):
            await asker.ask(f"{code.name}: {topic}", code, {**look, "topic": topic})


async def _pop_in_order(asker: Asker) -> None:
    for number in range(3):
        await asker.send(f"in order {number}", "F", b"%d" % number)
    await anyio.sleep(0.5)
    first, second = await asker.pop("in order", "F", order=True)
    await asker.pop("in order, blocked", "F", order=True)
    for label in ("", " again"):
        await asker.ask(f"ack: in order{label}", C.ACK_MESSAGE, _handle_fields(first, "F"))
    later = {**_handle_fields(second, "F"), "invisibleTime": 30_000}
    reply = await asker.ask("change: in order", C.CHANGE_MESSAGE_INVISIBLETIME, later)
    # It counts from the pop, so it is larger by milliseconds, or by seconds on a busy machine.
    if reply is not None:
        asker.answers["change: in order"][1]["invisibleTime"] = reply.fields["invisibleTime"][:1]
    fields = {"topic": "F", "queueId": 0, "consumerGroup": "gp"}
    await asker.ask("offset: in order", C.QUERY_CONSUMER_OFFSET, fields)


def _handle_fields(popped: PoppedMessage, topic: str) -> dict[str, object]:
    handle = popped.extra_info
    fields = {"consumerGroup": "gp", "topic": topic, "queueId": handle.queue_id}
    return {**fields, "extraInfo": handle, "offset": handle.queue_offset}


async def ask_all(broker: str, namesrv: str) -> dict[str, Answer]:
    """Return all answers of a new broker, by label."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(broker, "client-1", broker=None))
        other = await stack.enter_async_context(Client(broker, "client-2", broker=None))
        name_server = await stack.enter_async_context(Client(namesrv, broker=None))
        asker = Asker(client, name_server)
        for part in (_topics, _send, _read, _offsets, _pop, _pop_in_order):
            await part(asker)
        await _groups(asker, other)
        await asker.ask("no such code", 9999, {})
        for code, fields in _TOOLS:
            await asker.ask(f"tool {code}", code, fields)
        for code, fields in _NAME_SERVER:
            await asker.ask(f"name server {code}", code, fields, client=name_server)
    return asker.answers


def compare(real: Mapping[str, Answer], own: Mapping[str, Answer]) -> dict[str, str]:
    """Return the difference by label, empty if there is none. A known difference counts as one if it is missing."""
    found = {}
    for label, answer in real.items():
        differs = f"{answer} from RocketMQ, {own.get(label)} from us" if own.get(label) != answer else ""
        if label in KNOWN:
            differs = "" if differs else f"no longer differs: {KNOWN[label]}"
        found[label] = differs
    return found


def run(directory: Path) -> dict[str, str]:
    """Compare a new real broker and a new embedded one, with their data in this directory; return the differences."""
    with Cluster(directory / "real", *OPTIONS) as cluster:
        real = asyncio.run(ask_all(cluster.broker, cluster.namesrv))
    with EmbeddedCluster(directory, durable=True) as server:
        embedded = asyncio.run(ask_all(server.broker, server.namesrv))
    return compare(real, embedded)
