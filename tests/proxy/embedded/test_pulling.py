"""PULL: results, filters, long polls; offsets and their resets."""

import orjson
import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import pull_fields, subscription
from tests.proxy.embedded.broker_harness import START, BrokerHarness
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio

_RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def _bodies(body: bytes) -> list[bytes]:
    return [message.body for message in messages.decode_messages(body)]


@pytest.mark.parametrize(
    ("sent", "offset", "code", "following"),
    [
        (0, 0, ResponseCode.PULL_NOT_FOUND, 0),
        (0, 5, ResponseCode.PULL_OFFSET_MOVED, 0),
        (3, 0, ResponseCode.SUCCESS, 3),
        (3, 2, ResponseCode.SUCCESS, 3),
        (3, 3, ResponseCode.PULL_NOT_FOUND, 3),
        (3, 9, ResponseCode.PULL_OFFSET_MOVED, 3),
        (3, -1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
async def test_a_pull_outside_the_bounds_returns_the_next_offset(
    harness: BrokerHarness, sent: int, offset: int, code: ResponseCode, following: int
) -> None:
    harness.topic("t")
    for number in range(sent):
        harness.send("t", b"%d" % number)
    reply = harness.pull("t", offset=offset)
    assert (reply.code, reply.fields["nextBeginOffset"]) == (code, str(following))
    assert (reply.fields["minOffset"], reply.fields["maxOffset"]) == ("0", str(sent))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 1}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"subscription": "a >", "expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"topic": "closed"}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_invalid_pulls_are_rejected(
    harness: BrokerHarness, changes: dict[str, object], code: ResponseCode
) -> None:
    harness.topic("t")
    harness.topic("closed", perm=2)
    reply = harness.ask(RequestCode.PULL_MESSAGE, {**pull_fields("t", "g"), **changes})
    assert (reply.code, bool(reply.remark)) == (code, True)


@pytest.mark.parametrize(
    ("expression", "kind", "found"),
    [
        ("*", "TAG", [b"0", b"1", b"2", b"3"]),
        ("a", "TAG", [b"0", b"3"]),
        ("a || b", "TAG", [b"0", b"1", b"3"]),
        (" * ", "TAG", []),
        ("n >= 2", "SQL92", [b"2", b"3"]),
        ("TAGS is null or TAGS = 'b'", "SQL92", [b"1", b"2"]),
    ],
)
async def test_a_pull_returns_the_messages_that_match_its_filter(
    harness: BrokerHarness, expression: str, kind: str, found: list[bytes]
) -> None:
    harness.topic("t")
    for number, tag in enumerate(("a", "b", "", "a")):
        harness.send("t", b"%d" % number, {"n": str(number), **({"TAGS": tag} if tag else {})})
    reply = harness.pull("t", subscription=expression, expressionType=kind)
    assert (_bodies(reply.body), reply.fields["nextBeginOffset"]) == (found, "4")


async def test_a_pull_without_matches_advances_by_a_limited_number_of_messages(harness: BrokerHarness) -> None:
    harness.topic("t")
    for _ in range(1000):
        harness.send("t", pairs={"TAGS": "a"})
    for expression, kind in (("b", "TAG"), ("TAGS = 'b'", "SQL92")):
        offset, looks = 0, 0
        while offset < 1000:
            reply = harness.pull("t", offset=offset, subscription=expression, expressionType=kind)
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            offset, looks = int(reply.fields["nextBeginOffset"]), looks + 1
        assert looks <= 4


@pytest.mark.parametrize("codes", [[], [98], ["98"], ["-1", "98", "?", None, True, 1.5]])
async def test_a_pull_uses_the_subscription_of_its_group(harness: BrokerHarness, codes: list[object]) -> None:
    """Go clients write the hash codes of tags as strings."""
    harness.topic("t")
    harness.send("t", b"1", {"TAGS": "a"})
    harness.send("t", b"2", {"TAGS": "b"})
    harness.join({"g": ["t"]}, subscriptionDataSet=[{**subscription("t", "b"), "codeSet": codes}])
    fields = {**pull_fields("t", "g"), "sysFlag": 0, "subVersion": 1_700_000_000_000}
    assert _bodies(harness.get(RequestCode.PULL_MESSAGE, fields).body) == [b"2"]
    later = harness.ask(RequestCode.PULL_MESSAGE, {**fields, "subVersion": 1_700_000_000_001})
    assert later.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    elsewhere = harness.ask(RequestCode.PULL_MESSAGE, {**fields, "topic": "TBW102"})
    assert elsewhere.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_the_version_of_a_subscription_may_be_a_string(harness: BrokerHarness) -> None:
    """C++ clients write it so."""
    harness.topic("t")
    harness.send("t", b"1")
    fields = {**pull_fields("t", "g"), "sysFlag": 0, "subVersion": 1_700_000_000_000}
    harness.join({"g": ["t"]}, subscriptionDataSet=[{**subscription("t", "*"), "subVersion": "1700000000000"}])
    assert _bodies(harness.get(RequestCode.PULL_MESSAGE, fields).body) == [b"1"]
    for other in ("x", "9" * 5000, "\u00b2"):
        harness.join({"h": ["t"]}, subscriptionDataSet=[{**subscription("t", "*"), "subVersion": other}])
        reply = harness.ask(RequestCode.PULL_MESSAGE, {**fields, "consumerGroup": "h"})
        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_pull_waits_for_a_message_that_matches(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", pairs={"TAGS": "a"})
    fields = {**pull_fields("t", "g", offset=1, wait=10_000), "subscription": "b"}
    reply = harness.begin(RequestCode.PULL_MESSAGE, fields)
    harness.send("t", b"not this", {"TAGS": "a"})
    assert not reply.done()
    harness.send("t", b"this", {"TAGS": "b"})
    assert _bodies(reply.result().body) == [b"this"]
    assert harness.broker.waiting_pulls.total == 0


async def test_a_waiting_pull_ends_at_its_deadline(harness: BrokerHarness) -> None:
    harness.topic("t")
    gone = FakeChannel()
    kept = harness.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", wait=1000))
    left = harness.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", wait=1000), channel=gone)
    gone.closed = True
    harness.pass_time(900)
    assert not kept.done()
    harness.pass_time(100)
    assert kept.result().code == ResponseCode.PULL_NOT_FOUND
    # The response has no receiver, but requests in flight are counted until they end.
    assert left.result().code == ResponseCode.PULL_NOT_FOUND
    assert harness.broker.waiting_pulls.total == 0


async def test_a_pull_commits_the_given_offset(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t")
    fields = pull_fields("t", "g")
    harness.get(RequestCode.PULL_MESSAGE, {**fields, "sysFlag": 1 | 4, "commitOffset": 1})
    harness.restart()
    query = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert harness.get(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "1"


async def test_a_new_group_has_no_offset_or_zero(harness: BrokerHarness) -> None:
    harness.topic("t")
    query = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert harness.ask(RequestCode.QUERY_CONSUMER_OFFSET, query).code == ResponseCode.QUERY_NOT_FOUND
    harness.send("t")
    assert harness.get(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "0"
    unset = harness.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**query, "setZeroIfNotFound": False})
    assert unset.code == ResponseCode.QUERY_NOT_FOUND
    commit = {**query, "commitOffset": 1}
    assert harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    harness.join({"g": ["t"]})
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    wrong = harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**commit, "topic": "absent"})
    assert wrong.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reset_is_returned_by_the_next_pull(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]})
    for number in range(5):
        harness.send("t", b"%d" % number)
        harness.now += 1000
    queue = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 5})
    reset = {"topic": "t", "group": "g", "timestamp": START + 2000, "isForce": True}
    reply = harness.get(_RESET, reset)
    assert b'"queueId":0' in reply.body
    harness.restart()
    # A commit of the client's previous offset must not undo the reset.
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 5})
    assert harness.get(RequestCode.QUERY_CONSUMER_OFFSET, queue).fields["offset"] == "2"
    moved = harness.pull("t", offset=5)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
    assert harness.pull("t", offset=2).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "offset"),
    [
        # A reset without force also moves forward.
        ({"timestamp": START + 3000}, "3"),
        ({"timestamp": -1}, "5"),
        ({"timestamp": -2}, "5"),
        ({"timestamp": 0}, "0"),
        ({"timestamp": 0, "queueId": 0}, "0"),
        ({"timestamp": 0, "queueId": 0, "offset": 4}, "4"),
        ({"timestamp": 0, "queueId": 0, "offset": -1}, "0"),
        # As in brokers, one beyond the end is accepted.
        ({"timestamp": 0, "queueId": 0, "offset": 6}, "6"),
    ],
)
async def test_a_reset_moves_a_group_to_a_time_or_an_offset(
    harness: BrokerHarness, changes: dict[str, object], offset: str
) -> None:
    harness.topic("t")
    for _ in range(5):
        harness.send("t")
        harness.now += 1000
    harness.join({"g": ["t"]})
    queue = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 1})
    reply = harness.get(_RESET, {"topic": "t", "group": "g", "isForce": False, **changes})
    assert f'"queueId":0}}:{offset}'.encode() in reply.body
    assert harness.get(RequestCode.QUERY_CONSUMER_OFFSET, queue).fields["offset"] == offset


@pytest.mark.parametrize("offset", [7, -2, 2**63 - 1])
async def test_a_reset_to_an_offset_outside_the_queue_is_rejected(harness: BrokerHarness, offset: int) -> None:
    harness.topic("t")
    for _ in range(5):
        harness.send("t")
    harness.join({"g": ["t"]})
    fields = {"topic": "t", "group": "g", "timestamp": 0, "isForce": True, "queueId": 0, "offset": offset}
    assert harness.ask(_RESET, fields).code == ResponseCode.SYSTEM_ERROR
    assert harness.broker.offsets.get("t", "g", 0) == -1


async def test_a_reset_covers_all_queues_to_read_from(harness: BrokerHarness) -> None:
    harness.topic("t", readQueueNums=3, writeQueueNums=1)
    harness.topic("none", readQueueNums=0, writeQueueNums=1)
    harness.join({"g": ["t", "none"]})
    reset = {"group": "g", "timestamp": 0, "isForce": True}
    harness.get(_RESET, {**reset, "topic": "t"})
    assert harness.broker.offsets.of("t", "g") == {0: 0, 1: 0, 2: 0}
    assert harness.ask(_RESET, {**reset, "topic": "none"}).code == ResponseCode.SYSTEM_ERROR


async def test_pulls_suggest_the_master_whatever_the_group_says(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g","brokerId":1}')
    harness.send("t")
    assert harness.pull("t").fields["suggestWhichBrokerId"] == "0"


async def test_a_reset_is_pushed_to_clients_if_so_configured() -> None:
    harness = BrokerHarness(BrokerSettings(server_side_reset=False))
    harness.topic("t")
    reset = {"topic": "t", "group": "g", "timestamp": -1, "isForce": False}
    harness.send("t")
    harness.join({"g": ["t"]})
    assert harness.ask(_RESET, reset).code == ResponseCode.SYSTEM_ERROR
    harness.get(
        RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 0}
    )
    harness.get(_RESET, {**reset, "isForce": True})
    command = harness.pushed[-1][1]
    assert (command.code, command.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
    assert command.body == b'{"offsetTable":{{"topic":"t","brokerName":"broker-a","queueId":0}:1}}'


async def test_offsets_are_found_by_time(harness: BrokerHarness) -> None:
    harness.topic("t")
    for _ in range(3):
        harness.send("t")
        harness.now += 1000
    found = {}
    for boundary in ("LOWER", "UPPER", None):
        for time in (-1, 0, 500, 1000, 2000, 2500):
            fields = {"topic": "t", "queueId": 0, "timestamp": START + time, "boundaryType": boundary}
            reply = harness.get(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            found[boundary, time] = int(reply.fields["offset"])
    assert [found["LOWER", time] for time in (-1, 0, 500, 1000, 2000, 2500)] == [0, 0, 1, 1, 2, 3]
    assert [found["UPPER", time] for time in (-1, 0, 500, 1000, 2000, 2500)] == [0, 0, 0, 1, 2, 2]
    assert found[None, 500] == 1
    empty = harness.get(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": harness.topic("e"), "queueId": 0})
    assert empty.fields["timestamp"] == "-1"


async def test_a_pull_with_an_invalid_subscription_is_rejected(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]}, subscriptionDataSet=[subscription("t", "a >", "SQL92")])
    reply = harness.ask(RequestCode.PULL_MESSAGE, {**pull_fields("t", "g"), "sysFlag": 0})
    assert reply.code == 27
    body = {"clientId": "c", "group": "g", "subscriptionData": subscription("t", "a >", "SQL92")}
    check = harness.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(body))
    assert check.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
