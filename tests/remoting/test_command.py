import re
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import command as commands
from remoting.codes import RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, InvalidRequest
from remoting.frame import MAX_HEADER, FrameDecoder
from tests.remoting import golden

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
# Binary headers have 16 bits for the code; some 16-bit codes stand for larger ones.
CODES = st.integers(-(2**15), 2**15 - 1).map(
    lambda code: commands.decode((1, code.to_bytes(2, "big", signed=True) + bytes(19), b"")).code
)
COMMANDS = st.builds(
    RemotingCommand,
    st.fixed_dictionaries(
        {
            "code": CODES,
            "language": st.sampled_from([language.name for language in LanguageCode]),
            "version": st.integers(0, 2**15 - 1),
            "opaque": INT32,
            "flag": INT32,
        },
        optional={"remark": TEXT.filter(bool)},
    ),
    st.dictionaries(TEXT, TEXT.filter(bool), max_size=5),
    st.binary(max_size=20),
    st.integers(0, 1),
    # Compiled classes have no signature to infer these from.
    opaque=INT32,
    code=INT32,
    flag=INT32,
)


def read(raw: bytes) -> RemotingCommand:
    [frame] = FrameDecoder().feed(raw)
    return commands.decode(frame)


def decode_json(header: object) -> RemotingCommand:
    return commands.decode((0, orjson.dumps(header), b""))


REQUEST: dict[str, Any] = {"code": 105, "language": "GO", "version": 317, "opaque": 7, "flag": 0}

# Golden frames.

# Section by section: 26 bytes of binary header, code 105, language GO (9), version 317, opaque 7, flag 0, no remark,
# one ext field b = T.
BINARY = bytes.fromhex("00000021 0100001d 0069 09 013d 00000007 00000000 00000000 00000008 0001 62 00000001 54")
JSON = (
    bytes.fromhex("00000055 00000051")
    + (b'{"code":105,"language":"GO","version":317,"opaque":7,"flag":0,"extFields":{"b":"T"}}'[:81])
)

SEND_FIELDS = {
    "a": "pg",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000123",
    "h": "0",
    "i": "TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "bname": "broker-a",
}


@pytest.mark.parametrize(("raw", "serialize_type"), [(golden.SEND_JSON, 0), (golden.SEND_ROCKETMQ, 1)])
def test_decode_a_request_of_java(raw: bytes, serialize_type: int) -> None:
    command = read(raw)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert command.opaque == 4711
    assert command.version == 479
    assert command.language == "JAVA"
    assert command.remark == "rémark"
    assert command.fields == SEND_FIELDS
    assert command.body == b"hello"
    assert command.serialize_type == serialize_type
    assert not command.is_response
    assert not command.is_oneway


@pytest.mark.parametrize("raw", [golden.ANSWER_JSON, golden.ANSWER_ROCKETMQ])
def test_decode_a_response_of_java(raw: bytes) -> None:
    command = read(raw)
    assert command.code == ResponseCode.TOPIC_NOT_EXIST
    assert command.is_response
    assert command.is_oneway
    assert command.remark == "no topic"
    assert command.fields == {}


@pytest.mark.parametrize("raw", [golden.POP_JSON, golden.POP_ROCKETMQ])
def test_decode_a_pop_of_java(raw: bytes) -> None:
    """The code does not fit the binary header: Java truncates it to 3442."""
    command = read(raw)
    assert command.code == RequestCode.POP_MESSAGE
    assert command.opaque == -5


@pytest.mark.parametrize("raw", [golden.SEND_ROCKETMQ, golden.POP_ROCKETMQ, golden.ANSWER_ROCKETMQ])
def test_binary_headers_are_encoded_like_java(raw: bytes) -> None:
    command = read(raw)
    assert command.encode() + command.body == raw


@pytest.mark.parametrize("raw", [golden.SEND_JSON, golden.POP_JSON, golden.ANSWER_JSON])
def test_json_headers_are_encoded_without_loss(raw: bytes) -> None:
    command = read(raw)
    again = read(command.encode() + command.body)
    assert (again.header, again.body) == (command.header, command.body)
    assert command.header["serializeTypeCurrentRPC"] == "JSON"


def test_decode_a_binary_header_byte_for_byte() -> None:
    command = read(BINARY)
    assert (command.header, command.fields) == ({**REQUEST, "extFields": {"b": "T"}}, {"b": "T"})
    assert command.encode() == BINARY


ALIASES = {
    3442: RequestCode.POP_MESSAGE,
    3443: RequestCode.ACK_MESSAGE,
    3444: RequestCode.PEEK_MESSAGE,
    3445: RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    3446: RequestCode.NOTIFICATION,
    3447: RequestCode.POLLING_INFO,
    3543: RequestCode.BATCH_ACK_MESSAGE,
}


@pytest.mark.parametrize(("alias", "code"), ALIASES.items())
def test_truncated_codes_are_restored(alias: int, code: RequestCode) -> None:
    binary = commands.decode((1, alias.to_bytes(2, "big") + bytes(19), b""))
    assert binary.code == code
    assert binary.encode()[8:10] == alias.to_bytes(2, "big")
    assert decode_json({**REQUEST, "code": alias}).code == alias


def test_other_negative_codes_are_kept() -> None:
    assert commands.decode((1, b"\xff\xff" + bytes(19), b"")).code == -1


# Round trips.


@given(COMMANDS)
def test_encode_then_decode_returns_the_same_command(command: RemotingCommand) -> None:
    command.header.update(extFields=command.fields, opaque=command.opaque)
    again = read(command.encode() + command.body)
    assert (again.header, again.fields) == (command.header, command.fields)
    assert (again.body, again.serialize_type) == (command.body, command.serialize_type)


@given(
    st.dictionaries(
        TEXT.filter(lambda key: key != "remark"), st.recursive(TEXT | INT32 | st.none(), st.lists, max_leaves=3)
    )
)
def test_unknown_header_keys_are_dropped(extra: dict[str, Any]) -> None:
    header = {**REQUEST, "extFields": {"signature": "s"}}
    assert read(decode_json({**extra, **header}).encode()).header == header


@pytest.mark.parametrize("depth", [1, 300, 1000])
@pytest.mark.parametrize("key", ["language", "version", "remark", "serializeTypeCurrentRPC", "odd"])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nested_header_values_are_dropped(key: str, depth: int, brackets: tuple[bytes, bytes]) -> None:
    nested = brackets[0] * depth + (b"1" if brackets[0] != b"[" else b"") + brackets[1] * depth
    header = b'{"code":11,"opaque":7,"%s":%s}' % (key.encode(), nested)
    command = commands.decode((0, header, b""))
    assert key not in command.header
    assert read(command.encode()).opaque == 7


def test_ext_fields_are_limited_in_number() -> None:
    fields = {str(number): "" for number in range(64)}
    assert decode_json({**REQUEST, "extFields": fields}).fields == fields
    with pytest.raises(HeaderError, match="more than 64 ext fields") as caught:
        decode_json({**REQUEST, "extFields": {**fields, "64": ""}})
    assert caught.value.opaque == REQUEST["opaque"]


def test_ext_fields_of_a_binary_request_are_limited_in_number() -> None:
    fields = {str(number): "x" for number in range(10_000)}
    command = commands.request(11, fields)
    command.serialize_type = 1
    with pytest.raises(HeaderError, match="more than 64 ext fields") as caught:
        read(command.encode())
    assert caught.value.opaque == 0
    reply = commands.answer(commands.success(fields), 7, 1)
    assert read(reply.encode()).fields == fields


def test_a_request_with_the_largest_properties_is_decoded() -> None:
    """A broker accepts properties of 32767 bytes, which JSON may write with 6 bytes each."""
    properties = "\x01" * 32767
    command = commands.request(310, {"i": properties})
    assert 190_000 < len(command.encode()) < MAX_HEADER
    assert read(command.encode()).fields["i"] == properties


def test_an_ext_field_that_is_nested_too_deeply_is_answered_with_an_error() -> None:
    header = b'{"code":11,"opaque":7,"extFields":{"a":' + b"[" * 300 + b"]" * 300 + b"}}"
    with pytest.raises(HeaderError, match="nested too deeply") as caught:
        commands.decode((0, header, b""))
    assert caught.value.opaque == 7


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_integer_accepts_64_bits(number: int) -> None:
    assert commands.request(11, {"n": str(number)}).integer("n") == number


@pytest.mark.parametrize("text", ["", "x", str(2**63), str(-(2**63) - 1), "9" * 21, "9" * 10_000, "0" * 21])
def test_integer_rejects_other_numbers_briefly(text: str) -> None:
    with pytest.raises(InvalidRequest, match="the field n is not a number") as caught:
        commands.request(11, {"n": text}).integer("n")
    assert len(str(caught.value)) < 100


def test_memory_counts_the_body_and_the_decoded_header() -> None:
    small, large = (decode_json({**REQUEST, "extFields": {"a": "x" * size}}) for size in (0, 1000))
    assert large.memory - small.memory == 3000
    assert commands.request(11, body=bytes(9)).memory == 9


# Leniency.


def test_values_of_ext_fields_become_strings() -> None:
    fields = {"a": "x", "b": 1, "c": True, "d": False, "e": None, "f": 1.5, "g": [1], "h": {"i": None}}
    command = decode_json({**REQUEST, "extFields": fields})
    expected = {"a": "x", "b": "1", "c": "true", "d": "false", "f": "1.5", "g": "[1]", "h": '{"i":null}'}
    assert command.fields == expected
    assert command.header["extFields"] is command.fields


@pytest.mark.parametrize("header", [REQUEST, {**REQUEST, "extFields": None}])
def test_missing_ext_fields_can_be_set_later(header: dict[str, Any]) -> None:
    command = decode_json(header)
    assert command.fields == {}
    command.fields["b"] = "T"
    assert read(command.encode()).fields == {"b": "T"}


def test_a_missing_flag_is_zero() -> None:
    command = decode_json({"code": 1, "opaque": 2})
    assert not command.is_response
    assert not command.is_oneway
    assert command.version == 0
    assert command.language == "OTHER"
    assert command.remark is None


@pytest.mark.parametrize(
    ("change", "version", "language"),
    [
        ({"version": "x", "language": "KLINGON"}, 0, "KLINGON"),
        ({"version": None, "language": None}, 0, "OTHER"),
        ({"version": 1.5, "language": 5}, 0, "OTHER"),
        ({"version": True, "language": ""}, 0, "OTHER"),
        ({"version": 2**31, "language": ["GO"]}, 0, "OTHER"),
        ({"version": -(2**31)}, -(2**31), "GO"),
    ],
)
def test_invalid_versions_and_languages_have_defaults(change: dict[str, Any], version: int, language: str) -> None:
    command = decode_json({**REQUEST, **change})
    assert (command.version, command.language) == (version, language)


@pytest.mark.parametrize(
    "change",
    [
        {"version": "x"},
        {"version": [1]},
        {"language": "KLINGON"},
        {"language": ["GO"]},
        {"language": None},
        {"remark": 5},
    ],
)
def test_invalid_versions_and_languages_can_be_encoded_in_binary(change: dict[str, Any]) -> None:
    command = decode_json({**REQUEST, **change})
    command.serialize_type = 1
    assert read(command.encode()).opaque == 7


@pytest.mark.parametrize("flag", [0, RESPONSE_FLAG])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 2**31),
        ("version", -(2**31) - 1),
        ("version", "x"),
        ("version", 1.5),
        ("version", None),
        ("language", 99),
        ("language", None),
        ("remark", ["r"]),
        ("serializeTypeCurrentRPC", 7),
        ("@type", "java.lang.Object"),
        ("$ref", "$"),
    ],
)
def test_header_values_that_java_cannot_decode_are_dropped(key: str, value: object, flag: int) -> None:
    written = orjson.loads(decode_json({**REQUEST, "flag": flag, "extFields": {"a": "b"}, key: value}).encode()[8:])
    assert written == {name: item for name, item in REQUEST.items() if name != key} | {
        "flag": flag,
        "extFields": {"a": "b"},
    }


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40 + 1])
@pytest.mark.parametrize("flag", [0, RESPONSE_FLAG])
@pytest.mark.parametrize("key", ["flag", "code"])
def test_a_number_beyond_32_bits_is_an_error(key: str, value: int, flag: int) -> None:
    with pytest.raises(HeaderError, match=key):
        decode_json({**REQUEST, "flag": flag, key: value})


@pytest.mark.parametrize("name", ["$ref", "@type"])
@pytest.mark.parametrize(("flag", "opaque"), [(0, 7), (RESPONSE_FLAG, None)])
def test_names_of_ext_fields_that_java_interprets_are_refused(name: str, flag: int, opaque: int | None) -> None:
    with pytest.raises(HeaderError, match=re.escape(name)) as error:
        decode_json({**REQUEST, "flag": flag, "extFields": {"a": "b", name: "$.a"}})
    assert error.value.opaque == opaque


def test_ext_fields_of_a_response_are_strings() -> None:
    fields: dict[str, Any] = {"a": 1, "b": True, "c": None, "d": {"e": []}}
    assert decode_json({**REQUEST, "flag": RESPONSE_FLAG, "extFields": fields}).fields == {
        "a": "1",
        "b": "true",
        "d": '{"e":[]}',
    }


def test_decode_a_binary_header_without_remark_and_fields() -> None:
    command = commands.decode((1, bytes(21), b""))
    assert command.remark is None
    assert command.fields == {}


def test_decode_binary_keeps_the_last_value_and_drops_empty_ones() -> None:
    pair, empty = "0001 62 00000001 ", "0001 63 00000000"
    fields = bytes.fromhex(pair + "31" + pair + "32" + empty)
    raw = bytes(17) + len(fields).to_bytes(4, "big") + fields
    assert commands.decode((1, raw, b"")).fields == {"b": "2"}


def test_decode_an_unknown_language_byte() -> None:
    assert commands.decode((1, bytes([0, 1, 99]) + bytes(18), b"")).language == "OTHER"


# Errors.


@pytest.mark.parametrize(
    ("header", "opaque"),
    [
        ([], None),
        ("text", None),
        ({}, None),
        ({**REQUEST, "opaque": None}, None),
        ({**REQUEST, "opaque": "7"}, None),
        ({**REQUEST, "opaque": True}, None),
        ({**REQUEST, "opaque": 7.0}, None),
        ({**REQUEST, "opaque": 2**31}, None),
        ({**REQUEST, "opaque": -(2**31) - 1}, None),
        ({**REQUEST, "flag": "0"}, None),
        ({**REQUEST, "flag": None}, None),
        ({**REQUEST, "code": "105"}, 7),
        ({**REQUEST, "code": None}, 7),
        ({**REQUEST, "code": True}, 7),
        ({**REQUEST, "code": 1.0}, 7),
        ({**REQUEST, "extFields": []}, 7),
        ({**REQUEST, "extFields": "text"}, 7),
        ({**REQUEST, "code": None, "flag": 1}, None),
        ({**REQUEST, "extFields": 5, "flag": 1}, None),
    ],
)
def test_an_invalid_header_is_a_header_error(header: object, opaque: int | None) -> None:
    with pytest.raises(HeaderError) as caught:
        decode_json(header)
    assert caught.value.opaque == opaque


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nonsense", b'{"code":1', b"\xff", b'{"opaque":"\\ud800"}', b"[" * 100_000]
)
def test_a_header_that_is_not_json_is_a_header_error(raw: bytes) -> None:
    with pytest.raises(HeaderError) as caught:
        commands.decode((0, raw, b""))
    assert caught.value.opaque is None


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "00000000 000000",
        "00000001 00000000",  # a remark longer than the rest
        "00000000 00000001",  # ext fields longer than the rest
        "00000000 00000000 00",  # trailing bytes after the ext fields
        "ffffffff 00000000",
        "00000000 00000003 0005 61",  # a key longer than the fields
        "00000000 00000007 0001 61 00000001",  # a missing value
        "00000000 00000001 00",
        "00000001 ff 00000000",  # a remark that is not UTF-8
        "00000000 00000008 0001 ff 00000001 61",
        "00000000 00000008 0001 61 00000001 ff",
    ],
)
def test_an_invalid_binary_header_is_a_header_error(tail: str) -> None:
    with pytest.raises(HeaderError) as caught:
        commands.decode((1, bytes(13) + bytes.fromhex(tail), b""))
    assert caught.value.opaque is None


@given(st.integers(0, 1), st.binary())
def test_garbage_raises_only_header_errors(serialize_type: int, raw: bytes) -> None:
    with suppress(HeaderError):
        commands.decode((serialize_type, raw, b""))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
KEYS = ["code", "language", "version", "opaque", "flag", "remark", "extFields"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON_VALUES), st.integers(0, 1))
def test_every_decoded_header_can_be_encoded(header: dict[str, Any], serialize_type: int) -> None:
    with suppress(HeaderError):
        command = decode_json({**REQUEST, **header})
        command.serialize_type = serialize_type
        repr(command)
        assert read(command.encode()).opaque == command.opaque


# Making commands.


def test_answer_takes_opaque_and_encoding_of_the_request() -> None:
    request = commands.request(RequestCode.HEART_BEAT, {"a": "b"}, b"body", oneway=True)
    assert request.is_oneway
    assert not request.is_response
    answer = commands.answer(commands.success({"c": "d"}, b"x"), opaque=9, serialize_type=1)
    again = read(answer.encode() + answer.body)
    assert (again.code, again.opaque, again.fields, again.body) == (0, 9, {"c": "d"}, b"x")
    assert again.is_response
    assert commands.response(ResponseCode.SYSTEM_BUSY, remark="later").remark == "later"


def test_integer_reads_a_field_or_names_it() -> None:
    command = commands.request(RequestCode.PULL_MESSAGE, {"queueId": "-1", "topic": "T"})
    assert command.integer("queueId") == -1
    for name in ("topic", "queueOffset"):
        with pytest.raises(InvalidRequest, match=name):
            command.integer(name)


def test_repr_contains_no_values() -> None:
    shown = repr(commands.request(RequestCode.SEND_MESSAGE, {"Signature": "secret"}, b"private"))
    assert "Signature" in shown
    assert "secret" not in shown
    assert "private" not in shown


def test_copy_with_response_is_not_oneway() -> None:
    oneway = commands.request(RequestCode.HEART_BEAT, {"a": "b"}, b"body", oneway=True)
    request = oneway.copy_with_response()
    assert (request.is_oneway, request.header["flag"], oneway.is_oneway, oneway.header["flag"]) == (False, 0, True, 2)
    assert (request.code, request.fields, request.body) == (oneway.code, {"a": "b"}, b"body")
