"""Fields of refusals, as observed with RocketMQ 5.4's brokers."""

import pytest

from remoting.codes import RequestCode, ResponseCode, ToolCode
from tests.cluster.client import pull_fields
from tests.proxy.embedded.broker_harness import BrokerHarness

pytestmark = pytest.mark.anyio

_HANDLE = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


async def test_refusals_contain_unset_header_fields_as_zeros(harness: BrokerHarness) -> None:
    harness.topic("t")
    pops: list[tuple[int, dict[str, object]]] = [
        (ResponseCode.TOPIC_NOT_EXIST, {"topic": "nope"}),
        (29, {"queueId": 9}),
        (29, {"maxMsgNums": 33}),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, {"expType": "SQL92", "exp": "a >"}),
        (ResponseCode.POLLING_TIMEOUT, {"bornTime": 1}),
    ]
    for code, changes in pops:
        reply = harness.ask(RequestCode.POP_MESSAGE, {**harness.pop_fields("t"), **changes})
        assert (reply.code, reply.fields) == (code, {**_HANDLE, "restNum": "0"})
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    fields = harness.handle_fields("t", popped, invisibleTime=1000, offset=99)
    changed = harness.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    assert (changed.code, changed.fields) == (ResponseCode.NO_MESSAGE, _HANDLE)
    harness.send("t", b"y")
    peeked = harness.get(RequestCode.PEEK_MESSAGE, {"topic": "t", "queueId": 0, "consumerGroup": "g", "maxMsgNums": 1})
    assert peeked.fields == {**_HANDLE, "restNum": "1"}


async def test_a_forbidden_pull_returns_the_forbidden_type(harness: BrokerHarness) -> None:
    harness.topic("t", perm=2)
    reply = harness.ask(RequestCode.PULL_MESSAGE, pull_fields("t", "g"))
    assert (reply.code, reply.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "3"})
    # Other requests have no such field.
    assert "forbiddenType" not in harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t")).fields


@pytest.mark.parametrize("body", [b"", b"{}", b" {} \n", b'{"brokerName": "broker-a", "acks": []}'])
async def test_an_empty_batch_of_acknowledgements_is_rejected(harness: BrokerHarness, body: bytes) -> None:
    assert harness.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body).code == ResponseCode.NO_MESSAGE


async def test_a_rejected_recall_returns_the_region(harness: BrokerHarness) -> None:
    fields = {"topic": "nope", "recallHandle": "?", "producerGroup": "p"}
    reply = harness.ask(RequestCode.RECALL_MESSAGE, fields)
    assert (reply.code, reply.fields) == (ResponseCode.TOPIC_NOT_EXIST, {"MSG_REGION": "DefaultRegion"})


async def test_topics_are_listed_by_their_unit_flags(harness: BrokerHarness) -> None:
    for name, flag in (("plain", 0), ("unit", 1), ("retry", 2), ("both", 3)):
        harness.topic(name, topicSysFlag=flag)
    listed = {
        ToolCode.GET_UNIT_TOPIC_LIST: b'{"topicList":["both","unit"]}',
        ToolCode.GET_HAS_UNIT_SUB_TOPIC_LIST: b'{"topicList":["both","retry"]}',
        ToolCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: b'{"topicList":["retry"]}',
    }
    assert {code: harness.get(code).body for code in listed} == listed
