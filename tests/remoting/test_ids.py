import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import BodyError
from remoting.ids import OffsetMessageId, RecallHandle
from tests.remoting import golden

NAMES = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (golden.MESSAGE_ID_V4, OffsetMessageId("192.168.1.9", 10911, 0x123456789A)),
        (golden.MESSAGE_ID_V6, OffsetMessageId("2001:db8::7", 10911, 0x123456789A)),
    ],
)
def test_offset_message_ids_match_java(text: str, expected: OffsetMessageId) -> None:
    assert OffsetMessageId.parse(text) == OffsetMessageId.parse(text.lower()) == expected
    assert str(expected) == text


@given(st.ip_addresses().map(str), st.integers(0, 0xFFFF), st.integers(-(2**63), 2**63 - 1))
def test_format_then_parse_an_offset_message_id(host: str, port: int, offset: int) -> None:
    parsed = OffsetMessageId.parse(str(OffsetMessageId(host, port, offset)))
    assert (parsed.port, parsed.offset) == (port, offset)
    assert OffsetMessageId.parse(str(parsed)) == parsed


@given(st.text() | st.text("0123456789abcdefABCDEF ", min_size=32, max_size=32))
def test_a_garbled_offset_message_id_is_a_body_error(text: str) -> None:
    with suppress(BodyError):
        OffsetMessageId.parse(text)


@pytest.mark.parametrize(
    "text", ["", golden.MESSAGE_ID_V4[:-1], golden.MESSAGE_ID_V4 + "00", "C0A80109FF002A9F" + "0" * 16]
)
def test_an_invalid_offset_message_id_is_a_body_error(text: str) -> None:
    with pytest.raises(BodyError):
        OffsetMessageId.parse(text)


HANDLE = RecallHandle("TopicTest", "broker-a", 1700000000123, "AC11000100002A9F0000000000000000")


def test_recall_handles_match_java() -> None:
    assert RecallHandle.parse(golden.RECALL_HANDLE) == HANDLE
    assert RecallHandle.parse(golden.RECALL_HANDLE.rstrip("=")) == HANDLE
    assert str(HANDLE) == golden.RECALL_HANDLE


@given(st.builds(RecallHandle, NAMES, NAMES, st.integers(0, 2**63 - 1), NAMES))
def test_format_then_parse_a_recall_handle(handle: RecallHandle) -> None:
    assert RecallHandle.parse(str(handle)) == handle


@pytest.mark.parametrize("rest", [b" ", b" more", b" \xff", b" \xf0\x9f \xff"])
def test_the_rest_of_a_recall_handle_is_ignored_as_in_java(rest: bytes) -> None:
    handle = base64.urlsafe_b64encode(b"v1 t b 1 i" + rest).decode()
    assert RecallHandle.parse(handle) == RecallHandle("t", "b", 1, "i")


@given(st.text() | st.text().map(lambda text: base64.urlsafe_b64encode(text.encode(errors="replace")).decode()))
def test_a_garbled_recall_handle_is_a_body_error(text: str) -> None:
    with pytest.raises(BodyError):
        RecallHandle.parse(text)


@pytest.mark.parametrize(
    "raw",
    [b"v2 t b 1 i", b"v1 t b 1", b"v1 t b x i", b"v1  b 1 i", b"v1 t  1 i", b"v1 t b 1 ", b"\xff", b"v1 t b 1 i\xff"],
)
def test_an_invalid_recall_handle_is_a_body_error(raw: bytes) -> None:
    with pytest.raises(BodyError):
        RecallHandle.parse(base64.urlsafe_b64encode(raw).decode())
