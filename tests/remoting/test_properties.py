import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import properties
from remoting.errors import BodyError
from remoting.properties import MessageType, java_hash_code
from tests.remoting import golden

NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1)


def test_decode_matches_java() -> None:
    assert properties.decode(golden.PROPERTIES) == golden.PROPERTY_MAP


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("KEYS\x01k\x02", {"KEYS": "k"}),
        ("KEYS\x01k", {"KEYS": "k"}),
        ("KEYS\x01k\x02TAGS\x01a\x02", {"KEYS": "k", "TAGS": "a"}),
        ("KEYS\x01\x02TAGS\x01a", {"TAGS": "a"}),
        ("\x01v\x02\x02\x02", {}),
        ("KEYS\x01a\x02KEYS\x01b\x02", {"KEYS": "b"}),
        ("KEYS\x01a\x02KEYS\x01\x02", {"KEYS": "a"}),
    ],
)
def test_decode_is_lenient(text: str, expected: dict[str, str]) -> None:
    assert properties.decode(text) == expected
    assert {key: properties.get(text, key) for key in expected} == expected


@given(st.dictionaries(NAMES, VALUES))
def test_encode_then_decode_returns_the_same_properties(pairs: dict[str, str]) -> None:
    assert properties.decode(properties.encode(pairs)) == pairs


def test_encode_omits_empty_values() -> None:
    assert properties.encode({"A": "", "B": "b"}) == "B\x01b\x02"


@given(st.dictionaries(NAMES, VALUES), st.booleans(), NAMES, VALUES)
def test_append_overrides_earlier_values(pairs: dict[str, str], cut: bool, key: str, value: str) -> None:
    text = properties.encode(pairs)
    text = text.removesuffix("\x02") if cut else text
    assert properties.decode(properties.append(text, key, value)) == {**pairs, key: value}


@pytest.mark.parametrize("pair", [("", "v"), ("a\x01", "v"), ("a\x02", "v"), ("a", "v\x02TRAN_MSG\x01true")])
def test_encode_rejects_separators(pair: tuple[str, str]) -> None:
    with pytest.raises(BodyError):
        properties.encode(dict([pair]))


@given(st.text("ab\x01\x02"), st.text("ab", min_size=1))
def test_get_returns_the_same_value_as_decode(text: str, key: str) -> None:
    assert properties.get(text, key) == properties.decode(text).get(key)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, MessageType.NORMAL),
        ({"TAGS": "TRAN_MSG"}, MessageType.NORMAL),
        ({"TRAN_MSG": "false"}, MessageType.NORMAL),
        ({"TRAN_MSG": "true"}, MessageType.TRANSACTION),
        ({"TRAN_MSG": "TRUE", "DELAY": "3"}, MessageType.TRANSACTION),
        ({"DELAY": "3", "__SHARDINGKEY": "k"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "1"}, MessageType.DELAY),
        ({"__SHARDINGKEY": "k", "_SYS_MSG_PRIORITY_": "1"}, MessageType.FIFO),
        ({"_SYS_MSG_PRIORITY_": "1"}, MessageType.PRIORITY),
    ],
)
def test_message_type_by_properties(pairs: dict[str, str], expected: MessageType) -> None:
    assert properties.message_type(pairs) is expected
    assert properties.message_type(properties.encode(pairs)) is expected


# From the definition: s[0]*31^(n-1) + ... + s[n-1] in 32 bits.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("polygenelubricants", -(2**31)),
        ("TagA", 2598919),
        ("😀", 55357 * 31 + 56832),
    ],
)
def test_java_hash_code_equals_javas_string_hash_code(text: str, expected: int) -> None:
    assert java_hash_code(text) == expected
