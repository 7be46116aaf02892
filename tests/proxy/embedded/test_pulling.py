"""Pulling: outcomes, filters, waiting; offsets and their resets."""

import orjson
import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import pull_fields, subscription
from tests.proxy.embedded.bench import START, Bench
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


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
    bench: Bench, sent: int, offset: int, code: ResponseCode, following: int
) -> None:
    bench.topic("t")
    for number in range(sent):
        bench.send("t", b"%d" % number)
    reply = bench.pull("t", offset=offset)
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
async def test_invalid_pulls_are_rejected(bench: Bench, changes: dict[str, object], code: ResponseCode) -> None:
    bench.topic("t")
    bench.topic("closed", perm=2)
    reply = bench.ask(RequestCode.PULL_MESSAGE, {**pull_fields("t", "g"), **changes})
    assert (reply.code, bool(reply.remark)) == (code, True)


@pytest.mark.parametrize(
    ("expression", "kind", "found"),
    [
        ("*", "TAG", [b"0", b"1", b"2", b"3"]),
        ("a", "TAG", [b"0", b"3"]),
        ("a || b", "TAG", [b"0", b"1", b"3"]),
        ("n >= 2", "SQL92", [b"2", b"3"]),
        ("TAGS is null or TAGS = 'b'", "SQL92", [b"1", b"2"]),
    ],
)
async def test_a_pull_returns_the_messages_that_match_its_filter(
    bench: Bench, expression: str, kind: str, found: list[bytes]
) -> None:
    bench.topic("t")
    for number, tag in enumerate(("a", "b", "", "a")):
        bench.send("t", b"%d" % number, {"n": str(number), **({"TAGS": tag} if tag else {})})
    reply = bench.pull("t", subscription=expression, expressionType=kind)
    assert (_bodies(reply.body), reply.fields["nextBeginOffset"]) == (found, "4")


async def test_a_pull_without_matches_advances_by_a_limited_number_of_messages(bench: Bench) -> None:
    bench.topic("t")
    for _ in range(1000):
        bench.send("t", pairs={"TAGS": "a"})
    for expression, kind in (("b", "TAG"), ("TAGS = 'b'", "SQL92")):
        offset, looks = 0, 0
        while offset < 1000:
            reply = bench.pull("t", offset=offset, subscription=expression, expressionType=kind)
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            offset, looks = int(reply.fields["nextBeginOffset"]), looks + 1
        assert looks <= 4


@pytest.mark.parametrize("codes", [[], [98], ["98"], ["-1", "98", "?", None, True, 1.5]])
async def test_a_pull_uses_the_subscription_of_its_group(bench: Bench, codes: list[object]) -> None:
    """Go clients write the hashes of tags as texts."""
    bench.topic("t")
    bench.send("t", b"1", {"TAGS": "a"})
    bench.send("t", b"2", {"TAGS": "b"})
    bench.join({"g": ["t"]}, subscriptionDataSet=[{**subscription("t", "b"), "codeSet": codes}])
    fields = {**pull_fields("t", "g"), "sysFlag": 0, "subVersion": 1_700_000_000_000}
    assert _bodies(bench.get(RequestCode.PULL_MESSAGE, fields).body) == [b"2"]
    later = bench.ask(RequestCode.PULL_MESSAGE, {**fields, "subVersion": 1_700_000_000_001})
    assert later.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    elsewhere = bench.ask(RequestCode.PULL_MESSAGE, {**fields, "topic": "TBW102"})
    assert elsewhere.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_pull_waits_for_a_message_that_matches(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", pairs={"TAGS": "a"})
    fields = {**pull_fields("t", "g", offset=1, wait=10_000), "subscription": "b"}
    reply = bench.begin(RequestCode.PULL_MESSAGE, fields)
    bench.send("t", b"not this", {"TAGS": "a"})
    assert not reply.done()
    bench.send("t", b"this", {"TAGS": "b"})
    assert _bodies(reply.result().body) == [b"this"]
    assert bench.broker.waiting_pulls.total == 0


async def test_a_waiting_pull_ends_at_its_deadline(bench: Bench) -> None:
    bench.topic("t")
    gone = FakeChannel()
    kept = bench.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", wait=1000))
    left = bench.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", wait=1000), channel=gone)
    gone.closed = True
    bench.pass_time(900)
    assert not kept.done()
    bench.pass_time(100)
    assert kept.result().code == ResponseCode.PULL_NOT_FOUND
    # Nobody hears it, but who counts what is under way must learn of its end.
    assert left.result().code == ResponseCode.PULL_NOT_FOUND
    assert bench.broker.waiting_pulls.total == 0


async def test_a_pull_commits_the_given_offset(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t")
    fields = pull_fields("t", "g")
    bench.get(RequestCode.PULL_MESSAGE, {**fields, "sysFlag": 1 | 4, "commitOffset": 1})
    bench.restart()
    query = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert bench.get(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "1"


async def test_a_new_group_has_no_offset_or_zero(bench: Bench) -> None:
    bench.topic("t")
    query = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert bench.ask(RequestCode.QUERY_CONSUMER_OFFSET, query).code == ResponseCode.QUERY_NOT_FOUND
    bench.send("t")
    assert bench.get(RequestCode.QUERY_CONSUMER_OFFSET, query).fields["offset"] == "0"
    unset = bench.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**query, "setZeroIfNotFound": False})
    assert unset.code == ResponseCode.QUERY_NOT_FOUND
    commit = {**query, "commitOffset": 1}
    assert bench.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    bench.join({"g": ["t"]})
    bench.get(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    wrong = bench.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**commit, "topic": "absent"})
    assert wrong.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reset_is_returned_by_the_next_pull(bench: Bench) -> None:
    bench.topic("t")
    bench.join({"g": ["t"]})
    for number in range(5):
        bench.send("t", b"%d" % number)
        bench.now += 1000
    queue = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    bench.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 5})
    reset = {"topic": "t", "group": "g", "timestamp": START + 2000, "isForce": True}
    reply = bench.get(222, reset)
    assert b'"queueId":0' in reply.body
    bench.restart()
    # What the client still believes must not undo it.
    bench.get(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 5})
    assert bench.get(RequestCode.QUERY_CONSUMER_OFFSET, queue).fields["offset"] == "2"
    moved = bench.pull("t", offset=5)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
    assert bench.pull("t", offset=2).code == ResponseCode.SUCCESS


async def test_a_reset_is_pushed_to_clients_if_so_configured() -> None:
    bench = Bench(BrokerSettings(server_side_reset=False))
    bench.topic("t")
    reset = {"topic": "t", "group": "g", "timestamp": -1, "isForce": False}
    bench.send("t")
    bench.join({"g": ["t"]})
    assert bench.ask(222, reset).code == ResponseCode.SYSTEM_ERROR
    bench.get(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 0})
    bench.get(222, {**reset, "isForce": True})
    command = bench.pushed[-1][1]
    assert (command.code, command.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
    assert command.body == b'{"offsetTable":{{"topic":"t","brokerName":"broker-a","queueId":0}:1}}'


async def test_offsets_are_found_by_time(bench: Bench) -> None:
    bench.topic("t")
    for _ in range(3):
        bench.send("t")
        bench.now += 1000
    found = {}
    for boundary in ("LOWER", "UPPER", None):
        for time in (-1, 0, 500, 1000, 2000, 2500):
            fields = {"topic": "t", "queueId": 0, "timestamp": START + time, "boundaryType": boundary}
            reply = bench.get(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            found[boundary, time] = int(reply.fields["offset"])
    assert [found["LOWER", time] for time in (-1, 0, 500, 1000, 2000, 2500)] == [0, 0, 1, 1, 2, 3]
    assert [found["UPPER", time] for time in (-1, 0, 500, 1000, 2000, 2500)] == [0, 0, 0, 1, 2, 2]
    assert found[None, 500] == 1
    empty = bench.get(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": bench.topic("e"), "queueId": 0})
    assert empty.fields["timestamp"] == "-1"


async def test_a_pull_with_an_invalid_subscription_is_rejected(bench: Bench) -> None:
    bench.topic("t")
    bench.join({"g": ["t"]}, subscriptionDataSet=[subscription("t", "a >", "SQL92")])
    reply = bench.ask(RequestCode.PULL_MESSAGE, {**pull_fields("t", "g"), "sysFlag": 0})
    assert reply.code == 27
    body = {"clientId": "c", "group": "g", "subscriptionData": subscription("t", "a >", "SQL92")}
    check = bench.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(body))
    assert check.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
