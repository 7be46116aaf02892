import hashlib
import zlib
from dataclasses import replace

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway import message_decoding
from protos.apache.rocketmq.v2.definition_pb2 import (
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
)
from remoting import messages, properties
from remoting.compression import CompressionType
from remoting.messages import StoredMessage, SysFlag

STORED = StoredMessage(
    topic="orders",
    body=b"hello",
    properties="UNIQ_KEY\x0101AB\x02KEYS\x01k1 k2\x02TAGS\x01red\x02colour\x01blue\x02WAIT\x01true\x02",
    queue_id=3,
    queue_offset=42,
    commit_log_offset=4711,
    born_timestamp=1_700_000_000_123,
    born_host=("192.0.2.7", 50000),
    store_timestamp=1_700_000_001_456,
    store_host=("198.51.100.1", 10911),
)


def decode(stored: StoredMessage = STORED, extra: dict[str, str] | None = None) -> Message:
    text = stored.properties
    for name, value in (extra or {}).items():
        text = properties.append(text, name, value)
    return message_decoding.from_stored(replace(stored, properties=text), topic="orders", receipt_handle="handle")


def test_stored_message_is_converted() -> None:
    message = message_decoding.from_stored(STORED, topic="orders", receipt_handle="h", delivery_attempt=3)
    system = message.system_properties
    assert message.topic == Resource(name="orders")
    assert message.body == b"hello"
    assert dict(message.user_properties) == {"colour": "blue"}
    assert (system.tag, list(system.keys), system.message_id) == ("red", ["k1", "k2"], "01AB")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 42, 3)
    assert system.body_encoding == Encoding.IDENTITY
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert system.message_type == MessageType.NORMAL
    assert system.born_timestamp == Timestamp(seconds=1_700_000_000, nanos=123_000_000)
    assert system.store_timestamp == Timestamp(seconds=1_700_000_001, nanos=456_000_000)
    assert (system.born_host, system.store_host) == ("192.0.2.7", "198.51.100.1:10911")
    assert system.receipt_handle == "h"
    for field in ("delivery_timestamp", "message_group", "trace_context", "dead_letter_queue", "priority"):
        assert not system.HasField(field)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected", "kind"),
    [
        ("__SHARDINGKEY", "g1", "message_group", "g1", MessageType.FIFO),
        (
            "TIMER_DELIVER_MS",
            "1700000005000",
            "delivery_timestamp",
            Timestamp(seconds=1_700_000_005),
            MessageType.DELAY,
        ),
        ("_SYS_MSG_PRIORITY_", "5", "priority", 5, MessageType.PRIORITY),
        ("__LITE_TOPIC", "l1", "lite_topic", "l1", MessageType.LITE),
        ("TRACE_CONTEXT", "00-ab", "trace_context", "00-ab", MessageType.NORMAL),
        ("__BORNHOST", "producer.example", "born_host", "producer.example", MessageType.NORMAL),
        ("TRAN_MSG", "true", "tag", "red", MessageType.TRANSACTION),
        ("DELAY", "3", "tag", "red", MessageType.DELAY),
    ],
)
def test_stored_properties_become_system_properties(
    name: str, value: str, field: str, expected: object, kind: MessageType
) -> None:
    message = decode(extra={name: value})
    assert getattr(message.system_properties, field) == expected
    assert message.system_properties.message_type == kind
    # MessageConst.STRING_HASH_SET lacks these two, so that the official proxy delivers them as user properties too.
    shown = {name: value} if name in ("__SHARDINGKEY", "TRACE_CONTEXT") else {}
    assert dict(message.user_properties) == {"colour": "blue"} | shown


def test_properties_that_the_official_proxy_does_not_hide_are_user_properties() -> None:
    names = ("__transactionId__", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "REDIRECT")
    inner = ("INNER_MULTI_DISPATCH", "INNER_NUM", "INNER_BASE")
    shown = dict.fromkeys(names + inner, "1")
    message = decode(extra={**shown, "PGROUP": "p", "INNER_MULTI_QUEUE_OFFSET": "1", "__CRC32#": "1"})
    assert dict(message.user_properties) == {"colour": "blue"} | shown


@pytest.mark.parametrize("delay", [{"TIMER_DELAY_SEC": "5"}, {"TIMER_DELAY_MS": "5000"}])
def test_message_delayed_by_a_duration_has_the_delivery_timestamp_of_its_broker(delay: dict[str, str]) -> None:
    message = decode(extra={**delay, "TIMER_OUT_MS": "1700000005000"})
    assert message.system_properties.delivery_timestamp == Timestamp(seconds=1_700_000_005)
    assert message.system_properties.message_type == MessageType.DELAY
    named = decode(extra={"TIMER_DELIVER_MS": "1700000006000", "TIMER_OUT_MS": "1700000005000"})
    assert named.system_properties.delivery_timestamp == Timestamp(seconds=1_700_000_006)


@pytest.mark.parametrize("named", ["", " "])
def test_born_host_is_the_address_of_the_producer_if_it_names_none(named: str) -> None:
    assert decode(extra={"__BORNHOST": named}).system_properties.born_host == "192.0.2.7"
    message = message_decoding.from_stored(replace(STORED, born_host=("2001:db8::7", 50000)), topic="orders")
    assert message.system_properties.born_host == "2001:db8::7"


@pytest.mark.parametrize(
    ("stored", "keys"),
    [
        ("k1", ["k1"]),
        ("k1 k2", ["k1", "k2"]),
        ("k1\u3000k2\u00a0k3", ["k1\u3000k2\u00a0k3"]),
        (" k1  k2 ", ["", "k1", "", "k2"]),
        ("  ", []),
    ],
)
def test_keys_are_split_at_spaces_only(stored: str, keys: list[str]) -> None:
    message = message_decoding.from_stored(replace(STORED, properties=f"KEYS\x01{stored}\x02"), topic="orders")
    assert list(message.system_properties.keys) == keys


def test_dead_letter_has_its_original_topic_and_message_id() -> None:
    dead_letter_queue = decode(
        extra={"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "01CD"}
    ).system_properties.dead_letter_queue
    assert (dead_letter_queue.topic, dead_letter_queue.message_id) == ("orders", "01CD")


def test_message_without_an_id_of_its_producer_has_the_id_of_the_broker() -> None:
    message = message_decoding.from_stored(replace(STORED, properties=""), topic="orders")
    assert message.system_properties.message_id == "C633640100002A9F0000000000001267"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_body_of_every_codec_is_decompressed(kind: CompressionType) -> None:
    packed, flag = messages.compress(b"hello" * 100, kind)
    message = decode(replace(STORED, body=packed, sys_flag=flag))
    assert message.body == b"hello" * 100
    assert message.system_properties.body_encoding == Encoding.IDENTITY
    assert message.system_properties.body_digest.checksum == hashlib.md5(b"hello" * 100).hexdigest().upper()


def test_zlib_body_without_a_codec_flag_is_decompressed() -> None:
    assert decode(replace(STORED, body=zlib.compress(b"old"), sys_flag=int(SysFlag.COMPRESSED))).body == b"old"


def test_body_that_cannot_be_decompressed_is_delivered_as_stored() -> None:
    assert decode(replace(STORED, body=b"\x00broken", sys_flag=int(SysFlag.COMPRESSED))).body == b"\x00broken"


def test_body_that_decompresses_beyond_the_limit_is_delivered_as_stored() -> None:
    packed = zlib.compress(bytes(2**24 + 1))
    assert decode(replace(STORED, body=packed, sys_flag=int(SysFlag.COMPRESSED))).body == packed


@pytest.mark.parametrize("value", ["99999999999", "9" * 30, "9" * 5000, "-1", "\u0663\u00b2", "x", ""])
@pytest.mark.parametrize("name", ["_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS"])
def test_property_with_an_invalid_number_is_left_out(name: str, value: str) -> None:
    system = decode(extra={name: value}).system_properties
    assert not system.HasField("priority")
    # The latest Timestamp.
    assert system.delivery_timestamp.seconds <= 253_402_300_799


def test_values_out_of_range_are_limited() -> None:
    out_of_range = replace(STORED, born_timestamp=-1, store_timestamp=2**63 - 1)
    system = message_decoding.from_stored(out_of_range, topic="orders", delivery_attempt=2**31).system_properties
    assert system.born_timestamp.seconds == 0
    assert system.store_timestamp.ToJsonString() == "9999-12-31T23:59:59.999Z"
    assert system.delivery_attempt == 2**31 - 1
