import zlib
from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import compression, messages
from remoting.compression import CompressionType
from remoting.errors import BodyError
from remoting.messages import BatchMessage, StoredMessage, SysFlag
from tests.remoting import golden

TEXT = "hello 你好".encode()
MESSAGE = StoredMessage(
    topic="TopicTest",
    body=TEXT,
    properties="TAGS\x01TagA\x02",
    queue_id=3,
    flag=-7,
    queue_offset=42,
    commit_log_offset=0x123456789A,
    born_timestamp=1700000000123,
    born_host=("10.0.0.7", 51234),
    store_timestamp=1700000000456,
    store_host=("192.168.1.9", 10911),
    reconsume_times=2,
    prepared_transaction_offset=77,
    body_crc=zlib.crc32(TEXT) & 0x7FFFFFFF,
)
V6 = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
MESSAGE_V6 = replace(MESSAGE, born_host=("2001:db8::7", 51234), store_host=("fe80::1", 10911), sys_flag=int(V6))

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.text(st.characters(codec="utf-8"), max_size=40)
PORTS = st.integers(0, 0xFFFF)
HOSTS = st.tuples(st.ip_addresses(v=4).map(str), PORTS)
STORED = st.builds(
    StoredMessage,
    topic=PLAIN | st.just("t" * 128) | st.just("t" * 300),
    body=st.binary(max_size=100),
    properties=PLAIN,
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    commit_log_offset=INT64,
    sys_flag=INT32.map(lambda flag: flag & ~int(V6)),
    born_timestamp=INT64,
    born_host=HOSTS,
    store_timestamp=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
    body_crc=INT32,
)


@pytest.mark.parametrize(("raw", "message"), [(golden.STORED_V4, MESSAGE), (golden.STORED_V6, MESSAGE_V6)])
def test_records_match_java(raw: bytes, message: StoredMessage) -> None:
    assert messages.decode_messages(raw) == [message]
    assert messages.encode_message(message) == raw
    assert messages.crc(message.body) == message.body_crc


def test_a_long_topic_needs_version_2() -> None:
    [message] = messages.decode_messages(golden.STORED_LONG_TOPIC)
    assert message.topic == "T" * 130
    assert message.body == b"hello"
    assert message.get("TAGS") == "TagA"
    assert messages.encode_message(message) == golden.STORED_LONG_TOPIC


@pytest.mark.parametrize(("length", "magic"), [(127, messages.MAGIC_V1), (128, messages.MAGIC_V2)])
def test_topics_over_127_bytes_need_version_2(length: int, magic: int) -> None:
    assert messages.encode_message(StoredMessage(topic="t" * length))[4:8] == magic.to_bytes(4, "big")


@pytest.mark.parametrize("mixed", [{"born_host": ("::1", 1)}, {"store_host": ("::ffff:1.2.3.4", 2)}])
def test_hosts_may_have_different_families(mixed: dict[str, tuple[str, int]]) -> None:
    [message] = messages.decode_messages(messages.encode_message(replace(MESSAGE, **mixed)))  # type: ignore[arg-type]
    assert replace(message, sys_flag=0) == replace(MESSAGE, **mixed)  # type: ignore[arg-type]


@given(st.lists(STORED, max_size=4))
def test_encode_then_decode_returns_the_same_messages(stored: list[StoredMessage]) -> None:
    records = list(map(messages.encode_message, stored))
    assert messages.decode_messages(b"".join(records)) == stored
    assert list(map(messages.encoded_size, stored)) == list(map(len, records))


@given(STORED)
def test_the_ipv6_flags_follow_the_hosts(message: StoredMessage) -> None:
    wrong = replace(message, sys_flag=message.sys_flag | int(V6))
    assert messages.decode_messages(messages.encode_message(wrong)) == [message]


def test_decode_messages_of_no_bytes_is_empty() -> None:
    assert messages.decode_messages(b"") == []


def test_decode_message_requires_exactly_one_record() -> None:
    assert messages.decode_message(golden.STORED_V4) == MESSAGE
    for raw in (b"", golden.STORED_V4 * 2):
        with pytest.raises(BodyError):
            messages.decode_message(raw)


def test_properties_with_a_length_below_0_are_empty_as_in_java() -> None:
    """Brokers store such a record from a batch; the messages beside it are readable."""
    record = bytearray(messages.encode_message(replace(MESSAGE, properties="")))
    record[-2:] = (0xFFFE).to_bytes(2, "big")
    first, second = messages.decode_messages(bytes(record) + golden.STORED_V4)
    assert (first, second) == (replace(MESSAGE, properties=""), MESSAGE)
    assert messages.decode_message(bytes(record)) == first


@pytest.mark.parametrize("raw", [golden.STORED_V4, golden.STORED_V6, golden.STORED_LONG_TOPIC])
def test_a_truncated_record_is_a_body_error(raw: bytes) -> None:
    for stop in range(1, len(raw)):
        with pytest.raises(BodyError):
            messages.decode_messages(raw[:stop])


@pytest.mark.parametrize("byte", [0, 0x7F, 0x80, 0xFF])
def test_a_wrong_byte_raises_only_body_errors(byte: int) -> None:
    for position in range(len(golden.STORED_V4)):
        raw = bytearray(golden.STORED_V4 * 2)
        raw[position] = byte
        with suppress(BodyError):
            messages.decode_messages(bytes(raw))


@given(st.binary())
def test_garbage_raises_only_body_errors(raw: bytes) -> None:
    for decode in (messages.decode_messages, messages.decode_batch):
        with suppress(BodyError):
            decode(raw)


def test_bytes_after_the_properties_are_skipped() -> None:
    raw = golden.STORED_V4
    longer = (len(raw) + 5).to_bytes(4, "big") + raw[4:] + bytes(5)
    assert messages.decode_messages(longer + raw) == [MESSAGE, MESSAGE]


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "t" * 0x8000},
        {"properties": "p" * 0x8000},
        {"queue_id": 2**31},
        {"body_crc": 2**32},
        {"born_host": ("localhost", 1)},
        {"store_host": ("", 1)},
    ],
)
def test_a_value_that_does_not_fit_a_record_is_a_body_error(change: dict[str, object]) -> None:
    with pytest.raises(BodyError):
        messages.encode_message(replace(MESSAGE, **change))  # type: ignore[arg-type]


def test_property_map_is_cached() -> None:
    assert MESSAGE.property_map == {"TAGS": "TagA"}
    assert MESSAGE.property_map is MESSAGE.property_map
    assert MESSAGE.get("TAGS") == "TagA"
    assert replace(MESSAGE, properties="A\x01b").get("A") == "b"


# Compression.

STORED_COMPRESSED = {
    CompressionType.LZ4: golden.STORED_LZ4,
    CompressionType.ZSTD: golden.STORED_ZSTD,
    CompressionType.ZLIB: golden.STORED_ZLIB,
}
COMPRESSED = {
    CompressionType.LZ4: golden.COMPRESSED_LZ4,
    CompressionType.ZSTD: golden.COMPRESSED_ZSTD,
    CompressionType.ZLIB: golden.COMPRESSED_ZLIB,
}


@pytest.mark.parametrize("kind", CompressionType)
def test_decompress_bodies_of_java(kind: CompressionType) -> None:
    [message] = messages.decode_messages(STORED_COMPRESSED[kind])
    assert message.body == COMPRESSED[kind]
    assert messages.compression_type(message.sys_flag) is kind
    assert messages.body(message) == golden.COMPRESSED_TEXT


def test_a_compressed_body_without_a_type_is_zlib() -> None:
    assert messages.decompress(golden.COMPRESSED_ZLIB, SysFlag.COMPRESSED) == golden.COMPRESSED_TEXT


def test_an_uncompressed_body_is_returned_unchanged() -> None:
    assert messages.body(replace(MESSAGE, sys_flag=int(SysFlag.COMPRESSION_ZSTD))) == TEXT


@pytest.mark.parametrize("kind", CompressionType)
@given(data=st.binary(max_size=2000) | st.integers(0, 20000).map(bytes))
def test_compress_then_decompress_returns_the_same_body(kind: CompressionType, data: bytes) -> None:
    packed, sys_flag = messages.compress(data, kind)
    assert messages.decompress(packed, sys_flag) == data


@pytest.mark.parametrize("kind", CompressionType)
@given(data=st.binary())
def test_a_body_that_is_not_compressed_is_a_body_error(kind: CompressionType, data: bytes) -> None:
    with suppress(BodyError):
        compression.decompress(data, kind)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_truncated_compressed_body_is_a_body_error(kind: CompressionType) -> None:
    # ZSTD and LZ4 detect the end of an empty stream only.
    for stop in range(len(COMPRESSED[kind])):
        with pytest.raises(BodyError):
            compression.decompress(COMPRESSED[kind][:stop], kind)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_over_the_decompression_limit_is_a_body_error(kind: CompressionType) -> None:
    packed, _ = messages.compress(bytes(1001), kind)
    assert len(compression.decompress(packed, kind, limit=1001)) == 1001
    with pytest.raises(BodyError, match="1000"):
        compression.decompress(packed, kind, limit=1000)


def test_an_unknown_compression_is_a_body_error() -> None:
    with pytest.raises(BodyError, match="7"):
        messages.decompress(b"", SysFlag.COMPRESSED | 7 << 8)


@pytest.mark.parametrize(("kind", "package"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")])
def test_a_missing_codec_is_named(kind: CompressionType, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    for use in (compression.compress, compression.decompress):
        with pytest.raises(BodyError, match=f"{kind.name}.*{package}"):
            use(b"", kind)


# Batches.

BATCH = [
    BatchMessage(1, b"first", "WAIT\x01true\x02TAGS\x01TagA\x02"),
    BatchMessage(0, b"second", "WAIT\x01true\x02TAGS\x01TagB\x02"),
]


def test_batches_match_java() -> None:
    assert messages.decode_batch(golden.BATCH) == BATCH
    assert messages.encode_batch(BATCH) == golden.BATCH


@given(st.lists(st.builds(BatchMessage, INT32, st.binary(max_size=50), PLAIN), max_size=4))
def test_encode_batch_then_decode_returns_the_same_messages(batch: list[BatchMessage]) -> None:
    assert messages.decode_batch(messages.encode_batch(batch)) == batch


@given(st.lists(st.builds(BatchMessage, INT32, st.binary(max_size=50), PLAIN), max_size=4), st.data())
def test_check_batch_accepts_and_rejects_what_decode_batch_does(batch: list[BatchMessage], data: st.DataObject) -> None:
    raw = bytearray(messages.encode_batch(batch))
    messages.check_batch(bytes(raw))
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        messages.decode_batch(bytes(raw))
    except BodyError:
        with pytest.raises(BodyError):
            messages.check_batch(bytes(raw))
    else:
        messages.check_batch(bytes(raw))


def test_a_truncated_batch_is_a_body_error_or_a_shorter_batch() -> None:
    for stop in range(len(golden.BATCH)):
        if stop in (0, 0x2F):
            assert messages.decode_batch(golden.BATCH[:stop]) == BATCH[: stop and 1]
        else:
            with pytest.raises(BodyError):
                messages.decode_batch(golden.BATCH[:stop])


@pytest.mark.parametrize("entry", [BatchMessage(2**31, b"", ""), BatchMessage(0, b"", "p" * 0x8000)])
def test_a_value_that_does_not_fit_a_batch_is_a_body_error(entry: BatchMessage) -> None:
    with pytest.raises(BodyError):
        messages.encode_batch([entry])


def test_an_inner_batch_is_unwrapped() -> None:
    [wrapped] = messages.decode_messages(golden.STORED_INNER_BATCH)
    wrapped = replace(wrapped, queue_offset=100)
    unwrapped = messages.unwrap([MESSAGE, wrapped, MESSAGE])
    assert unwrapped[0] is unwrapped[3] is MESSAGE
    assert [
        (entry.topic, entry.queue_id, entry.queue_offset, entry.flag, entry.body, entry.get("TAGS"))
        for entry in unwrapped[1:3]
    ] == [("T", 3, 100, 1, b"first", "TagA"), ("T", 3, 101, 0, b"second", "TagB")]
    assert all(entry.store_host == ("192.168.1.9", 10911) for entry in unwrapped)
    assert messages.unwrap(unwrapped) == unwrapped
    assert messages.crc(unwrapped[1].body) == unwrapped[1].body_crc


def test_a_compressed_inner_batch_is_unwrapped() -> None:
    packed, bits = messages.compress(golden.BATCH, CompressionType.ZLIB)
    flags = bits | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    unwrapped = messages.unwrap([replace(MESSAGE, body=packed, sys_flag=int(flags))])
    assert [messages.body(entry) for entry in unwrapped] == [b"first", b"second"]


def test_an_invalid_inner_batch_is_a_body_error() -> None:
    flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    with pytest.raises(BodyError):
        messages.unwrap([replace(MESSAGE, sys_flag=int(flags))])


def test_an_updated_message_keeps_all_fields_but_properties_and_place() -> None:
    values = {"topic": "T", "body": b"b", "properties": "p", "born_host": ("127.0.0.1", 1), "store_host": ("::1", 2)}
    numbers = {field.name: index for index, field in enumerate(fields(StoredMessage), 10) if field.type is int}
    message = StoredMessage(**{**numbers, **values})  # type: ignore[arg-type]
    place = {"queue_offset": 1, "commit_log_offset": 2, "store_timestamp": 3}
    assert message.updated("new", **place) == replace(message, properties="new", **place)  # type: ignore[arg-type]
