import gzip
import hashlib
import zlib
from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway import message_decoding, message_encoding
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Code,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from remoting import messages, properties
from remoting.compression import CompressionType
from remoting.messages import StoredMessage, SysFlag

OPTIONS = GatewayOptions()
NOW = 1_700_000_000.0
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


def of(stored: StoredMessage = STORED, more: dict[str, str] | None = None) -> Message:
    text = stored.properties
    for name, value in (more or {}).items():
        text = properties.append(text, name, value)
    return message_decoding.from_stored(replace(stored, properties=text), topic="orders", receipt_handle="handle")


def test_what_is_stored_is_shown() -> None:
    shown = message_decoding.from_stored(
        STORED, topic="orders", receipt_handle="h", delivery_attempt=3, invisible_time=30_500
    )
    system = shown.system_properties
    assert shown.topic == Resource(name="orders")
    assert shown.body == b"hello"
    assert dict(shown.user_properties) == {"colour": "blue"}
    assert (system.tag, list(system.keys), system.message_id) == ("red", ["k1", "k2"], "01AB")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 42, 3)
    assert system.body_encoding == Encoding.IDENTITY
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert system.message_type == MessageType.NORMAL
    assert system.born_timestamp == Timestamp(seconds=1_700_000_000, nanos=123_000_000)
    assert system.store_timestamp == Timestamp(seconds=1_700_000_001, nanos=456_000_000)
    assert (system.born_host, system.store_host) == ("192.0.2.7:50000", "198.51.100.1:10911")
    assert system.invisible_duration == Duration(seconds=30, nanos=500_000_000)
    assert system.receipt_handle == "h"
    for absent in ("delivery_timestamp", "message_group", "trace_context", "dead_letter_queue", "priority"):
        assert not system.HasField(absent)


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
def test_properties_with_a_field_of_their_own(
    name: str, value: str, field: str, expected: object, kind: MessageType
) -> None:
    shown = of(more={name: value})
    assert getattr(shown.system_properties, field) == expected
    assert shown.system_properties.message_type == kind
    assert dict(shown.user_properties) == {"colour": "blue"}


def test_a_dead_letter_says_where_it_comes_from() -> None:
    letter = of(
        more={"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "01CD"}
    ).system_properties.dead_letter_queue
    assert (letter.topic, letter.message_id) == ("orders", "01CD")


def test_a_message_without_its_producers_id_has_the_brokers() -> None:
    shown = message_decoding.from_stored(replace(STORED, properties=""), topic="orders")
    assert shown.system_properties.message_id == "C633640100002A9F0000000000001267"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_codec_is_unpacked(kind: CompressionType) -> None:
    packed, flag = messages.compress(b"hello" * 100, kind)
    shown = of(replace(STORED, body=packed, sys_flag=flag))
    assert shown.body == b"hello" * 100
    assert shown.system_properties.body_encoding == Encoding.IDENTITY
    assert shown.system_properties.body_digest.checksum == hashlib.md5(b"hello" * 100).hexdigest().upper()


def test_zlib_of_old_clients_is_unpacked() -> None:
    assert of(replace(STORED, body=zlib.compress(b"old"), sys_flag=int(SysFlag.COMPRESSED))).body == b"old"


def test_a_body_that_cannot_be_unpacked_is_handed_on() -> None:
    assert of(replace(STORED, body=b"\x00broken", sys_flag=int(SysFlag.COMPRESSED))).body == b"\x00broken"


def test_a_body_that_unpacks_to_what_nobody_could_send_is_handed_on() -> None:
    packed = zlib.compress(bytes(2**24 + 1))
    assert of(replace(STORED, body=packed, sys_flag=int(SysFlag.COMPRESSED))).body == packed


# Sending.


def sent(system: SystemProperties | None = None, body: bytes = b"hello", own: dict[str, str] | None = None) -> Message:
    system = SystemProperties() if system is None else system
    system.message_id = system.message_id or "01AB"
    return Message(topic=Resource(name="orders"), system_properties=system, user_properties=own, body=body)


def stored(given: Message) -> dict[str, str]:
    return properties.decode(
        message_encoding.encode_properties(given, message_encoding.message_type(given), NOW, OPTIONS)
    )


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (SystemProperties(), {}),
        (SystemProperties(tag="red", keys=["k1", "k2"]), {"TAGS": "red", "KEYS": "k1 k2"}),
        (SystemProperties(message_group="g1"), {"__SHARDINGKEY": "g1"}),
        (
            SystemProperties(message_type=MessageType.TRANSACTION),
            {"TRAN_MSG": "true", "PGROUP": "orders"},
        ),
        (
            SystemProperties(
                message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=15)
            ),
            {"TRAN_MSG": "true", "PGROUP": "orders", "CHECK_IMMUNITY_TIME_IN_SECONDS": "15"},
        ),
        (
            SystemProperties(delivery_timestamp=Timestamp(seconds=1_700_000_100, nanos=7_000_000)),
            {"TIMER_DELIVER_MS": "1700000100007"},
        ),
        (SystemProperties(priority=0), {"_SYS_MSG_PRIORITY_": "0"}),
        (SystemProperties(lite_topic="l1"), {"__LITE_TOPIC": "l1"}),
        (SystemProperties(trace_context="00-ab", born_host="h"), {"TRACE_CONTEXT": "00-ab", "__BORNHOST": "h"}),
    ],
)
def test_what_is_sent_is_stored(system: SystemProperties, expected: dict[str, str]) -> None:
    assert stored(sent(system, own={"colour": "blue", "empty": ""})) == {
        "UNIQ_KEY": "01AB",
        "colour": "blue",
        **expected,
    }


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (sent(SystemProperties(tag="a|b")), Code.ILLEGAL_MESSAGE_TAG),
        (sent(SystemProperties(tag=" ")), Code.ILLEGAL_MESSAGE_TAG),
        (sent(SystemProperties(keys=["a\x02b"])), Code.ILLEGAL_MESSAGE_KEY),
        (sent(SystemProperties(message_group="x" * 64)), Code.ILLEGAL_MESSAGE_GROUP),
        (sent(SystemProperties(message_group="\x01")), Code.ILLEGAL_MESSAGE_GROUP),
        (sent(SystemProperties(message_id=" ")), Code.ILLEGAL_MESSAGE_ID),
        (sent(SystemProperties(message_id="a\x01b")), Code.ILLEGAL_MESSAGE_ID),
        (sent(SystemProperties(trace_context="a\x02TRAN_MSG\x01true")), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(SystemProperties(born_host="a\x02")), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(own={"TRAN_MSG": "true"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(own={"__SHARDINGKEY": "g"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(own={"": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(own={"a": "x\x02TRAN_MSG\x01true"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (sent(own={f"n{number}": "x" for number in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (sent(own={"a": "é" * 8192}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (sent(SystemProperties(priority=-1)), Code.BAD_REQUEST),
        (sent(SystemProperties(lite_topic="a b")), Code.ILLEGAL_LITE_TOPIC),
        (sent(SystemProperties(delivery_timestamp=Timestamp(seconds=1_700_090_000))), Code.ILLEGAL_DELIVERY_TIME),
        (
            sent(
                SystemProperties(
                    message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3601)
                )
            ),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_what_cannot_be_stored_is_refused(given: Message, code: int) -> None:
    with pytest.raises(Refused) as refused:
        stored(given)
    assert refused.value.code == code


@given(st.text(), st.text(), st.text(), st.text())
def test_no_text_smuggles_a_property_in(tag: str, key: str, name: str, value: str) -> None:
    given = sent(SystemProperties(tag=tag, keys=[key]), own={name: value})
    try:
        found = stored(given)
    except Refused:
        return
    assert found.keys() <= {"UNIQ_KEY", "TAGS", "KEYS", name}
    assert found.get(name, "") == value


def test_bodies() -> None:
    assert message_encoding.encode_body(sent(), OPTIONS) == (b"hello", 0)
    packed, flag = message_encoding.encode_body(
        sent(SystemProperties(body_encoding=Encoding.GZIP), gzip.compress(b"hello")), OPTIONS
    )
    assert zlib.decompress(packed) == b"hello"
    assert flag == SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    most = sent(SystemProperties(body_encoding=Encoding.GZIP), gzip.compress(bytes(4 * 2**20)))
    assert zlib.decompress(message_encoding.encode_body(most, OPTIONS)[0]) == bytes(4 * 2**20)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (sent(body=b""), Code.MESSAGE_BODY_EMPTY),
        (sent(body=b"x" * (4 * 2**20 + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (sent(SystemProperties(body_encoding=Encoding.GZIP), b"not gzip"), Code.MESSAGE_CORRUPTED),
        (sent(SystemProperties(body_encoding=Encoding.GZIP), gzip.compress(b"hello")[:-9]), Code.MESSAGE_CORRUPTED),
        (sent(SystemProperties(body_encoding=Encoding.GZIP), gzip.compress(bytes(2**27))), Code.MESSAGE_BODY_TOO_LARGE),
        (
            sent(SystemProperties(body_encoding=Encoding.GZIP), gzip.compress(bytes(4 * 2**20 + 1))),
            Code.MESSAGE_BODY_TOO_LARGE,
        ),
    ],
)
def test_bodies_that_are_refused(given: Message, code: int) -> None:
    with pytest.raises(Refused) as refused:
        message_encoding.encode_body(given, OPTIONS)
    assert refused.value.code == code


@pytest.mark.parametrize("value", ["99999999999", "9" * 30, "9" * 5000, "-1", "\u0663\u00b2", "x", ""])
@pytest.mark.parametrize("name", ["_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS"])
def test_a_number_that_cannot_be_is_not_shown(name: str, value: str) -> None:
    system = of(more={name: value}).system_properties
    assert not system.HasField("priority")
    # The last moment that there is.
    assert system.delivery_timestamp.seconds <= 253_402_300_799


def test_what_a_broker_says_is_shown_as_near_as_can_be() -> None:
    odd = replace(STORED, born_timestamp=-1, store_timestamp=2**63 - 1)
    system = message_decoding.from_stored(odd, topic="orders", delivery_attempt=2**31).system_properties
    assert system.born_timestamp.seconds == 0
    assert system.store_timestamp.ToJsonString() == "9999-12-31T23:59:59.999Z"
    assert system.delivery_attempt == 2**31 - 1
