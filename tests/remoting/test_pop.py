from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import messages, pop
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry
from tests.remoting import golden

TIMES = {"popTime": "1700000000789", "invisibleTime": "60000", "reviveQid": "999"}
FIELDS = {
    **TIMES,
    "restNum": "5",
    "startOffsetInfo": golden.START_OFFSET_INFO,
    "msgOffsetInfo": golden.MSG_OFFSET_INFO,
    "orderCountInfo": golden.ORDER_COUNT_INFO,
}
INT31 = st.integers(0, 2**31 - 1)
INT63 = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=10)


# Handles.

HANDLE = ExtraInfo(40, 1700000000789, 60000, 999, Retry.V2, "broker-a", 3, 42)


def test_handles_match_java() -> None:
    assert ExtraInfo.parse(golden.EXTRA_INFO) == HANDLE
    assert str(HANDLE) == golden.EXTRA_INFO
    assert HANDLE.visible_at == 1700000060789
    assert HANDLE.is_order


@given(st.builds(ExtraInfo, INT63, INT63, INT63, INT31, st.sampled_from(Retry), NAMES, INT31, INT63))
def test_format_then_parse_returns_the_same_handle(handle: ExtraInfo) -> None:
    assert ExtraInfo.parse(str(handle)) == handle
    assert ExtraInfo.parse(f"{handle} 4711") == handle


@pytest.mark.parametrize("text", ["", "1 2 3 4 0 b 6", "1 2 3 4 5 b 6 7", "1 2 3 4 0  6 7", "1 2 3 x 0 b 6 7"])
def test_an_invalid_handle_is_a_body_error(text: str) -> None:
    with pytest.raises(BodyError):
        ExtraInfo.parse(text)


def test_the_checkpoint_of_a_changed_handle_starts_at_its_message() -> None:
    changed = HANDLE.changed({"popTime": "5", "invisibleTime": "6", "reviveQid": "7"})
    assert str(changed) == "42 5 6 7 2 broker-a 3 42"


@pytest.mark.parametrize("missing", ["popTime", "invisibleTime", "reviveQid"])
def test_changed_requires_all_fields(missing: str) -> None:
    with pytest.raises(BodyError, match=missing):
        HANDLE.changed({name: value for name, value in TIMES.items() if name != missing})


@given(text=st.text() | st.text("012 ;,qo%-"))
def test_a_garbled_handle_raises_only_body_errors(text: str) -> None:
    with suppress(BodyError):
        ExtraInfo.parse(text)


# Responses to POP.


def _summary(popped: list[pop.PoppedMessage]) -> list[tuple[str, int, int]]:
    return [(str(message.extra_info), message.reconsume_times, message.first_pop_time) for message in popped]


def test_popped_returns_the_handles_of_javas_client() -> None:
    stored = messages.decode_messages(golden.POP_BODY)
    popped = pop.popped(stored, "TopicTest", FIELDS, "broker-a")
    # Of one message Java's client takes the handle of another pop, which only a producer can have set.
    foreign = ("7 1 2 3 1 broker-a 3 9", 2, 11)
    computed = ("40 1700000000789 60000 999 0 broker-a 3 9", 1, 11)
    assert _summary(popped) == [computed if handle == foreign else handle for handle in golden.POPPED]
    assert [message.message for message in popped] == stored


def test_popped_without_start_offsets_starts_each_queue_at_its_first_message() -> None:
    stored = messages.decode_messages(golden.POP_BODY)
    assert _summary(pop.popped(stored, "TopicTest", TIMES, "broker-a")) == golden.POPPED_BARE


def test_popped_without_messages_needs_no_offsets() -> None:
    assert pop.popped([], "TopicTest", TIMES, "broker-a") == []


def test_a_missing_message_offset_is_taken_from_the_message() -> None:
    fields = {**TIMES, "startOffsetInfo": "0 3 40"}
    [message] = pop.popped([StoredMessage(topic="T", queue_id=3, queue_offset=41)], "T", fields, "b")
    assert (message.extra_info.start_offset, message.extra_info.queue_offset) == (40, 41)


def test_a_listed_message_offset_overrides_that_of_the_message() -> None:
    fields = {**TIMES, "startOffsetInfo": "0 3 40", "msgOffsetInfo": "0 3 44"}
    [message] = pop.popped([StoredMessage(topic="T", queue_id=3, queue_offset=41)], "T", fields, "b")
    assert message.extra_info.queue_offset == 44


def test_a_retried_message_with_its_original_topic_keeps_its_stored_handle() -> None:
    """If the broker restores the original topic of a retried message, POP_CK identifies the retry topic."""
    fields = {**TIMES, "startOffsetInfo": "1 0 5;0 0 8", "msgOffsetInfo": "1 0 5;0 0 9"}
    handle = "5 1700000000789 60000 999 1 b 0 5"
    retried = StoredMessage(topic="T", queue_offset=5, properties=f"POP_CK\x01{handle}\x02")
    popped = pop.popped([retried, StoredMessage(topic="T", queue_offset=9)], "T", fields, "b")
    assert [str(message.extra_info) for message in popped] == [handle, "8 1700000000789 60000 999 0 b 0 9"]


@pytest.mark.parametrize(
    "forged",
    [
        "5 1800000000000 60000 999 1 b 0 5",
        "5 1700000000789 60000 999 1 c 0 5",
        "5 1700000000789 60000 999 1 b 1 5",
        "5 1700000000789 60000 999 1 b 0 6",
        "5",
    ],
)
@pytest.mark.parametrize(("retry", "attempts"), [(0, 0), (1, 1), (2, 1)])
def test_a_handle_that_a_producer_has_set_is_not_taken(forged: str, retry: int, attempts: int) -> None:
    """Brokers do not remove it from the messages of a batch, and keep it when they redeliver such a message."""
    fields = {**TIMES, "startOffsetInfo": f"{retry} 0 5", "msgOffsetInfo": f"{retry} 0 5"}
    message = StoredMessage(topic="T", queue_offset=5, reconsume_times=attempts, properties=f"POP_CK\x01{forged}\x02")
    [popped] = pop.popped([message], "T", fields, "b")
    assert str(popped.extra_info) == f"5 1700000000789 60000 999 {retry} b 0 5"


def test_a_message_of_a_light_message_queue_has_the_offset_of_that_queue() -> None:
    stored = StoredMessage(
        topic="parent",
        queue_id=7,
        queue_offset=1000,
        properties="INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x0111,22\x02",
    )
    fields = {**TIMES, "startOffsetInfo": "0 0 20", "msgOffsetInfo": "0 0 22", "orderCountInfo": "0 qo0%22 3"}
    [message] = pop.popped([stored], "%LMQ%b", fields, "b")
    assert str(message.extra_info) == "20 1700000000789 60000 999 0 b 0 22"
    assert message.reconsume_times == 3
    with pytest.raises(BodyError):
        pop.popped([stored], "%LMQ%c", fields, "b")
    with pytest.raises(BodyError):
        pop.popped([replace(stored, properties="INNER_MULTI_DISPATCH\x01%LMQ%b")], "%LMQ%b", fields, "b")


@pytest.mark.parametrize(
    "change",
    [
        {"popTime": "x"},
        {"startOffsetInfo": "0 9 1"},
        {"startOffsetInfo": "garbage"},
        {"msgOffsetInfo": "garbage"},
        {"orderCountInfo": "garbage"},
    ],
)
def test_an_invalid_pop_response_is_a_body_error(change: dict[str, str]) -> None:
    with pytest.raises(BodyError):
        pop.popped([StoredMessage(topic="TopicTest", queue_id=3)], "TopicTest", {**FIELDS, **change}, "b")


# Responses to POP_LITE_MESSAGE.


def _lite(offset: int) -> StoredMessage:
    return StoredMessage(
        topic="T", queue_id=3, queue_offset=900 + offset, properties=f"INNER_MULTI_QUEUE_OFFSET\x01{offset}\x02"
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ("0;0 qo0%8 3", [0, 3]),
        ("2;1", [2, 1]),
        (";", [0, 0]),
        ("0 0", [0, 0]),
        # A list of another length is ignored.
        ("1", [0, 0]),
        ("1;2;3", [0, 0]),
        (None, [0, 0]),
    ],
)
def test_popped_lite_returns_handles_and_counts_in_order(counts: str | None, expected: list[int]) -> None:
    fields = TIMES if counts is None else {**TIMES, "orderCountInfo": counts}
    popped = pop.popped_lite([_lite(7), _lite(8)], fields, "broker-a")
    times = f"{TIMES['popTime']} {TIMES['invisibleTime']} {TIMES['reviveQid']}"
    assert [str(message.extra_info) for message in popped] == [f"0 {times} 0 broker-a 0 {offset}" for offset in (7, 8)]
    assert [message.reconsume_times for message in popped] == expected


@pytest.mark.parametrize("missing", ["popTime", "invisibleTime", "reviveQid"])
def test_popped_lite_requires_all_fields(missing: str) -> None:
    with pytest.raises(BodyError, match=missing):
        pop.popped_lite([], {name: value for name, value in TIMES.items() if name != missing}, "b")


def test_popped_lite_rejects_an_invalid_count() -> None:
    with pytest.raises(BodyError):
        pop.popped_lite([_lite(7)], {**TIMES, "orderCountInfo": "many"}, "b")


@pytest.mark.parametrize("name", ["POP_CK", "1ST_POP_TIME"])
def test_an_invalid_property_of_one_message_keeps_the_response_readable(name: str) -> None:
    fields = {**TIMES, "startOffsetInfo": "0 3 40", "msgOffsetInfo": "0 3 40,41"}
    invalid = StoredMessage(topic="T", queue_id=3, queue_offset=40, properties=f"{name}\x01nonsense\x02")
    popped = pop.popped([invalid, StoredMessage(topic="T", queue_id=3, queue_offset=41)], "T", fields, "b")
    assert [message.extra_info.queue_offset for message in popped] == [40, 41]
    assert {message.first_pop_time for message in popped} == {int(TIMES["popTime"])}
