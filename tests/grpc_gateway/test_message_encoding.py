import gzip
import zlib
from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway import message_encoding
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from grpc_gateway.sent_message import SentMessage, sent_message
from protos.apache.rocketmq.v2.definition_pb2 import (
    Code,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from remoting import properties
from remoting.messages import SysFlag

OPTIONS = GatewayOptions()
NOW = 1_700_000_000.0
BEYOND_MAX_DELAY = Timestamp(seconds=1_700_090_000)


def make_message(
    system: SystemProperties | None = None, body: bytes = b"hello", user: dict[str, str] | None = None
) -> SentMessage:
    system = SystemProperties() if system is None else system
    system.message_id = system.message_id or "01AB"
    return sent_message(
        Message(topic=Resource(name="orders"), system_properties=system, user_properties=user, body=body)
    )


def gzip_message(body: bytes) -> SentMessage:
    return make_message(SystemProperties(body_encoding=Encoding.GZIP), body)


def encoded_properties(message: SentMessage) -> dict[str, str]:
    return properties.decode(
        message_encoding.encode_properties(message, message_encoding.message_type(message), NOW, OPTIONS)
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
def test_system_properties_are_encoded_as_stored_properties(system: SystemProperties, expected: dict[str, str]) -> None:
    assert encoded_properties(make_message(system, user={"colour": "blue", "empty": ""})) == {
        "UNIQ_KEY": "01AB",
        "colour": "blue",
        **expected,
    }


@pytest.mark.parametrize(("own", "stored"), [("", "00-copied"), ("00-own", "00-own")])
def test_copied_properties_of_a_received_message_are_accepted(own: str, stored: str) -> None:
    copied = {"TRACE_CONTEXT": "00-copied", "__transactionId__": "A1"}
    message = make_message(SystemProperties(trace_context=own), user=copied)
    assert encoded_properties(message) == {"UNIQ_KEY": "01AB", **copied, "TRACE_CONTEXT": stored}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (make_message(SystemProperties(tag="a|b")), Code.ILLEGAL_MESSAGE_TAG),
        (make_message(SystemProperties(tag=" ")), Code.ILLEGAL_MESSAGE_TAG),
        (make_message(SystemProperties(keys=["a\x02b"])), Code.ILLEGAL_MESSAGE_KEY),
        (make_message(SystemProperties(message_group="x" * 64)), Code.ILLEGAL_MESSAGE_GROUP),
        (make_message(SystemProperties(message_group="\x01")), Code.ILLEGAL_MESSAGE_GROUP),
        (make_message(SystemProperties(message_id=" ")), Code.ILLEGAL_MESSAGE_ID),
        (make_message(SystemProperties(message_id="a\x01b")), Code.ILLEGAL_MESSAGE_ID),
        (make_message(SystemProperties(trace_context="a\x02TRAN_MSG\x01true")), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(SystemProperties(born_host="a\x02")), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(user={"TRAN_MSG": "true"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(user={"__SHARDINGKEY": "g"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(user={"": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(user={"a": "x\x02TRAN_MSG\x01true"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (make_message(user={f"n{number}": "x" for number in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (make_message(user={"a": "é" * 8192}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (make_message(SystemProperties(priority=-1)), Code.BAD_REQUEST),
        (make_message(SystemProperties(lite_topic="a b")), Code.ILLEGAL_LITE_TOPIC),
        (
            make_message(SystemProperties(delivery_timestamp=BEYOND_MAX_DELAY)),
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        (
            make_message(
                SystemProperties(
                    message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3601)
                )
            ),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_invalid_message_is_rejected(message: SentMessage, code: int) -> None:
    with pytest.raises(Refused) as refused:
        encoded_properties(message)
    assert refused.value.code == code


@given(st.text(), st.text(), st.text(), st.text())
def test_no_text_adds_another_property(tag: str, key: str, name: str, value: str) -> None:
    message = make_message(SystemProperties(tag=tag, keys=[key]), user={name: value})
    try:
        encoded = encoded_properties(message)
    except Refused:
        return
    assert encoded.keys() <= {"UNIQ_KEY", "TAGS", "KEYS", name}
    assert encoded.get(name, "") == value


def test_gzip_body_is_converted_to_zlib() -> None:
    assert message_encoding.encode_body(make_message(), OPTIONS) == (b"hello", 0)
    packed, flag = message_encoding.encode_body(gzip_message(gzip.compress(b"hello")), OPTIONS)
    assert zlib.decompress(packed) == b"hello"
    assert flag == SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    largest = gzip_message(gzip.compress(bytes(4 * 2**20)))
    assert zlib.decompress(message_encoding.encode_body(largest, OPTIONS)[0]) == bytes(4 * 2**20)


@given(
    st.binary(max_size=300) | st.integers(1, 100_000).map(bytes),
    st.integers(0, 9),
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=70),
    st.booleans(),
)
def test_gzip_headers_of_every_kind_are_left_out(
    plain: bytes, level: int, extra: bytes | None, name: bytes | None, comment: bytes | None, checked: bool
) -> None:
    """RFC 1952: an extra field, a name, a comment and a checksum of the header are optional."""
    flags = 2 * checked + 4 * (extra is not None) + 8 * (name is not None) + 16 * (comment is not None)
    head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6)
    if extra is not None:
        head += len(extra).to_bytes(2, "little") + extra
    head += b"".join(text.replace(b"\0", b"") + b"\0" for text in (name, comment) if text is not None)
    if checked:
        head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    packed = head + gzip.compress(plain, level, mtime=0)[10:]
    stored, flag = message_encoding.encode_body(gzip_message(packed + b"another member"), OPTIONS)
    assert zlib.decompress(stored) == plain
    assert flag == SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    assert len(stored) <= len(packed), "it is not compressed again"


def test_zlib_body_that_is_declared_as_gzip_is_stored_compressed() -> None:
    packed, flag = message_encoding.encode_body(gzip_message(zlib.compress(b"hello" * 100, 1)), OPTIONS)
    assert zlib.decompress(packed) == b"hello" * 100
    assert flag == SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(b"hello", mtime=0)[:-9], zlib.compress(b"hello")[:-5]])
def test_body_that_is_neither_gzip_nor_zlib_is_stored_as_it_is(body: bytes) -> None:
    assert message_encoding.encode_body(gzip_message(body), OPTIONS) == (body, 0)


def test_size_of_properties_counts_names_and_values_only() -> None:
    for size in (16 * 1024 - 112, 16 * 1024 - 111):
        system = SystemProperties(tag="t" * 100, keys=["k" * (size // 2), "k" * (size - size // 2)])
        encoded_properties(make_message(system, user={"k": "v" * 10}))
    system.keys.append("k")
    with pytest.raises(Refused, match="the total size of user property is too large, max is 16384"):
        encoded_properties(make_message(system, user={"k": "v" * 10}))


# Functions, since processes that only collect tests would compress the large bodies too.
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: make_message(body=b""), Code.MESSAGE_BODY_EMPTY),
        (lambda: make_message(body=b"x" * (4 * 2**20 + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (lambda: gzip_message(gzip.compress(bytes(2**27))), Code.MESSAGE_BODY_TOO_LARGE),
        (lambda: gzip_message(gzip.compress(bytes(4 * 2**20 + 1))), Code.MESSAGE_BODY_TOO_LARGE),
        (lambda: gzip_message(zlib.compress(bytes(2**27))), Code.MESSAGE_BODY_TOO_LARGE),
    ],
)
def test_invalid_body_is_rejected(make: Callable[[], SentMessage], code: int) -> None:
    message = make()
    with pytest.raises(Refused) as refused:
        message_encoding.encode_body(message, OPTIONS)
    assert refused.value.code == code
