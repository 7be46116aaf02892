"""Receipt handles: parsing, creation and validation."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.consuming.receipt_handle import ReceiptHandle, handle_from_pop, make_handle
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry

_TEXT = "3 1700000000000 60000 2 1 broker-a 4 5"
_MAX_LONG = 2**63 - 1


# The form of a handle, beside the ranges of its numbers.
_FORMAT = re.compile(
    r"([0-9]{1,19} ){3}[0-9]{1,10} [012] [^\x00-\x20\x7f]{1,255} [0-9]{1,10} [0-9]{1,19}"
    r"( -?[0-9]{1,19}( [!-~]{1,64})?)?"
)


def _fields(handle: ReceiptHandle) -> tuple[object, ...]:
    return (
        handle.start_offset,
        handle.pop_time,
        handle.invisible_time,
        handle.revive_queue_id,
        handle.retry,
        handle.broker_name,
        handle.queue_id,
        handle.queue_offset,
        handle.commit_log_offset,
        handle.renewal_id,
    )


def test_parse_returns_all_fields() -> None:
    handle = ReceiptHandle.parse(f"{_TEXT} 4711 replica-7")
    assert _fields(handle) == (3, 1700000000000, 60000, 2, "1", "broker-a", 4, 5, 4711, "replica-7")
    assert handle.text == f"{_TEXT} 4711 replica-7"
    assert handle.visible_at == 1700000060000
    assert not handle.is_order


@pytest.mark.parametrize("text", [_TEXT, f"{_TEXT} 4711", f"{_TEXT} -1"])
def test_parse_accepts_handles_of_official_proxies(text: str) -> None:
    handle = ReceiptHandle.parse(text)
    assert handle.text == text
    assert handle.renewal_id == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nonsense",
        _TEXT.rsplit(" ", 1)[0],
        f" {_TEXT}",
        f"{_TEXT} ",
        f"{_TEXT}\n",
        f"{_TEXT} 1 h extra",
        _TEXT.replace(" 1 broker", " 3 broker"),
        _TEXT.replace("broker-a", ""),
        _TEXT.replace("broker-a", "a\x01b"),
        _TEXT.replace("broker-a", "b" * 256),
        _TEXT.replace("60000", "-1"),
        _TEXT.replace("60000", "٣"),
        _TEXT.replace(" 4 ", " 4294967296 "),
        _TEXT.replace("1700000000000", str(_MAX_LONG + 1)),
        f"{_TEXT} {_MAX_LONG + 1}",
        "9" * 100_000,
    ],
)
def test_parse_rejects_invalid_handles(text: str) -> None:
    with pytest.raises(Refused) as refused:
        ReceiptHandle.parse(text)
    assert refused.value.code == Code.INVALID_RECEIPT_HANDLE


@given(st.text())
def test_parse_raises_only_refused(text: str) -> None:
    with contextlib.suppress(Refused):
        assert ReceiptHandle.parse(text).text == text


@given(
    longs=st.tuples(*[st.integers(0, _MAX_LONG)] * 4),
    numbers=st.tuples(*[st.integers(0, 2**31 - 1)] * 2),
    retry=st.sampled_from("012"),
    broker=st.text(st.characters(min_codepoint=0x21, exclude_categories=["Cc", "Cs"]), min_size=1, max_size=255),
    stored=st.integers(-1, _MAX_LONG),
    renewal_id=st.sampled_from(["", "a1b2-17"]),
)
def test_parse_reads_handles_of_make_handle(
    longs: tuple[int, ...], numbers: tuple[int, ...], retry: str, broker: str, stored: int, renewal_id: str
) -> None:
    start, popped, invisible, offset = longs
    handle = make_handle(start, popped, invisible, numbers[0], retry, broker, numbers[1], offset, stored, renewal_id)
    parsed = ReceiptHandle.parse(handle.text)
    assert parsed == handle
    assert hash(parsed) == hash(handle)
    assert _fields(parsed) == _fields(handle)


@given(st.from_regex(_FORMAT, fullmatch=True) | st.from_regex(_FORMAT).map(lambda text: text[:60]))
def test_parse_accepts_what_has_the_format(text: str) -> None:
    found = _FORMAT.fullmatch(text)
    refusal = None
    handle: ReceiptHandle | None = None
    try:
        handle = ReceiptHandle.parse(text)
    except Refused as refused:
        refusal = str(refused)
    if handle is None:
        assert found is None or (refusal is not None and "out of range" in refusal)
    else:
        assert found
        assert [str(field) for field in _fields(handle)[:4]] == [str(int(number)) for number in text.split(" ")[:4]]


def test_handle_from_pop_contains_the_fields_of_the_broker() -> None:
    info = ExtraInfo(3, 1700000000000, 60000, 999, Retry.V2, "broker-a", 4, 5)
    handle = handle_from_pop(info, 4711, "replica-7")
    assert ExtraInfo.parse(handle.text) == handle.info == info
    assert handle.is_order
    assert (handle.commit_log_offset, handle.renewal_id) == (4711, "replica-7")


def test_changed_handle_has_no_renewal_id() -> None:
    changed = ReceiptHandle.parse(f"{_TEXT} 4711 replica-7").changed(1800000000000, 1000, 6)
    assert changed.text == "5 1800000000000 1000 6 1 broker-a 4 5 4711"
