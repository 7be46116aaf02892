"""Stored messages, batch bodies and flags (RocketMQ's MessageDecoder).

A stored record is, all big-endian:

    total size 4 | magic 4 | body CRC 4 | queue id 4 | flag 4 | queue offset 8 | commit log offset 8 |
    sys flag 4 | born timestamp 8 | born host 4 or 16 + 4 | store timestamp 8 | store host 4 or 16 + 4 |
    reconsume times 4 | prepared transaction offset 8 | body length 4, body |
    topic length 1 or 2, topic | properties length 2, properties
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntFlag
from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

from remoting import compression, properties
from remoting.compression import CompressionType
from remoting.errors import BodyError

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
_MAGICS: Final = {MAGIC_V1: 1, MAGIC_V2: 2}
_MAX_V1_TOPIC_LENGTH: Final = 127
_MAX_V2_TOPIC_LENGTH: Final = 0x7FFF
# Bytes of the properties of a record; brokers refuse longer ones.
MAX_PROPERTIES_LENGTH: Final = 0x7FFF


class SysFlag(IntFlag):
    """Bits of a message's sys flag."""

    COMPRESSED = 1 << 0
    MULTI_TAGS = 1 << 1
    TRANSACTION_PREPARED = 1 << 2
    TRANSACTION_COMMIT = 2 << 2
    TRANSACTION_ROLLBACK = 3 << 2
    BORN_HOST_V6 = 1 << 4
    STORE_HOST_V6 = 1 << 5
    NEED_UNWRAP = 1 << 6
    INNER_BATCH = 1 << 7
    COMPRESSION_LZ4 = CompressionType.LZ4 << 8
    COMPRESSION_ZSTD = CompressionType.ZSTD << 8
    COMPRESSION_ZLIB = CompressionType.ZLIB << 8


# The bits with the state of a transaction: none, prepared, commit or rollback.
TRANSACTION_MASK: Final = 0b11 << 2
_COMPRESSION_MASK: Final = 0b111 << 8
# Plain integers, because IntFlag arithmetic is slow.
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


class PullSysFlag(IntFlag):
    """Bits of a pull request's `sysFlag`."""

    COMMIT_OFFSET = 1 << 0
    SUSPEND = 1 << 1
    SUBSCRIPTION = 1 << 2
    CLASS_FILTER = 1 << 3
    LITE_PULL = 1 << 4


class Permission(IntFlag):
    """Bits of a topic's permission (`perm` in a route)."""

    INHERIT = 1 << 0
    WRITE = 1 << 1
    READ = 1 << 2
    PRIORITY = 1 << 3


READ_AND_WRITE: Final = int(Permission.READ | Permission.WRITE)


_NO_HOST: Final = ("0.0.0.0", 0)  # noqa: S104  # not bound


# Not frozen: the generated __init__ of a frozen class took half the time of decoding.
@dataclass(slots=True, init=False)
class StoredMessage:
    """One message as a broker stores it; not to be changed.

    Timestamps are in milliseconds since 1970, hosts are pairs of IP and port. `body` may be compressed (see the
    function `body`), `properties` is the property string.
    """

    topic: str
    body: bytes
    properties: str
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    _parsed: dict[str, str] | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        topic: str,
        body: bytes = b"",
        properties: str = "",
        queue_id: int = 0,
        flag: int = 0,
        queue_offset: int = 0,
        commit_log_offset: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: tuple[str, int] = _NO_HOST,
        store_timestamp: int = 0,
        store_host: tuple[str, int] = _NO_HOST,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        body_crc: int = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body_crc = body_crc
        self._parsed = None

    @property
    def property_map(self) -> dict[str, str]:
        """The decoded properties, cached; must not be changed."""
        parsed = self._parsed
        if parsed is None:
            parsed = properties.decode(self.properties)
            self._parsed = parsed
        return parsed

    def updated(
        self, properties: str, queue_offset: int = 0, commit_log_offset: int = 0, store_timestamp: int = 0
    ) -> "StoredMessage":
        """Return a copy with these properties at this place, at half the cost of dataclasses.replace."""
        return StoredMessage(
            topic=self.topic,
            body=self.body,
            properties=properties,
            queue_id=self.queue_id,
            flag=self.flag,
            queue_offset=queue_offset,
            commit_log_offset=commit_log_offset,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_timestamp=store_timestamp,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            body_crc=self.body_crc,
        )

    def get(self, key: str) -> str | None:
        """Return the value of a property."""
        return properties.get(self.properties, key) if self._parsed is None else self._parsed.get(key)


# A record up to its body length, by the two bits of the sys flag with the sizes of the hosts.
_HEADS: Final = tuple(
    struct.Struct(f">IIiiiqqiq{born}siq{store}siiqi") for born, store in ((4, 4), (16, 4), (4, 16), (16, 16))
)
_SYS_FLAG_POSITION: Final = 36
_MIN_HEAD_SIZE: Final = _HEADS[0].size


def decode_messages(data: bytes) -> list[StoredMessage]:
    """Decode the records in a response to a pull, pop or peek. Raises BodyError."""
    messages = []
    position = 0
    while position < len(data):
        message, _, position = _decode_message(data, position)
        messages.append(message)
    return messages


def decode_message(data: bytes) -> StoredMessage:
    """Decode the single record of a transaction check, CONSUME_MESSAGE_DIRECTLY or VIEW_MESSAGE_BY_ID.

    It must end where its size says: bytes of other messages could follow its properties. Raises BodyError.
    """
    message, end, _ = _decode_message(data, 0)
    if end != len(data):
        raise BodyError(f"{len(data) - end} bytes follow a stored message")
    return message


def _decode_message(data: bytes, start: int) -> tuple[StoredMessage, int, int]:
    """Decode the record at a position; return it, the position after its properties, and that after its size."""
    if len(data) - start < _MIN_HEAD_SIZE:
        raise BodyError("a stored message is cut off")
    sys_flag = int.from_bytes(data[start + _SYS_FLAG_POSITION : start + _SYS_FLAG_POSITION + 4], "big", signed=True)
    head = _HEADS[(sys_flag & HOSTS_V6) >> 4]
    stop = start + int.from_bytes(data[start : start + 4], "big")
    if not start + head.size <= stop <= len(data):
        raise BodyError(f"a stored message says that it has {stop - start} bytes, {len(data) - start} are there")
    (
        _,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        _,
        born_timestamp,
        born_ip,
        born_port,
        store_timestamp,
        store_ip,
        store_port,
        reconsume_times,
        prepared_transaction_offset,
        body_length,
    ) = head.unpack_from(data, start)
    topic_size = _MAGICS.get(magic)
    if topic_size is None:
        raise BodyError(f"unknown magic 0x{magic:08X} in a stored message")
    body, position = _take(data, start + head.size, body_length, stop)
    topic, position = _take_sized(data, position, topic_size, stop)
    text, end = _take_properties(data, position, stop)
    message = StoredMessage(
        topic=topic.decode(errors="replace"),
        body=body,
        properties=text.decode(errors="replace"),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=_host(born_ip, born_port),
        store_timestamp=store_timestamp,
        store_host=_host(store_ip, store_port),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body_crc=body_crc,
    )
    return message, end, stop


def _take(data: bytes, start: int, length: int, limit: int) -> tuple[bytes, int]:
    """Return `length` bytes at a position, and the position after them."""
    stop = start + length
    if not start <= stop <= limit:
        raise BodyError(f"a message has a field of {length} bytes in the {limit - start} that are left")
    return data[start:stop], stop


def _take_sized(data: bytes, position: int, size: int, limit: int) -> tuple[bytes, int]:
    """Return bytes that follow their length, which has `size` bytes, and the position after them."""
    start = position + size
    if start > limit:
        raise BodyError("a message ends before the length of a field")
    return _take(data, start, int.from_bytes(data[position:start], "big"), limit)


def _take_properties(data: bytes, position: int, limit: int) -> tuple[bytes, int]:
    """Return the properties of a record, and the position after them. Like Java's clients, take a length below 0 for 0.

    Brokers store such a record from a batch; it must not cost a client the messages beside it.
    """
    if position + 2 <= limit and data[position] & 0x80:
        return b"", position + 2
    return _take_sized(data, position, 2, limit)


@lru_cache(1024)
def _host(ip: bytes, port: int) -> tuple[str, int]:
    if not 0 <= port <= 0xFFFF:
        raise BodyError(f"a stored message has a host with port {port}")
    return inet_ntop(AF_INET if len(ip) == 4 else AF_INET6, ip), port


def word(body: bytes, position: int) -> int:
    """Return the unsigned number of four bytes at a position. Raises IndexError."""
    return body[position] << 24 | body[position + 1] << 16 | body[position + 2] << 8 | body[position + 3]


def encode_message(message: StoredMessage) -> bytes:
    """Encode a message as a record of version 1, or of version 2 if the topic is too long for version 1.

    The sys flag's IPv6 bits are derived from the hosts. Raises BodyError if a value does not fit the record.
    """
    topic, text = message.topic.encode(), message.properties.encode()
    if len(topic) > _MAX_V2_TOPIC_LENGTH or len(text) > MAX_PROPERTIES_LENGTH:
        raise BodyError(f"a topic of {len(topic)} bytes or properties of {len(text)} bytes do not fit a record")
    magic, topic_size = (MAGIC_V1, 1) if len(topic) <= _MAX_V1_TOPIC_LENGTH else (MAGIC_V2, 2)
    born_ip, store_ip = _packed(message.born_host[0]), _packed(message.store_host[0])
    hosts = (len(born_ip) == 16) << 4 | (len(store_ip) == 16) << 5
    head = _HEADS[hosts >> 4]
    tail = b"".join((len(topic).to_bytes(topic_size, "big"), topic, len(text).to_bytes(2, "big"), text))
    try:
        start = head.pack(
            head.size + len(message.body) + len(tail),
            magic,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.commit_log_offset,
            message.sys_flag & ~HOSTS_V6 | hosts,
            message.born_timestamp,
            born_ip,
            message.born_host[1],
            message.store_timestamp,
            store_ip,
            message.store_host[1],
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(message.body),
        )
    except struct.error as error:
        raise BodyError(f"a number does not fit a stored message: {error}") from None
    return b"".join((start, message.body, tail))


def encoded_size(message: StoredMessage) -> int:
    """Return the number of bytes of a message as a record."""
    topic, text = message.topic, message.properties
    hosts = (":" in message.born_host[0]) | (":" in message.store_host[0]) << 1
    topic_length = len(topic) if topic.isascii() else len(topic.encode())
    text_length = len(text) if text.isascii() else len(text.encode())
    lengths = 3 if topic_length <= _MAX_V1_TOPIC_LENGTH else 4
    return _HEADS[hosts].size + len(message.body) + lengths + topic_length + text_length


def _packed(ip: str) -> bytes:
    try:
        return inet_pton(AF_INET6 if ":" in ip else AF_INET, ip)
    except OSError:
        raise BodyError(f"a message's host is no IP address: {ip[:60]!r}") from None


# Bodies.


def crc(data: bytes) -> int:
    """Return the CRC of a body as brokers store it."""
    return zlib.crc32(data) & 0x7FFFFFFF


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return the compression of a body by its sys flag; None: uncompressed. Raises BodyError for an unknown type."""
    if not sys_flag & _COMPRESSED:
        return None
    number = (sys_flag & _COMPRESSION_MASK) >> 8
    # Old clients, which support zlib only, set no type.
    try:
        return CompressionType(number or CompressionType.ZLIB)
    except ValueError:
        raise BodyError(f"unknown compression type {number}") from None


def decompress(data: bytes, sys_flag: int, limit: int = compression.MAX_BODY) -> bytes:
    """Decompress a body by its sys flag. Raises BodyError, also if the result is larger than `limit` bytes."""
    kind = compression_type(sys_flag)
    return data if kind is None else compression.decompress(data, kind, limit)


def body(message: StoredMessage, limit: int = compression.MAX_BODY) -> bytes:
    """Return the decompressed body. Raises BodyError, also if it is larger than `limit` bytes."""
    return decompress(message.body, message.sys_flag, limit)


def compress(data: bytes, kind: CompressionType) -> tuple[bytes, int]:
    """Compress a body; return it and its bits of the sys flag. Raises BodyError if the codec is not installed."""
    return compression.compress(data, kind), _COMPRESSED | kind << 8


# Batches.


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a batch body; `properties` is its property string."""

    flag: int
    body: bytes
    properties: str


_BATCH_HEAD: Final = struct.Struct(">iiiii")


def decode_batch(data: bytes) -> list[BatchMessage]:
    """Decode a batch body. Raises BodyError.

    Like in brokers, total size, magic and CRC of the entries are ignored.
    """
    return list(iterate_batch(data))


def iterate_batch(data: bytes) -> Iterator[BatchMessage]:
    """Yield the messages of a batch body, as `decode_batch` returns them. Raises BodyError."""
    position, end = 0, len(data)
    while position < end:
        start = position + _BATCH_HEAD.size
        if start > end:
            raise BodyError("a batch body is cut off")
        _, _, _, flag, length = _BATCH_HEAD.unpack_from(data, position)
        content, position = _take(data, start, length, end)
        text, position = _take_sized(data, position, 2, end)
        if len(text) > MAX_PROPERTIES_LENGTH:
            raise BodyError("a batch has properties with a length below 0")
        yield BatchMessage(flag, content, text.decode(errors="replace"))


def check_batch(data: bytes) -> None:
    """Raise BodyError unless the body is a batch with nothing after it. Brokers read all lengths as signed numbers."""
    position, end = 0, len(data)
    while position < end:
        start = position + _BATCH_HEAD.size
        if start + 2 > end:
            raise BodyError("a batch body is cut off")
        length = int.from_bytes(data[start - 4 : start], "big", signed=True)
        text = start + length
        if length < 0 or text + 2 > end:
            raise BodyError(f"a batch has a body of {length} bytes in the {end - start} that are left")
        length = int.from_bytes(data[text : text + 2], "big", signed=True)
        position = text + 2 + length
        if length < 0 or position > end:
            raise BodyError(f"a batch has properties of {length} bytes in the {end - text - 2} that are left")


def encode_batch(messages: list[BatchMessage]) -> bytes:
    """Encode messages as a batch body. Raises BodyError if a value does not fit."""
    out = bytearray()
    for message in messages:
        text = message.properties.encode()
        if len(text) > MAX_PROPERTIES_LENGTH:
            raise BodyError(f"properties of {len(text)} bytes do not fit a batch")
        size = _BATCH_HEAD.size + len(message.body) + 2 + len(text)
        try:
            out += _BATCH_HEAD.pack(size, 0, 0, message.flag, len(message.body))
        except struct.error as error:
            raise BodyError(f"a number does not fit a batch: {error}") from None
        out += message.body + len(text).to_bytes(2, "big") + text
    return bytes(out)


def unwrap(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Replace each inner batch by its messages. Raises BodyError.

    An inner batch is one record whose body is a batch body. Like in Java's clients, its messages get consecutive queue
    offsets, beginning with the record's. Their sys flags lose the bits of the batch, so that `unwrap` is idempotent.
    """
    unwrapped: list[StoredMessage] = []
    for message in messages:
        unwrapped.extend(iterate_messages(message))
    return unwrapped


def iterate_messages(message: StoredMessage, limit: int = compression.MAX_BODY) -> Iterator[StoredMessage]:
    """Yield the messages of an inner batch, or the message itself if it is none, as `unwrap` returns them.

    Each is decoded when it is needed. Raises BodyError, also if the batch is larger than `limit` bytes decompressed.
    """
    if message.sys_flag & _INNER_BATCH != _INNER_BATCH:
        yield message
        return
    sys_flag = message.sys_flag & ~(_INNER_BATCH | _COMPRESSED | _COMPRESSION_MASK)
    for index, entry in enumerate(iterate_batch(body(message, limit))):
        yield replace(
            message,
            flag=entry.flag,
            body=entry.body,
            body_crc=crc(entry.body),
            properties=entry.properties,
            queue_offset=message.queue_offset + index,
            sys_flag=sys_flag,
        )
