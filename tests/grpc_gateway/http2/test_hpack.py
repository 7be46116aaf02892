"""HPACK, compared with the examples of RFC 7541 and with the package hpack."""

import contextlib

import hpack as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.http2 import huffman
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.hpack import (
    STATIC_TABLE,
    Block,
    Decoder,
    Encoder,
    HeaderListTooLarge,
    decode_integer,
    encode_integer,
)

Pair = tuple[bytes, bytes]


def pair(name: str, value: str) -> Pair:
    return name.encode("latin-1"), value.encode("latin-1")


def fields(text: str) -> list[Pair]:
    pairs = (line.strip().split(": ", 1) for line in text.strip().splitlines())
    return [(name.encode(), value.encode()) for name, value in pairs]


# RFC 7541 appendix C.2 to C.6: (table size, [(block, fields, size of the table after it)]).
FIRST = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com"
SECOND = FIRST + "\ncache-control: no-cache"
THIRD = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value"
DATE, LATER = "Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"
LOCATION = "location: https://www.example.com"
FOUND = f":status: 302\ncache-control: private\ndate: {DATE}\n{LOCATION}"
MOVED = f":status: 307\ncache-control: private\ndate: {DATE}\n{LOCATION}"
COOKIE = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
GIVEN = f":status: 200\ncache-control: private\ndate: {LATER}\n{LOCATION}\ncontent-encoding: gzip\n{COOKIE}"
EXAMPLES = {
    "C.2.1": (4096, [("400a637573746f6d2d6b65790d637573746f6d2d686561646572", "custom-key: custom-header", 55)]),
    "C.2.2": (4096, [("040c2f73616d706c652f70617468", ":path: /sample/path", 0)]),
    "C.2.3": (4096, [("100870617373776f726406736563726574", "password: secret", 0)]),
    "C.2.4": (4096, [("82", ":method: GET", 0)]),
    "C.3": (
        4096,
        [
            ("828684410f7777772e6578616d706c652e636f6d", FIRST, 57),
            ("828684be58086e6f2d6361636865", SECOND, 110),
            ("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565", THIRD, 164),
        ],
    ),
    "C.4": (
        4096,
        [
            ("828684418cf1e3c2e5f23a6ba0ab90f4ff", FIRST, 57),
            ("828684be5886a8eb10649cbf", SECOND, 110),
            ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", THIRD, 164),
        ],
    ),
    "C.5": (
        256,
        [
            (
                "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e17687474"
                "70733a2f2f7777772e6578616d706c652e636f6d",
                FOUND,
                222,
            ),
            ("4803333037c1c0bf", MOVED, 222),
            (
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b"
                "48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
                GIVEN,
                215,
            ),
        ],
    ),
    "C.6": (
        256,
        [
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae"
                "43d3",
                FOUND,
                222,
            ),
            ("4883640effc1c0bf", MOVED, 222),
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af"
                "27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                GIVEN,
                215,
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_decoder_decodes_the_examples_of_the_rfc(name: str) -> None:
    table_size, blocks = EXAMPLES[name]
    decoder = Decoder(pair, max_table_size=table_size)
    for block, expected, size in blocks:
        assert decoder.decode(bytes.fromhex(block))[0] == fields(expected)
        assert decoder._size == size


def test_static_table_equals_the_reference() -> None:
    assert list(reference.table.HeaderTable.STATIC_TABLE) == list(STATIC_TABLE)


@pytest.mark.parametrize(
    ("value", "mask", "encoded"), [(10, 0x1F, "0a"), (1337, 0x1F, "1f9a0a"), (42, 0xFF, "2a"), (31, 0x1F, "1f00")]
)
def test_integers_are_encoded_and_decoded(value: int, mask: int, encoded: str) -> None:
    assert encode_integer(value, mask, 0) == bytes.fromhex(encoded)
    assert decode_integer(bytes.fromhex(encoded), 0, mask) == (value, len(encoded) // 2)


@given(st.binary(max_size=200))
def test_huffman_decodes_its_own_encoding(data: bytes) -> None:
    assert huffman.decode(huffman.encode(data)).encode("latin-1") == data


@given(st.binary(max_size=40))
def test_huffman_decodes_arbitrary_bytes_like_the_reference(data: bytes) -> None:
    try:
        expected: bytes | None = reference.huffman_table.decode_huffman(data)
    except reference.HPACKDecodingError:
        expected = None
    try:
        assert huffman.decode(data).encode("latin-1") == expected
    except ValueError:
        # The reference does not check the length of the padding.
        assert expected is None or huffman.encode(expected) != data


@pytest.mark.parametrize(
    "block",
    [
        "80",  # index 0
        "be",  # an empty dynamic table
        "ff",  # a truncated integer
        "ffffffffff0f",  # an integer that is too large
        "0005616263",  # a truncated string
        "40",
        "4001",
        "400161",
        "0081ff0161",  # padding of eight ones
        "00810001610161",  # padding of zeros
        "0084ffffffff0161",  # EOS
        "3fe21f",  # a table larger than 4096
        "8220",  # a size update after a field
    ],
)
def test_malformed_block_is_a_compression_error(block: str) -> None:
    with pytest.raises(ConnectionFault) as raised:
        Decoder(pair).decode(bytes.fromhex(block))
    assert raised.value.code is ErrorCode.COMPRESSION_ERROR


def test_a_header_list_over_the_limit_still_updates_the_table() -> None:
    encoder, decoder = reference.Encoder(), Decoder(pair, max_list_size=200)
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(encoder.encode([("a", "x" * 200), ("b", "y")]))
    assert decoder.decode(encoder.encode([("b", "y")])) == ([(b"b", b"y")], True)


def test_an_hpack_bomb_ends_the_connection() -> None:
    encoder, decoder = reference.Encoder(), Decoder(pair, max_list_size=8192)
    decoder.decode(encoder.encode([("a", "x" * 4000)]))
    with pytest.raises(ConnectionFault) as raised:
        decoder.decode(b"\xbe" * 16_000)
    assert raised.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_memo_is_cleared_when_the_table_changes() -> None:
    encoder, decoder = reference.Encoder(), Decoder(pair)
    request = [(":path", "/a"), ("te", "trailers")]
    assert decoder.decode(encoder.encode(request))[1] is False
    block = encoder.encode(request)
    assert decoder.decode(block)[1] is True
    decoder.remember(block, "result")
    assert decoder.memo == {block: "result"}
    decoder.decode(encoder.encode([("other", "1")]))
    assert decoder.memo == {}


def test_memo_size_is_limited() -> None:
    decoder = Decoder(pair)
    for number in range(1000):
        decoder.remember(b"%d" % number, None)
    decoder.remember(b"x" * 10_000, None)
    assert len(decoder.memo) <= 64


NAMES = st.from_regex(rb"[a-z-]{1,20}", fullmatch=True)
VALUES = st.binary(max_size=80)
LISTS = st.lists(st.tuples(NAMES, VALUES) | st.sampled_from(STATIC_TABLE), max_size=12)


@given(st.lists(LISTS, max_size=8), st.lists(st.sampled_from([0, 40, 200, 4096]), max_size=8))
def test_decoder_decodes_the_references_encoding(lists: list[list[Pair]], sizes: list[int]) -> None:
    encoder, decoder = reference.Encoder(), Decoder(pair, max_list_size=1 << 20)
    for number, given_fields in enumerate(lists):
        if number < len(sizes):
            encoder.header_table_size = sizes[number]
        block = encoder.encode(given_fields, huffman=number % 2 == 0)
        assert decoder.decode(block)[0] == given_fields


@given(st.lists(st.tuples(st.sampled_from("bfr"), LISTS, st.sampled_from([0, 60, 100, 4096, 9999])), max_size=12))
def test_reference_decodes_our_encoding(steps: list[tuple[str, list[Pair], int]]) -> None:
    encoder, decoder = Encoder(), reference.Decoder(max_header_list_size=1 << 20)
    constants: list[Block] = []
    for kind, given_fields, size in steps:
        if kind == "r":
            encoder.resize(size)
            decoder.max_allowed_table_size = max(decoder.max_allowed_table_size, size)
            continue
        if kind == "f":
            block = encoder.fields(given_fields)
            assert [tuple(field) for field in decoder.decode(block, raw=True)] == given_fields
            continue
        constant = Block()
        constant.fields = tuple(given_fields)
        constants.append(constant)
        for constant in constants:
            decoded = [tuple(field) for field in decoder.decode(encoder.block(constant), raw=True)]
            assert decoded == list(constant.fields)


def test_repeated_constants_become_references() -> None:
    encoder = Encoder()
    head = Block((":status", "200"), ("content-type", "application/grpc"))
    trailers = Block(("grpc-status", "0"))
    encoder.block(head)
    encoder.block(trailers)
    assert (encoder.block(head), encoder.block(trailers)) == (b"\x88\xbf", b"\xbe")
    assert (encoder.block(head), encoder.block(trailers)) == (b"\x88\xbf", b"\xbe")
    # The peer empties its table, so the constants are encoded again.
    encoder.resize(0)
    assert encoder.block(trailers).startswith(b"\x20\x20\x00")
    assert not encoder.block(trailers).startswith(b"\x20")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_decoded_or_raise(block: bytes) -> None:
    decoder = Decoder(pair)
    with contextlib.suppress(ConnectionFault, HeaderListTooLarge):
        decoder.decode(block)
    assert decoder._size <= 4096
