"""Targets in the contents of requests: JSON bodies, message records, identifiers, filters."""

import base64
import math
import zlib
from typing import Any

import orjson

from grpc_gateway.consuming.receipt_handle import ReceiptHandle, make_handle
from grpc_gateway.response_status import Refused
from grpc_gateway.transaction_id import TransactionId
from proxy.core import heartbeat
from proxy.core.client_registry import Groups
from proxy.embedded.broker.filters import SqlFilter
from remoting import compression, fastjson, messages, pop_offset_info, properties
from remoting.batch_ack import BatchAckBody
from remoting.compression import CompressionType
from remoting.errors import BodyError
from remoting.fastjson import DialectRate, ObjectKeys
from remoting.ids import OffsetMessageId, RecallHandle
from remoting.messages import BatchMessage, StoredMessage, SysFlag
from remoting.pop import ExtraInfo
from tests.cluster.client import heartbeat as heartbeat_body
from tests.fuzz.target import Target

_MAX_DECOMPRESSED = 1 << 16
# The rate of the dialect depends on the time, not on the input.
fastjson._dialect_rate = DialectRate(math.inf, math.inf)


# JSON.


def _test_json(data: bytes) -> None:
    """A document is encoded to one that is parsed to the same value."""
    try:
        value = fastjson.load_request(data)
    except BodyError:
        return
    encoded = fastjson.dumps(value)
    assert len(encoded) <= 16 * len(data) + (1 << 20)
    if _is_exact(value):
        again = fastjson.load_object(encoded)
        assert again == value, f"{encoded!r} is {again}, not {value}"


def _is_exact(value: Any) -> bool:
    """Return whether a value has neither NaN nor infinity, which JSON does not have, nor maps with special keys."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return "$ref" not in value and all(map(_is_exact, value.values()))
    if isinstance(value, list):
        return all(map(_is_exact, value))
    return not isinstance(value, ObjectKeys)


def _test_heartbeat(data: bytes) -> None:
    """A heartbeat without some of its groups is one with the others."""
    try:
        parsed = heartbeat.parse(data)
    except BodyError:
        return
    left = Groups(frozenset(sorted(parsed.producers)[:1]), frozenset(sorted(parsed.consumers)[:1]))
    rest = heartbeat.parse(heartbeat.without(data, left))
    assert rest.client_id == parsed.client_id
    assert rest.producers == parsed.producers - left.producers
    assert set(rest.consumers) == set(parsed.consumers) - left.consumers


def _test_batch_ack(data: bytes) -> None:
    try:
        body = BatchAckBody.decode(data)
    except BodyError:
        return
    if all(-(2**63) <= number < 2**63 for ack in body.acks for number in (ack.start_offset, ack.pop_time)):
        assert BatchAckBody.decode(body.encode()) == body
    for ack in body.acks:
        assert sum(1 for _ in ack.queue_offsets()) == ack.bits.bit_count()


# Messages.


def _test_messages(data: bytes) -> None:
    """Records of messages are encoded to records that are equal; inner batches and compressed bodies are bounded."""
    try:
        records = messages.decode_messages(data)
    except BodyError:
        return
    for record in records:
        try:
            size = len(messages.body(record, _MAX_DECOMPRESSED))
            assert size <= max(_MAX_DECOMPRESSED, len(record.body))
            assert sum(1 for _ in messages.iterate_messages(record, _MAX_DECOMPRESSED)) <= 1 + _MAX_DECOMPRESSED
        except BodyError:
            pass
        try:
            encoded = messages.encode_message(record)
        except BodyError:
            continue
        again = messages.decode_message(encoded)
        assert messages.encode_message(again) == encoded
        assert (again.topic, again.body, again.properties) == (record.topic, record.body, record.properties)


def _test_batch(data: bytes) -> None:
    try:
        entries = messages.decode_batch(data)
    except BodyError:
        return
    try:
        encoded = messages.encode_batch(entries)
    except BodyError:
        return
    assert messages.decode_batch(encoded) == entries


def _test_compression(data: bytes) -> None:
    """Decompression ends at its limit. The first byte selects the codec."""
    if not data:
        return
    kind = list(CompressionType)[data[0] % len(CompressionType)]
    try:
        result = compression.decompress(data[1:], kind, _MAX_DECOMPRESSED)
    except BodyError:
        return
    assert len(result) <= _MAX_DECOMPRESSED
    assert compression.decompress(compression.compress(result, kind), kind, _MAX_DECOMPRESSED) == result


def _test_properties(data: bytes) -> None:
    text = data.decode(errors="replace")
    pairs = properties.decode(text)
    assert properties.decode(properties.encode(pairs)) == pairs
    for key, value in pairs.items():
        assert properties.get(text, key) == value
    appended = properties.decode(properties.append(text, "added", "value"))
    assert appended == pairs | {"added": "value"}
    properties.message_type(text)


# Identifiers.


def _test_receipt_handle(data: bytes) -> None:
    text = data.decode(errors="replace")
    try:
        handle = ReceiptHandle.parse(text)
    except Refused:
        pass
    else:
        assert handle.text == text
        made = make_handle(
            handle.start_offset,
            handle.pop_time,
            handle.invisible_time,
            handle.revive_queue_id,
            handle.retry,
            handle.broker_name,
            handle.queue_id,
            handle.queue_offset,
            handle.commit_log_offset,
            handle.renewal_id,
        )
        assert ReceiptHandle.parse(made.text).info == handle.info
        assert ExtraInfo.parse(text) == handle.info
    try:
        info = ExtraInfo.parse(text)
    except BodyError:
        return
    assert ExtraInfo.parse(str(info)) == info


def _test_identifiers(data: bytes) -> None:
    text = data.decode(errors="replace")
    try:
        transaction = TransactionId.parse(text)
        assert TransactionId.parse(str(transaction)) == transaction
    except Refused:
        pass
    for kind in (RecallHandle, OffsetMessageId):
        try:
            identifier = kind.parse(text)
        except BodyError:
            continue
        assert kind.parse(str(identifier)) == identifier


def _test_pop_offsets(data: bytes) -> None:
    text = data.decode(errors="replace")
    for parse, write in (
        (pop_offset_info.parse_start_offset_info, pop_offset_info.format_start_offset_info),
        (pop_offset_info.parse_msg_offset_info, pop_offset_info.format_msg_offset_info),
        (pop_offset_info.parse_order_count_info, pop_offset_info.format_order_count_info),
    ):
        try:
            value: Any = parse(text)
        except BodyError:
            continue
        assert parse(write(value)) == value


# Filters.

_MESSAGES: tuple[dict[str, str], ...] = (
    {},
    {"a": "1", "b": "x", "c": "true"},
    {"a": "", "b": "9" * 400, "c": "-1e9"},
    {"a": "NaN", "TAGS": "t"},
)


def _test_filter(data: bytes) -> None:
    """An expression is rejected, or tests every message."""
    try:
        message_filter = SqlFilter(data.decode(errors="replace"))
    except BodyError:
        return
    for pairs in _MESSAGES:
        assert type(message_filter.matches(pairs)) is bool


def _base64(text: str) -> bytes:
    return base64.urlsafe_b64encode(text.encode())


_SQL_WORDS = b"AND OR NOT IN BETWEEN IS NULL CONTAINS STARTSWITH ENDSWITH TRUE FALSE = <> <= >= ( ) , - + 1L 'x' a"
_JSON_TOKENS = (b"{", b"}", b"[", b"]", b'{"$ref":"$.a[0]"}', b'"', b"'", b"\\u0041", b"1e9", b"-0.0", b"null", b"NaN")
_RECORD = messages.encode_message(StoredMessage(topic="t", body=b"body", properties="KEYS\x01k\x02"))
_BATCH = messages.encode_batch([BatchMessage(0, b"one", "TAGS\x01t\x02"), BatchMessage(1, b"", "")])
_PACKED = zlib.compress(_BATCH)
_INNER = messages.encode_message(
    StoredMessage(
        topic="t",
        body=_PACKED,
        sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
    )
)
_HANDLE = "3 1700000000000 60000 2 0 broker-a 1 5"

TARGETS = (
    Target(
        "json",
        _test_json,
        (
            b'{"a":[1,2.5,"x",null,true],"b":{"$ref":"$.a"}}',
            b'{a:1,\'b\':[1,],{"topic":"t","queueId":0}:{"offset":5},3:4}',
            orjson.dumps({"clientId": "c", "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 0}]}),
        ),
        _JSON_TOKENS,
    ),
    Target(
        "heartbeats",
        _test_heartbeat,
        (
            heartbeat_body("client", {"group": ["t1", "t2"]}, ["producer"]),
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]},'
            b'{"groupName":"h","subscriptionDataSet":{"$ref":"$.consumerDataSet[0].subscriptionDataSet"}}]}',
        ),
        (b'"clientID":', b'"producerDataSet":', b'"consumerDataSet":', b'"groupName":', *_JSON_TOKENS),
    ),
    Target(
        "batch-acks",
        _test_batch_ack,
        (b'{"brokerName":"b","acks":[{"c":"g","t":"t","r":"0","so":5,"q":1,"rq":2,"pt":3,"it":4,"b":"Bw=="}]}',),
        (b'"acks":', b'"startOffset":', b'"bitSet":', *_JSON_TOKENS),
    ),
    Target("messages", _test_messages, (_RECORD, _RECORD + _INNER)),
    Target("batches", _test_batch, (_BATCH,)),
    Target(
        "compression",
        _test_compression,
        tuple(
            bytes((number,)) + compression.compress(b"some text, some text", kind)
            for number, kind in enumerate(CompressionType)
        ),
    ),
    Target("properties", _test_properties, (b"KEYS\x01a b\x02TAGS\x01t\x02", b"a\x01b\x01c\x02\x02\x01x\x02a\x01d")),
    Target(
        "receipt-handles",
        _test_receipt_handle,
        (_HANDLE.encode(), f"{_HANDLE} 77 replica-1".encode(), b"3 x -1 999 2 b"),
    ),
    Target(
        "identifiers",
        _test_identifiers,
        (
            _base64("t1 broker-a 5 77 7F000001"),
            _base64("v1 topic broker-a 1700000000000 7F000001"),
            b"7F00000100002A9F0000000000000123",
        ),
    ),
    Target(
        "pop-offsets",
        _test_pop_offsets,
        (b"0 1 5;1 0 7", b"0 0 1,2,3;2 1 4", b"0 0 1;0 qo0%5 2"),
    ),
    Target(
        "sql-filters",
        _test_filter,
        (
            b"a > 1 AND (b = 'x' OR NOT c) OR a BETWEEN 1 AND 2",
            b"b IN ('x', 'y') AND a IS NOT NULL AND b NOT CONTAINS 'z'",
            b"-a <> 1.5e3 AND c = TRUE -- comment",
        ),
        tuple(b" %s " % word for word in _SQL_WORDS.split()),
    ),
)
