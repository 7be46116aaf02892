from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import pop_offset_info
from remoting.errors import BodyError
from remoting.pop_offset_info import OrderKey, QueueKey, Retry, real_topic, retry_of
from tests.remoting import golden

INT31 = st.integers(0, 2**31 - 1)
INT63 = st.integers(0, 2**63 - 1)
QUEUES = st.tuples(st.sampled_from(Retry), INT31)


def test_offset_information_matches_java() -> None:
    starts = {(Retry.NORMAL, 3): 40, (Retry.V1, 0): 5, (Retry.V2, 0): 6}
    offsets = {(Retry.NORMAL, 3): (40, 42), (Retry.V1, 0): (5,), (Retry.V2, 0): (6,)}
    counts = {(Retry.NORMAL, 3, None): 1, (Retry.NORMAL, 3, 42): 4}
    assert pop_offset_info.parse_start_offset_info(golden.START_OFFSET_INFO) == starts
    assert pop_offset_info.parse_msg_offset_info(golden.MSG_OFFSET_INFO) == offsets
    assert pop_offset_info.parse_order_count_info(golden.ORDER_COUNT_INFO) == counts
    assert pop_offset_info.format_start_offset_info(starts) == golden.START_OFFSET_INFO
    assert pop_offset_info.format_msg_offset_info(offsets) == golden.MSG_OFFSET_INFO
    assert pop_offset_info.format_order_count_info(counts) == golden.ORDER_COUNT_INFO


@given(st.dictionaries(QUEUES, INT63))
def test_format_then_parse_returns_the_same_start_offsets(offsets: dict[QueueKey, int]) -> None:
    assert pop_offset_info.parse_start_offset_info(pop_offset_info.format_start_offset_info(offsets)) == offsets


@given(st.dictionaries(QUEUES, st.lists(INT63, min_size=1, max_size=5).map(tuple)))
def test_format_then_parse_returns_the_same_message_offsets(offsets: dict[QueueKey, tuple[int, ...]]) -> None:
    assert pop_offset_info.parse_msg_offset_info(pop_offset_info.format_msg_offset_info(offsets)) == offsets


@given(st.dictionaries(st.tuples(st.sampled_from(Retry), INT31, st.none() | INT63), INT31))
def test_format_then_parse_returns_the_same_order_counts(counts: dict[OrderKey, int]) -> None:
    assert pop_offset_info.parse_order_count_info(pop_offset_info.format_order_count_info(counts)) == counts


PARSERS = [
    pop_offset_info.parse_start_offset_info,
    pop_offset_info.parse_msg_offset_info,
    pop_offset_info.parse_order_count_info,
]


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text() | st.text("012 ;,qo%-"))
def test_garbled_text_raises_only_body_errors(parse: object, text: str) -> None:
    with suppress(BodyError):
        parse(text)  # type: ignore[operator]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    ["0 1", "0 1 2 3", "0 1 2;", "3 1 2", "0 x 2", "0 1 x", "0 1 2;0 1 3", "0 1 1_0", "0 1 ٣", "0 1 " + "9" * 20],
)
def test_invalid_offset_information_is_a_body_error(parse: object, text: str) -> None:
    with pytest.raises(BodyError):
        parse(text)  # type: ignore[operator]


@pytest.mark.parametrize(("retry", "topic"), [(Retry.NORMAL, "T"), (Retry.V1, "%RETRY%g_T"), (Retry.V2, "%RETRY%g+T")])
def test_real_topic_by_retry_flag(retry: Retry, topic: str) -> None:
    assert real_topic("T", "g", retry) == topic
    assert retry_of(topic) is retry
