from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import fastjson
from remoting.errors import BodyError, Overloaded
from remoting.fastjson import ObjectKeys
from tests.remoting import golden

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT
NAMES = TEXT.filter(lambda name: name != "$ref")
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))


def test_loads_a_route_of_an_old_name_server() -> None:
    route = fastjson.loads(golden.ROUTE)
    [broker] = route["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    broker["brokerAddrs"] = {int(number): address for number, address in broker["brokerAddrs"].items()}
    assert fastjson.dumps(route) == golden.ROUTE


def test_loads_objects_as_keys() -> None:
    body = fastjson.loads(golden.RESET_OFFSET)
    queue = {"brokerName": "broker-a", "queueId": 3, "topic": "TopicTest"}
    assert body == {"offsetTable": ObjectKeys(((queue, 123),))}
    assert fastjson.dumps(body) == golden.RESET_OFFSET


def test_loads_resolves_a_reference() -> None:
    heartbeat = fastjson.loads(golden.HEARTBEAT_WITH_REFERENCE)
    first, second = heartbeat["consumerDataSet"]
    assert first["subscriptionDataSet"][0]["topic"] == "TopicTest"
    assert second["subscriptionDataSet"] == first["subscriptionDataSet"]


def test_loads_resolves_a_reference_with_escapes() -> None:
    assert fastjson.loads(golden.ESCAPED_REFERENCE) == {"a.b-c%d": ["x"], "again": ["x"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0:'a',-1:'b'}", {"0": "a", "-1": "b"}),
        ("{a:1,_b$:2}", {"a": 1, "_b$": 2}),
        ("{'a':'it\\'s \"x\"',}", {"a": 'it\'s "x"'}),
        ("[1,2,]", [1, 2]),
        (" { a : [ ] , b : { } } ", {"a": [], "b": {}}),
        ("{a:true,b:false,c:null}", {"a": True, "b": False, "c": None}),
        ("{a:-1.5e3,b:0.25}", {"a": -1500.0, "b": 0.25}),
        (r"{a:'\u4f60\x41\n\t\/\\'}", {"a": "你A\n\t/\\"}),
        (r"{a:'\ud83d\ude00'}", {"a": "😀"}),
        (r'["\ud83d"]', ["\ufffd"]),
        ("{{'a':1}:{'b':2},c:3}", ObjectKeys((({"a": 1}, {"b": 2}), ("c", 3)))),
        ("{a:1,a:2}", {"a": 2}),
    ],
)
def test_loads_the_dialect(text: str, expected: object) -> None:
    assert fastjson.loads(text.encode()) == expected


def test_loads_replaces_bytes_that_are_not_utf8() -> None:
    assert fastjson.loads(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "}",
        "[1",
        "[1 2]",
        "[,]",
        "{a}",
        "{a:}",
        "{a:1 b:2}",
        "{:1}",
        "{a:b}",
        "{a:ä}",
        "{a:true.x}",
        "'abc",
        "'abc\\",
        "'\\q'",
        "'\\u12'",
        "'\\u+123'",
        "{a:1}x",
        "{a:1e999}",
        "{a:-}",
        "{a:" + "9" * 400 + "}",
        "{a:NaN}",
        "{a:" * 101 + "1" + "}" * 101,
        "[" * 100_000,
        "{" * 100_000,
        "{a:" + "x" * 300_000,
    ],
)
def test_an_invalid_document_is_a_body_error(text: str) -> None:
    with pytest.raises(BodyError):
        fastjson.loads(text.encode())


@pytest.mark.parametrize(
    "path",
    [
        "$",
        "..",
        "@",
        "",
        "x",
        "$x",
        "$.",
        "$.b",
        "$.a[7]",
        "$.a.b",
        "$[0]",
        "$.a[",
        "$.a[-1]",
        "$.a[0]x",
        "$.r",
        "$.o",
        "$.n.x",
    ],
)
def test_an_unsupported_reference_is_a_body_error(path: str) -> None:
    document = {"a": [1], "n": None, "o": {"up": {"$ref": "$.a"}}, "r": {"$ref": path}}
    with pytest.raises(BodyError):
        fastjson.loads(orjson.dumps(document))


def test_loads_resolves_references_in_all_positions() -> None:
    text = "{x:{y:[{z:1}]},list:[{'$ref':'$.x.y[0]'}],{'$ref':'$.x.y[0]'}:{'$ref':'$.x'}}"
    with pytest.raises(BodyError):
        fastjson.loads(text.encode())
    text = "{x:{y:[{z:1}]},list:[{'$ref':'$.x.y[0]'}],map:{{'$ref':'$.x.y[0]'}:{'$ref':'$.x'}}}"
    assert fastjson.loads(text.encode()) == {
        "x": {"y": [{"z": 1}]},
        "list": [{"z": 1}],
        "map": ObjectKeys((({"z": 1}, {"y": [{"z": 1}]}),)),
    }


def test_loads_keeps_other_uses_of_the_reference_key() -> None:
    for value in ({"$ref": 1}, {"$ref": "$.a", "b": 1}, ["$ref"]):
        assert fastjson.loads(orjson.dumps(value)) == value


def test_too_many_references_are_a_body_error() -> None:
    document = {"a": 1, "r": [{"$ref": "$.a"}] * 1024}
    assert fastjson.loads(orjson.dumps(document))["r"] == [1] * 1024
    document["r"] = [{"$ref": "$.a"}] * 1025
    with pytest.raises(BodyError):
        fastjson.loads(orjson.dumps(document))


def test_references_may_add_256_kib() -> None:
    # 4 bytes for each list, string and number: the list has 1024 bytes.
    document: dict[str, Any] = {"a": [0] * 255, "r": [{"$ref": "$.a"}] * 256}
    assert fastjson.loads(orjson.dumps(document))["r"] == [[0] * 255] * 256
    document["r"].append({"$ref": "$.a"})
    with pytest.raises(BodyError, match="references make the document too large"):
        fastjson.loads(orjson.dumps(document))


def test_references_may_double_a_large_document() -> None:
    text = "x" * 300_000
    assert fastjson.loads(orjson.dumps({"a": text, "b": {"$ref": "$.a"}}))["b"] == text
    with pytest.raises(BodyError, match="references make the document too large"):
        fastjson.loads(orjson.dumps({"a": text, "b": {"$ref": "$.a"}, "c": {"$ref": "$.a"}}))


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(NAMES, inner, max_size=9)))
def test_references_to_anything_are_bounded_in_size(value: Any) -> None:
    document = orjson.dumps({"a": value, "r": [{"$ref": "$.a"}] * 1000})
    try:
        expanded = fastjson.loads(document)
    except BodyError:
        assert len(orjson.dumps(value)) > 50
    else:
        # Each item counts as at least 4 bytes, and orjson writes at most 6 bytes per character.
        assert len(orjson.dumps(expanded)) <= 8 * (256 * 1024 + len(document))


# Requests of clients.


@pytest.fixture
def rate(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the rate of the dialect by one of 1000 bytes per second, 20000 at once; return its time in a list."""
    now = [0.0]
    monkeypatch.setattr(fastjson, "_dialect_rate", fastjson.DialectRate(1000, 20_000, lambda: now[0]))
    return now


def _padded(text: bytes, size: int) -> bytes:
    return text + b" " * (size - len(text))


def test_load_request_accepts_standard_json_of_1_mib() -> None:
    assert fastjson.load_request(_padded(b'{"a":1}', 1024 * 1024)) == {"a": 1}
    with pytest.raises(BodyError, match="over the limit of 1048576"):
        fastjson.load_request(_padded(b'{"a":1}', 1024 * 1024 + 1))


def test_load_request_accepts_references_in_256_kib() -> None:
    text = b'{"a":1,"b":{"$ref":"$.a"}}'
    assert fastjson.load_request(_padded(text, 256 * 1024)) == {"a": 1, "b": 1}
    with pytest.raises(BodyError, match="with references is over the limit of 262144"):
        fastjson.load_request(_padded(text, 256 * 1024 + 1))


def test_load_request_accepts_the_dialect_in_16_kib(rate: list[float]) -> None:
    assert fastjson.load_request(_padded(b"{a:1}", 16 * 1024)) == {"a": 1}
    with pytest.raises(BodyError, match="not standard JSON"):
        fastjson.load_request(_padded(b"{a:1}", 16 * 1024 + 1))


def test_load_request_limits_the_rate_of_the_dialect(rate: list[float]) -> None:
    for _ in range(2):
        fastjson.load_request(_padded(b"{a:1}", 10_000))
    rate[0] = 9.999
    with pytest.raises(Overloaded, match="send standard JSON, or try again later"):
        fastjson.load_request(_padded(b"{a:1}", 10_000))
    assert fastjson.load_request(_padded(b'{"a":1}', 10_000)) == {"a": 1}
    rate[0] = 10.0
    assert fastjson.load_request(_padded(b"{a:1}", 10_000)) == {"a": 1}


@pytest.mark.parametrize("data", [b"[]", b"5", b"null", b'{"a":' + b"[" * 254 + b"]" * 254 + b"}"])
def test_load_request_rejects_other_documents(data: bytes) -> None:
    with pytest.raises(BodyError):
        fastjson.load_request(data)


def test_references_in_a_document_that_is_too_deep_are_a_body_error() -> None:
    with pytest.raises(BodyError):
        fastjson.loads(b'{"a":' * 1000 + b'{"$ref":"$.b"}' + b"}" * 1000)


@given(VALUES)
def test_dumps_writes_standard_json_if_all_keys_are_strings(value: Any) -> None:
    assert orjson.loads(fastjson.dumps(value)) == value


@given(VALUES)
def test_both_parsers_return_the_same(value: Any) -> None:
    # The trailing comma makes the fast parser fail.
    standard = orjson.dumps([value])
    assert fastjson.loads(standard) == fastjson.loads(standard[:-1] + b",]") == [value]


@given(st.dictionaries(INT64, VALUES))
def test_integer_keys_are_read_as_strings(value: dict[int, Any]) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == {str(key): item for key, item in value.items()}


@given(st.binary() | st.text("{}[]:,'\"\\$ref.0a-eu ").map(str.encode))
def test_garbage_is_a_body_error(data: bytes) -> None:
    with suppress(BodyError):
        fastjson.loads(data)


@pytest.mark.parametrize("value", [{1.5: 1}, {True: 1}, {None: 1}, {b"a": 1}, object(), b"bytes"])
def test_dumps_rejects_types_that_json_does_not_have(value: object) -> None:
    with pytest.raises(TypeError):
        fastjson.dumps(value)


def test_long_document_in_the_dialect_names_its_size_and_the_limit() -> None:
    document = b"{" + b",".join(b"{1:2}:3" for _ in range(40_000)) + b"}"
    with pytest.raises(BodyError, match=rf"its {len(document)} bytes are over the limit of 262144 for fastjson's"):
        fastjson.loads(document)
