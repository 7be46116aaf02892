"""Responses as Java servers write them, whose headers are decoded only when they are read."""

from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import HeaderError
from remoting.frame import Frame

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)

JAVA_RESPONSE = (
    b'{"code":0,"extFields":{"msgId":"7F01","queueOffset":"12"},"flag":1,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":493}'
)
WITHOUT_FIELDS = (
    b'{"code":19,"flag":1,"language":"JAVA","opaque":0,"remark":"no message","serializeTypeCurrentRPC":"JSON",'
    b'"version":493}'
)
EMPTY_FIELDS = (
    b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":9,"serializeTypeCurrentRPC":"JSON","version":1}'
)


def outcome(decode: Callable[[Frame], RemotingCommand], raw: bytes) -> object:
    """Return everything that a decoded response says, or the type of its error."""
    try:
        command = decode((0, raw, b"body"))
        facts = command.code, command.flag, command.opaque, command.serialize_type, command.body, command.memory
        asked = [command.field(name) for name in ("queueOffset", "msgId", "absent", "")]
        return *facts, asked, command.header, command.fields, command.remark, command.language, command.version
    except HeaderError:
        return HeaderError


@pytest.mark.parametrize("raw", [JAVA_RESPONSE, WITHOUT_FIELDS, EMPTY_FIELDS])
def test_a_header_of_a_java_server_is_decoded_when_it_is_read(raw: bytes) -> None:
    command = commands.decode_from_server((0, raw, b""))
    assert command._header is None
    assert outcome(commands.decode_from_server, raw) == outcome(commands.decode, raw)
    assert outcome(commands.decode, raw) is not HeaderError


def test_a_field_is_found_without_decoding_the_header() -> None:
    command = commands.decode_from_server((0, JAVA_RESPONSE, b""))
    assert (command.field("queueOffset"), command.field("msgId"), command.field("recallHandle")) == ("12", "7F01", None)
    assert command._header is None


UNUSUAL = {
    "escaped text": JAVA_RESPONSE.replace(b'"7F01"', rb'"\u0037F\"01\n"'),
    "an escaped key": JAVA_RESPONSE.replace(b'"queueOffset"', rb'"queue\u004fffset"'),
    "a key in a value": JAVA_RESPONSE.replace(b'"7F01"', rb'"\"queueOffset\":\"3\""'),
    "braces in a value": JAVA_RESPONSE.replace(b"7F01", b"{7}F{0}1"),
    "a header in a value": JAVA_RESPONSE.replace(b'"7F01"', rb'"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":3,"'),
    "an escaped remark": WITHOUT_FIELDS.replace(b"no message", rb"no \"message\" here"),
    "text that is not ASCII": JAVA_RESPONSE.replace(b"7F01", "é中".encode()),
    "text that is not UTF-8": JAVA_RESPONSE.replace(b"7F01", b"\xff"),
    "a remark that is not UTF-8": WITHOUT_FIELDS.replace(b"no message", b"\xff"),
    "another order of keys": b'{"opaque":7,"code":0,"flag":1,"extFields":{"msgId":"1"},"language":"JAVA"}',
    "ext fields at the end": JAVA_RESPONSE.replace(b'"extFields":{"msgId":"7F01","queueOffset":"12"},', b"").replace(
        b"493}", b'493,"extFields":{"queueOffset":"12"}}'
    ),
    "a key twice": JAVA_RESPONSE.replace(b'"flag":1', b'"flag":1,"flag":1'),
    "two opaques": JAVA_RESPONSE.replace(b'"opaque":7', b'"opaque":7,"opaque":8'),
    "a field twice": JAVA_RESPONSE.replace(b'"msgId":"7F01"', b'"queueOffset":"11"'),
    "a field that is a number": JAVA_RESPONSE.replace(b'"12"', b"12"),
    "a field that is an object": JAVA_RESPONSE.replace(b'"12"', b'{"a":"b"}'),
    "ext fields that are a list": JAVA_RESPONSE.replace(b'{"msgId":"7F01","queueOffset":"12"}', b'["queueOffset"]'),
    "ext fields that are null": JAVA_RESPONSE.replace(b'{"msgId":"7F01","queueOffset":"12"}', b"null"),
    "ext fields without a value": JAVA_RESPONSE.replace(b'"12"', b""),
    "spaces": JAVA_RESPONSE.replace(b":", b": "),
    "an unknown key": JAVA_RESPONSE.replace(b'"opaque"', b'"odd":[1],"opaque"'),
    "a negative code": JAVA_RESPONSE.replace(b'"code":0', b'"code":-1'),
    "a code with a leading zero": JAVA_RESPONSE.replace(b'"code":0', b'"code":00'),
    "an opaque of 32 bits": JAVA_RESPONSE.replace(b'"opaque":7', b'"opaque":2147483647'),
    "an opaque of more bits": JAVA_RESPONSE.replace(b'"opaque":7', b'"opaque":99999999999'),
    "a request": JAVA_RESPONSE.replace(b'"flag":1', b'"flag":0'),
    "bytes after the header": JAVA_RESPONSE + b"}",
    "a line after the header": JAVA_RESPONSE + b"\n",
    "no header": b"",
}


@pytest.mark.parametrize("raw", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_header_of_a_server_is_read_as_any_other(raw: bytes) -> None:
    assert outcome(commands.decode_from_server, raw) == outcome(commands.decode, raw)


@pytest.mark.parametrize("raw", [JAVA_RESPONSE, WITHOUT_FIELDS, EMPTY_FIELDS])
def test_a_truncated_header_of_a_server_is_rejected_at_once(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(HeaderError):
            commands.decode_from_server((0, raw[:size], b""))


@given(
    st.dictionaries(TEXT.filter(lambda name: name not in ("$ref", "@type")), TEXT, max_size=4),
    TEXT,
    st.booleans(),
    st.integers(0, 2**31 - 1),
)
def test_any_header_of_a_server_is_read_as_any_other(
    fields: dict[str, str], remark: str, shuffled: bool, opaque: int
) -> None:
    pairs = {"code": 0, "extFields": {**fields, "queueOffset": remark}, "flag": 1, "language": "JAVA", "opaque": opaque}
    pairs |= {"remark": remark, "serializeTypeCurrentRPC": "JSON", "version": 493}
    raw = orjson.dumps(dict(reversed(pairs.items())) if shuffled else pairs)
    assert outcome(commands.decode_from_server, raw) == outcome(commands.decode, raw)
    asked, full = commands.decode_from_server((0, raw, b"")), commands.decode((0, raw, b""))
    asked.opaque = full.opaque = 1
    assert orjson.loads(asked.encode()[8:]) == orjson.loads(full.encode()[8:])
