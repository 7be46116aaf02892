import base64
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.batch_ack import BatchAck, BatchAckBody, batch_acks
from remoting.errors import BodyError
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry
from tests.remoting import golden

INT31 = st.integers(0, 2**31 - 1)
INT63 = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=10)
HANDLE = ExtraInfo(40, 1700000000789, 60000, 999, Retry.V2, "broker-a", 3, 42)
ACK = BatchAck("group", "TopicTest", Retry.NORMAL, 40, 3, 1, 1700000000789, 60000, 0b10_0000_0101)
BODY = BatchAckBody("broker-a", (ACK,))


def test_batch_acks_match_java() -> None:
    assert BatchAckBody.decode(golden.BATCH_ACK) == BODY
    assert orjson.loads(BODY.encode()) == orjson.loads(golden.BATCH_ACK)
    assert list(ACK.queue_offsets()) == [40, 42, 49]


def test_decode_accepts_long_names() -> None:
    raw = b"""{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"t","retry":"1","startOffset":7,
        "queueId":"2","bitSet":"BQ=="}]}"""
    [ack] = BatchAckBody.decode(raw).acks
    assert ack == BatchAck("g", "t", Retry.V1, 7, 2, 0, 0, 0, 0b101)


ACKS = st.builds(
    BatchAck, NAMES, NAMES, st.sampled_from(Retry), INT63, INT31, INT31, INT63, INT63, st.integers(0, 2**70)
)


@given(st.builds(BatchAckBody, NAMES, st.lists(ACKS, max_size=3).map(tuple)))
def test_encode_then_decode_returns_the_same_body(body: BatchAckBody) -> None:
    assert BatchAckBody.decode(body.encode()) == body


def test_batch_acks_groups_handles_by_checkpoint() -> None:
    first = replace(HANDLE, retry=Retry.NORMAL)
    handles = [first, replace(first, queue_offset=40), replace(first, queue_id=4), replace(first, pop_time=1)]
    acks = batch_acks("T", "g", handles)
    assert [(ack.queue_id, ack.pop_time, list(ack.queue_offsets())) for ack in acks] == [
        (3, 1700000000789, [40, 42]),
        (4, 1700000000789, [42]),
        (3, 1, [42]),
    ]
    assert {(ack.topic, ack.consumer_group, ack.revive_queue_id) for ack in acks} == {("T", "g", 999)}


@pytest.mark.parametrize("offset", [39, 40 + 8 * 64 * 1024])
def test_an_offset_outside_of_its_checkpoint_is_a_body_error(offset: int) -> None:
    with pytest.raises(BodyError):
        batch_acks("T", "g", [replace(HANDLE, queue_offset=offset)])


@pytest.mark.parametrize(
    "change",
    [
        {"r": "3"},
        {"r": None},
        {"b": "*"},
        {"b": 5},
        {"b": "ä"},
        {"b": base64.b64encode(bytes(64 * 1024 + 1)).decode()},
        {"so": "x"},
        {"so": []},
        {"so": True},
        {"q": 1.5},
        {"c": 1},
    ],
)
def test_an_invalid_ack_is_a_body_error(change: dict[str, object]) -> None:
    entry = orjson.loads(golden.BATCH_ACK)["acks"][0]
    with pytest.raises(BodyError):
        BatchAckBody.decode(orjson.dumps({"brokerName": "b", "acks": [{**entry, **change}]}))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"brokerName":"b","acks":{"a":1}}', b'{"brokerName":"b","acks":[1]}']
)
def test_an_invalid_body_is_a_body_error(raw: bytes) -> None:
    with pytest.raises(BodyError):
        BatchAckBody.decode(raw)
