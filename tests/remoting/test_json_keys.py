"""Keys of requests that servers would take for others by their hashes."""

import re

import orjson
import pytest

from remoting import json_keys
from remoting.errors import BodyError
from remoting.json_keys import check_escapes, field_name
from remoting.json_names import NameReplacer, collect_names, replace_names

# Computed keys with the hashes of consumerGroup, topic and groupName, which fastjson2 reads as these fields.
COLLIDING = (
    "\ua51e\uc0ad\u85b7\ua8b7\u9658\u15dd\ubf42\u290d\u6a26\u5fbb\u9c26\u4a4c\u4005",
    "\u5e6b\u5ab4\u6eb1\u7be6\u5aab\ua55b\u25b1\u4dd5\u64db\ub7a0\ud0a9\u0514\ub643",
    "\uaa33\u0686\u6887\uac0f\uae0e\u6a02\u8169\u2bcd\u1705\u7375\u4781\u8d3b\uc813",
)


@pytest.mark.parametrize("key", [*COLLIDING, "topic\x00", "gro\u00fcp", "\ufffd"])
def test_keys_other_than_printable_ascii_are_rejected(key: str) -> None:
    with pytest.raises(BodyError, match="printable ASCII"):
        field_name(key)


def test_the_computed_keys_have_the_hashes_of_fields() -> None:
    for key in COLLIDING:
        value = 0xCBF29CE484222325
        for character in key:
            value = ((value ^ ord(character)) * 0x100000001B3) % 2**64
        assert value in json_keys._HASHES


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("key", COLLIDING)
def test_requests_with_colliding_keys_are_rejected(key: str, escaped: bool) -> None:
    text = key.encode("ascii", "backslashreplace") if escaped else key.encode()
    body = b'{"consumerGroup":"own","mqSet":[{"topic":"own","' + text + b'":"other"}]}'
    with pytest.raises(BodyError):
        collect_names(body)
    with pytest.raises(BodyError):
        replace_names(body, NameReplacer(str, str, client_request=True), client_request=True)


@pytest.mark.parametrize("spelling", ["xyConsumer", "XYConsumer", "xy_consumer", "xy consumer", "xy-Con_sumer"])
def test_a_key_with_the_hash_of_a_field_is_rejected(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a key can be computed of printable characters, too; here, the hash of a field is that of the key."""
    value = 0xCBF29CE484222325
    for character in "xyconsumer" if spelling != "xyConsumer" else "xyConsumer":
        value = ((value ^ ord(character)) * 0x100000001B3) % 2**64
    field_name.cache_clear()
    monkeypatch.setattr(json_keys, "_HASHES", frozenset({value}))
    with pytest.raises(BodyError, match="hash of another key"):
        field_name(spelling)
    field_name.cache_clear()


@pytest.mark.parametrize("key", ["consumer Group", "to pic", "client-I D"])
def test_keys_that_differ_by_a_space_are_rejected(key: str) -> None:
    with pytest.raises(BodyError, match="hash of another key"):
        field_name(key)


def test_short_keys_are_their_own_hash() -> None:
    """Eight characters can be the hash of a longer field."""
    assert int.from_bytes(b"topic", "little") in json_keys._HASHES


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("topic", "topic"),
        ("Consumer_Group", "consumergroup"),
        ("subVersion", "subversion"),
        ("+message.type", "+message.type"),
        ("%RETRY%group_a", "%retry%groupa"),
        ("", ""),
    ],
)
def test_other_keys_are_normalised(key: str, name: str) -> None:
    assert field_name(key) == name


@pytest.mark.parametrize(
    "body",
    [rb'{"\u0074opic":"a"}', rb'{"a":{"b\"" : 1}}', rb"{'\x74opic':'a'}", rb'{"a\\":1}'],
)
def test_keys_with_escapes_are_rejected(body: bytes) -> None:
    with pytest.raises(BodyError, match="escape"):
        check_escapes(body)


@pytest.mark.parametrize("body", [rb'{"subString":"a = \"b\" : c"}', rb'["\"", "a:\u0074"]', b"{}"])
def test_values_may_have_escapes(body: bytes) -> None:
    check_escapes(body)


def test_names_of_bytes_that_are_not_utf_8_are_rejected() -> None:
    """A server may decode the two bytes to a `t`."""
    with pytest.raises(BodyError, match="is not a text"):
        collect_names(b'{"topic":"secre\xc1\xb4"}')


def test_the_number_of_different_keys_is_limited() -> None:
    body = orjson.dumps({f"key{number}": 1 for number in range(513)})
    with pytest.raises(BodyError, match=re.escape("more than 512 different keys")):
        collect_names(body)
