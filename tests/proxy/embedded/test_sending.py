"""Sends: stored messages, refusals, queues."""

import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.ids import OffsetMessageId
from remoting.messages import BatchMessage, SysFlag
from tests.cluster.client import send_fields, v2
from tests.proxy.embedded.broker_harness import BrokerHarness

pytestmark = pytest.mark.anyio


async def test_a_stored_message_has_the_properties_that_brokers_add(harness: BrokerHarness) -> None:
    harness.topic("t")
    reply = harness.send("t", b"body", {"KEYS": "k", "POP_CK": "forged", "UNIQ_KEY": "U"}, flag=7)
    [message] = harness.stored("t")
    pairs = properties.decode(message.properties)
    assert (message.body, message.flag, message.body_crc) == (b"body", 7, messages.crc(b"body"))
    assert pairs.items() >= {"KEYS": "k", "UNIQ_KEY": "U", "CLUSTER": "DefaultCluster", "TRACE_ON": "true"}.items()
    assert "POP_CK" not in pairs
    assert message.born_host == ("192.0.2.7", 50000)
    assert reply.fields["transactionId"] == "U"
    place = OffsetMessageId.parse(reply.fields["msgId"])
    assert (place.port, place.offset) == (10911, message.commit_log_offset)


async def test_a_message_without_a_unique_id_gets_one(harness: BrokerHarness) -> None:
    reply = harness.send(harness.topic("t"))
    assert harness.stored("t")[0].get(properties.UNIQ_CLIENT_MESSAGE_ID) == reply.fields["transactionId"]


async def test_a_negative_queue_id_selects_any_queue(harness: BrokerHarness) -> None:
    harness.topic("t", queues=8)
    chosen = {harness.send("t", queue=-1).fields["queueId"] for _ in range(60)}
    assert len(chosen) > 3


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("t", {"queue": 1}, ResponseCode.INVALID_PARAMETER),
        ("t", {"body": b""}, ResponseCode.MESSAGE_ILLEGAL),
        ("t", {"body": b"x" * (4 * 1024 * 1024 + 1)}, ResponseCode.MESSAGE_ILLEGAL),
        ("t", {"pairs": {"a": "x" * 40_000}}, ResponseCode.MESSAGE_ILLEGAL),
        ("a b", {}, ResponseCode.INVALID_PARAMETER),
        ("x" * 128, {}, ResponseCode.INVALID_PARAMETER),
        (" ", {}, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, ResponseCode.NO_PERMISSION),
        ("new", {"defaultTopic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_invalid_messages_are_rejected(
    harness: BrokerHarness, topic: str, changes: dict[str, object], code: ResponseCode
) -> None:
    harness.topic("t")
    reply = harness.send(topic, **changes)  # type: ignore[arg-type]
    assert reply.code == code
    assert reply.remark


async def test_a_first_send_creates_a_topic_from_its_template(harness: BrokerHarness) -> None:
    assert harness.send("fresh", defaultTopicQueueNums=3, queue=2).code == ResponseCode.SUCCESS
    topic = harness.broker.topics.get("fresh")
    assert topic is not None
    assert (topic.read, topic.write, topic.permission) == (3, 3, 6)
    harness.restart()
    assert harness.broker.topics.get("fresh") == topic


async def test_no_topic_is_created_if_creation_is_disabled() -> None:
    harness = BrokerHarness(BrokerSettings(auto_create_topics=False))
    assert harness.send("fresh").code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_batch_is_stored_completely_or_not_at_all(harness: BrokerHarness) -> None:
    harness.topic("t")
    entries = [BatchMessage(n, b"%d" % n, properties.encode({"KEYS": f"k{n}", "UNIQ_KEY": f"u{n}"})) for n in range(3)]
    fields = v2(send_fields("t", batch=True))
    reply = harness.get(RequestCode.SEND_BATCH_MESSAGE, fields, messages.encode_batch(entries))
    assert len(reply.fields["msgId"].split(",")) == 3
    stored = harness.stored("t")
    assert [(m.body, m.flag, m.get("KEYS")) for m in stored] == [(b"%d" % n, n, f"k{n}") for n in range(3)]
    harness.store.full = True
    refused = harness.ask(RequestCode.SEND_BATCH_MESSAGE, fields, messages.encode_batch(entries))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(harness.stored("t")) == 3
    harness.store.full = False
    retry = harness.ask(RequestCode.SEND_BATCH_MESSAGE, v2(send_fields("%RETRY%g", batch=True)), b"")
    assert retry.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "changes",
    [
        {"properties": properties.encode({"DELAY": "1"})},
        {"sysFlag": SysFlag.TRANSACTION_PREPARED},
        {"sysFlag": SysFlag.TRANSACTION_COMMIT},
    ],
)
async def test_a_batch_with_a_delay_or_of_a_transaction_is_rejected(
    harness: BrokerHarness, changes: dict[str, object]
) -> None:
    harness.topic("t")
    body = messages.encode_batch([BatchMessage(0, b"x", "")])
    reply = harness.ask(RequestCode.SEND_BATCH_MESSAGE, v2({**send_fields("t", batch=True), **changes}), body)
    assert (reply.code, bool(reply.remark)) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert harness.stored("t") == []


async def test_a_full_disk_rejects_sends_and_serves_reads(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"before")
    harness.store.full = True
    reply = harness.send("t", b"after")
    assert (reply.code, "room" in (reply.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    assert messages.decode_messages(harness.pull("t").body)[0].body == b"before"
    harness.store.full = False
    assert harness.send("t", b"after").code == ResponseCode.SUCCESS


async def test_a_send_is_answered_only_when_durable(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.store.hold = True
    fields = v2(send_fields("t"))
    first = harness.begin(RequestCode.SEND_MESSAGE_V2, fields, b"1")
    second = harness.begin(RequestCode.SEND_MESSAGE_V2, fields, b"2")
    assert not first.done()
    harness.store.sync()
    assert (await first).code == (await second).code == ResponseCode.SUCCESS
    third = harness.begin(RequestCode.SEND_MESSAGE_V2, fields, b"3")
    harness.store.sync(OSError("the disk is broken"))
    assert (await third).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_priority_selects_the_queue(harness: BrokerHarness) -> None:
    harness.topic("p", queues=4, attributes="+message.type=PRIORITY")
    for priority in ("0", "2", "9"):
        harness.send("p", priority.encode(), {properties.PRIORITY: priority})
    assert [harness.bodies("p", queue=queue) for queue in range(4)] == [[b"0"], [], [b"2"], [b"9"]]
    harness.broker.random.seed(1)
    assert [one.message.body for one in harness.pop("p")] == [b"9", b"2", b"0"]


async def test_a_retry_message_over_its_maximum_becomes_a_dead_letter(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]})
    assert harness.send("%RETRY%g", b"again", {"DELAY": "0"}, reconsumeTimes=16).code == ResponseCode.SUCCESS
    assert harness.send("%RETRY%g", b"dead", {"DELAY": "3"}, reconsumeTimes=17).code == ResponseCode.SUCCESS
    assert harness.bodies("%RETRY%g") == [b"again"]
    assert harness.bodies("%DLQ%g") == [b"dead"]


async def test_a_handle_that_a_producer_sets_is_removed(harness: BrokerHarness) -> None:
    harness.topic("t")
    pairs = {"POP_CK": "0 9000000000000 60000 0 0 broker-a 0 0", "KEYS": "k"}
    harness.send("t", b"one", pairs)
    body = messages.encode_batch([BatchMessage(0, b"batch", properties.encode(pairs))])
    harness.get(RequestCode.SEND_BATCH_MESSAGE, v2(send_fields("t", batch=True)), body)
    assert [(message.get("POP_CK"), message.get("KEYS")) for message in harness.stored("t")] == [(None, "k")] * 2
