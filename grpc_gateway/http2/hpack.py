"""HPACK (RFC 7541): decoding and encoding of header blocks, with a dynamic table for each direction.

Most fields of a gRPC connection are references into the tables. The tables therefore hold fields in the application's
form, made once when a field is inserted, and decoding a reference is a look-up. A block of references alone has the
same meaning until the table changes, so `Decoder.memo` keeps the application's result of such blocks.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from grpc_gateway.http2 import huffman
from grpc_gateway.http2.abuse import Abuse
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode

T = TypeVar("T")

# RFC 7541 appendix A, in its order, from index 1.
STATIC_TABLE: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control "
            b"content-disposition content-encoding content-language content-length content-location content-range "
            b"content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range "
            b"if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization "
            b"range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding "
            b"user-agent vary via www-authenticate"
        ).split()
    ),
)
_STATIC_SIZE: Final = len(STATIC_TABLE)
_FIRST_DYNAMIC: Final = _STATIC_SIZE + 1
# The byte that refers to the newest entry of the dynamic table.
_DYNAMIC_BYTE: Final = 0x80 + _FIRST_DYNAMIC
_ENTRY_OVERHEAD: Final = 32
# A block over this multiple of the list limit ends the connection, as an attack.
_ATTACK_FACTOR: Final = 4
_MAX_MEMO_BLOCKS: Final = 64
_MAX_MEMO_BLOCK_SIZE: Final = 512


class HeaderListTooLarge(Exception):
    """The fields of a block exceed their limit; the table is up to date."""


def _compression_error(text: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.COMPRESSION_ERROR, text, "hpack")


def entry_size(name: bytes, value: bytes) -> int:
    """Return the size of a field as RFC 7541 section 4.1 and SETTINGS_MAX_HEADER_LIST_SIZE count it."""
    return len(name) + len(value) + _ENTRY_OVERHEAD


def decode_integer(data: bytes, position: int, mask: int) -> tuple[int, int]:
    """Return the integer whose prefix is in `data[position]`, and the position after it (RFC 7541 section 5.1)."""
    value = data[position] & mask
    position += 1
    if value < mask:
        return value, position
    for shift in (0, 7, 14, 21):
        byte = data[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _compression_error("an HPACK integer is too large")


def encode_integer(value: int, mask: int, pattern: int) -> bytes:
    """Return the encoding of an integer, with `pattern` in the bits of the first byte outside `mask`."""
    if value < mask:
        return bytes((pattern | value,))
    encoded = bytearray((pattern | mask,))
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Decoder(Generic[T]):
    """Decoder of one connection's blocks, in their order.

    make: converts name and value, both decoded as Latin-1, to the application's form of a field.
    max_list_size: limit of a block's decoded size in bytes.
    memo: the application's results of blocks that do not change the table, by block.
    """

    __slots__ = ("_entries", "_make", "_size", "_static", "max_list_size", "max_table_size", "memo", "table_size")

    def __init__(self, make: Callable[[str, str], T], max_list_size: int = 16_384, max_table_size: int = 4096) -> None:
        self.max_list_size = max_list_size
        self.max_table_size = self.table_size = max_table_size
        self.memo: dict[bytes, Any] = {}
        self._make = make
        self._static = _static_entries(make)
        # (size, name, field); the newest is the last, which has index 62.
        self._entries: list[tuple[int, str, T]] = []
        self._size = 0

    def remember(self, block: bytes, result: object) -> None:
        """Keep the application's result of a block that `decode` returned as one without effect on the table."""
        if len(block) <= _MAX_MEMO_BLOCK_SIZE:
            if len(self.memo) >= _MAX_MEMO_BLOCKS:
                self.memo.clear()
            self.memo[block] = result

    def decode(self, block: bytes) -> tuple[list[T], bool]:
        """Return the fields, and whether the block has left the table unchanged.

        Raises ConnectionFault for a malformed block, after which the decoder must not be used again, and
        HeaderListTooLarge, after which it may.
        """
        try:
            return self._decode(block)
        except IndexError:
            raise _compression_error("an HPACK block is truncated, or refers to an entry that does not exist") from None

    def _decode(self, block: bytes) -> tuple[list[T], bool]:
        fields: list[T] = []
        static, entries = self._static, self._entries
        remaining = self.max_list_size
        unchanged = True
        position, end = 0, len(block)
        while position < end:
            byte = block[position]
            if byte >= 0x80:
                if byte < _DYNAMIC_BYTE:
                    size, _, field = static[byte - 0x80]
                    position += 1
                elif byte < 0xFF:
                    size, _, field = entries[_DYNAMIC_BYTE - 1 - byte]
                    position += 1
                elif (more := block[position + 1]) < 0x80:
                    size, _, field = entries[_STATIC_SIZE - 0x7F - more]
                    position += 2
                else:
                    index, position = decode_integer(block, position, 0x7F)
                    size, _, field = entries[_STATIC_SIZE - index]
                if not size:
                    raise _compression_error("HPACK index 0")
            elif byte & 0xE0 == 0x20:
                if fields:
                    raise _compression_error("an HPACK table size update is not at the start of its block")
                position = self._resize(block, position)
                unchanged = False
                continue
            elif byte & 0x40:
                size, field, position = self._literal(block, position, 0x3F, True)
                unchanged = False
            else:
                size, field, position = self._literal(block, position, 0x0F, False)
            remaining -= size
            fields.append(field)
        if remaining < 0:
            if remaining < -_ATTACK_FACTOR * self.max_list_size:
                raise ConnectionFault(
                    ErrorCode.ENHANCE_YOUR_CALM, "the decoded header list is far too large", Abuse.HEADER_BOMB
                )
            raise HeaderListTooLarge
        return fields, unchanged

    def _literal(self, block: bytes, position: int, mask: int, indexing: bool) -> tuple[int, T, int]:
        index = block[position] & mask
        if index < mask:
            position += 1
        else:
            index, position = decode_integer(block, position, mask)
        if index > _STATIC_SIZE:
            name = self._entries[_STATIC_SIZE - index][1]
        elif index:
            name = self._static[index][1]
        else:
            name, position = _decode_string(block, position)
        value, position = _decode_string(block, position)
        field = self._make(name, value)
        size = len(name) + len(value) + _ENTRY_OVERHEAD
        if indexing:
            if self.memo:
                self.memo.clear()
            self._size += size
            # An entry that is larger than the table empties it (section 4.4).
            self._entries.append((size, name, field))
            if self._size > self.table_size:
                self._evict()
        return size, field, position

    def _evict(self) -> None:
        # Mostly one entry, for which a slice would cost more.
        while self._size > self.table_size:
            size, _, _ = self._entries.pop(0)
            self._size -= size

    def _resize(self, block: bytes, position: int) -> int:
        size, position = decode_integer(block, position, 0x1F)
        if size > self.max_table_size:
            raise _compression_error(f"an HPACK table of {size} bytes was not offered")
        self.memo.clear()
        self.table_size = size
        self._evict()
        return position


def _static_entries(make: Callable[[str, str], T]) -> "list[tuple[int, str, T]]":
    # Created once for each `make`, and shared by all connections.
    entries = _static_by_maker.get(make)
    if entries is None:
        entries = [(0, "", make("", ""))]
        for pair in STATIC_TABLE:
            name, value = pair[0].decode(), pair[1].decode()
            entries.append((entry_size(*pair), name, make(name, value)))
        _static_by_maker[make] = entries
    return entries


_static_by_maker: dict[Callable[[str, str], Any], list[tuple[int, str, Any]]] = {}


def _decode_string(block: bytes, position: int) -> tuple[str, int]:
    """Return the string at a position, decoded as Latin-1, and the position after it."""
    byte = block[position]
    length = byte & 0x7F
    if length < 0x7F:
        position += 1
    else:
        length, position = decode_integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise _compression_error("an HPACK string is truncated")
    data = block[position:end]
    if byte < 0x80:
        return data.decode("latin-1"), end
    try:
        return huffman.decode(data), end
    except ValueError as error:
        raise _compression_error(str(error)) from None


class Block:
    """Constant fields of responses, in ASCII; compared by identity."""

    __slots__ = ("fields",)

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.fields = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in fields)


class Encoder:
    """Encoder of one connection's blocks, in their order.

    The fields of a `Block` are inserted into the dynamic table while there is room, and are not evicted. An encoded
    `Block` therefore stays valid, and is cached, until the table changes. Other fields are literals without an entry,
    as the values of a call seldom occur twice.
    """

    __slots__ = ("_indices", "_memo", "_size", "_update", "max_table_size")

    def __init__(self, max_table_size: int = 4096) -> None:
        self.max_table_size = max_table_size
        # Positions of the fields in the dynamic table, counted from the oldest.
        self._indices: dict[tuple[bytes, bytes], int] = {}
        self._size = 0
        self._memo: dict[Block, bytes] = {}
        self._update = b""

    def resize(self, size: int) -> None:
        """Follow the peer's SETTINGS_HEADER_TABLE_SIZE, up to the default of 4096 bytes."""
        size = min(size, 4096)
        if size == self.max_table_size and not self._update:
            return
        self.max_table_size = size
        self._indices.clear()
        self._memo.clear()
        self._size = 0
        # An update to 0 empties the peer's table in any case (section 4.2).
        self._update = b"\x20" + encode_integer(size, 0x1F, 0x20)

    def block(self, block: Block) -> bytes:
        """Return the encoding of constant fields."""
        encoded = self._memo.get(block)
        if encoded is None or self._update:
            update, known = self._start(), len(self._indices)
            encoded = b"".join([self._constant(name, value) for name, value in block.fields])
            if len(self._indices) == known:
                # The table has not changed, so the encoding is valid for the next block, too.
                self._memo[block] = encoded
            return update + encoded
        return encoded

    def fields(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the encoding of fields: literals, and references to equal constants."""
        return self._start() + b"".join([self._known(*field) or _literal(*field) for field in fields])

    def _start(self) -> bytes:
        update, self._update = self._update, b""
        return update

    def _known(self, name: bytes, value: bytes) -> bytes | None:
        index = _STATIC_FIELDS.get((name, value))
        if index is None:
            position = self._indices.get((name, value))
            if position is None:
                return None
            index = _FIRST_DYNAMIC + len(self._indices) - 1 - position
        return encode_integer(index, 0x7F, 0x80)

    def _constant(self, name: bytes, value: bytes) -> bytes:
        known = self._known(name, value)
        if known is not None:
            return known
        size = entry_size(name, value)
        if self._size + size > self.max_table_size:
            return _literal(name, value)
        self._size += size
        self._indices[(name, value)] = len(self._indices)
        # The indices of all other entries change.
        self._memo.clear()
        return _literal(name, value, 0x3F, 0x40, huffman.encode)


def _raw(data: bytes) -> bytes:
    return data


def _literal(
    name: bytes, value: bytes, mask: int = 0x0F, pattern: int = 0, code: Callable[[bytes], bytes] = _raw
) -> bytes:
    index = _STATIC_NAMES.get(name, 0)
    start = encode_integer(index, mask, pattern)
    return start + (b"" if index else _encode_string(name, code)) + _encode_string(value, code)


def _encode_string(data: bytes, code: Callable[[bytes], bytes]) -> bytes:
    coded = code(data)
    if len(coded) < len(data):
        return encode_integer(len(coded), 0x7F, 0x80) + coded
    return encode_integer(len(data), 0x7F, 0) + data


_STATIC_FIELDS: Final = {field: index for index, field in reversed(list(enumerate(STATIC_TABLE, 1))) if field[1]}
_STATIC_NAMES: Final = {name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))}
