"""Members of groups, locks, assignments."""

from collections.abc import Mapping
from typing import Any, cast

import orjson
import pytest

from proxy.embedded.broker.group_notices import BURST, INTERVAL
from proxy.embedded.broker.settings import BrokerSettings
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.cluster.client import message_queue, subscription
from tests.proxy.embedded.broker_harness import BrokerHarness
from tests.proxy.fakes import FakeChannel, peer

pytestmark = pytest.mark.anyio


def _json(reply: RemotingCommand) -> Mapping[str, Any]:
    found: Mapping[str, Any] = orjson.loads(reply.body)
    return found


def _ids(harness: BrokerHarness, group: str = "g") -> object:
    return _json(harness.get(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}))["consumerIdList"]


def _told(harness: BrokerHarness) -> list[object]:
    """Return the clients notified of changes since the last call, and within an interval."""
    harness.pass_time(INTERVAL)
    return _notified(harness)


def _notified(harness: BrokerHarness) -> list[object]:
    """Return the clients notified of changes since the last call."""
    notified: list[object] = [
        channel for channel, command in harness.pushed if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    ]
    harness.pushed.clear()
    return notified


async def test_members_are_notified_of_joins_and_leaves(harness: BrokerHarness) -> None:
    harness.topic("t")
    one, two = FakeChannel(), FakeChannel()
    beat = harness.join({"g": ["t"]}, channel=one, name="one")
    assert beat.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert _told(harness) == [one]
    harness.join({"g": ["t"]}, channel=two, name="two")
    assert (_told(harness), _ids(harness)) == ([one, two], ["one", "two"])
    harness.join({"g": ["t"]}, channel=two, name="two")
    assert _told(harness) == []
    harness.topic("u")
    newer = [subscription("t"), subscription("u")]
    harness.join({"g": []}, channel=two, name="two", subscriptionDataSet=newer)
    assert len(_told(harness)) == 2
    harness.get(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", "consumerGroup": "g"}, channel=two)
    assert (_told(harness), _ids(harness)) == ([one], ["one"])
    harness.broker.channel_closed(one)
    assert harness.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code == ResponseCode.SYSTEM_ERROR
    assert (
        harness.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}).code
        == ResponseCode.CONSUMER_NOT_ONLINE
    )


async def test_members_that_start_together_are_notified_of_each_other_at_once(harness: BrokerHarness) -> None:
    """A member that does not know another one consumes from its queues: messages would be delivered twice."""
    harness.topic("t")
    members = [FakeChannel() for _ in range(BURST)]
    for number, member in enumerate(members):
        harness.join({"g": ["t"]}, channel=member, name=f"member-{number}")
        assert _notified(harness) == members[: number + 1]


async def test_notices_beyond_a_burst_are_coalesced(harness: BrokerHarness) -> None:
    """Of 100 changes, those of the burst and one for all others, as soon as the notices permit it."""
    harness.topic("t")
    member, other = FakeChannel(), FakeChannel()
    harness.join({"g": ["t"]}, channel=member, name="member")
    for _ in range(50):
        harness.join({"g": ["t"]}, channel=other, name="other")
        harness.get(RequestCode.UNREGISTER_CLIENT, {"clientID": "other", "consumerGroup": "g"}, channel=other)
    assert _notified(harness).count(member) == BURST
    assert _told(harness).count(member) == 1
    assert _told(harness) == []
    harness.pass_time(BURST * INTERVAL)
    harness.join({"g": ["t"]}, channel=other, name="other")
    assert _notified(harness) == [member, other]


async def test_a_closed_connection_leaves_its_own_groups_only(harness: BrokerHarness) -> None:
    members = harness.broker.members
    one, two = FakeChannel(), FakeChannel()
    harness.join({"g": ["t"], "h": ["t"]}, producers=["p", "q"], channel=one, name="client")
    harness.join({"g": ["t"]}, producers=["p"], channel=two, name="client")
    assert members.groups_after(one, "client", ["p", "r"], ["g"]) == 5
    assert members.producer_channels("client") == [one, two]
    harness.broker.channel_closed(one)
    assert (set(members.consumers), set(members.producers)) == ({"g"}, {"p"})
    assert (list(members.consumers["g"].clients), list(members.producers["p"])) == ([two], [two])
    assert members.producer_channels("client") == [two]
    assert members.groups_after(one, "client", [], []) == 0
    harness.broker.channel_closed(two)
    assert not members.consumers
    assert not members.producers
    assert members.producer_channels("client") == []


async def test_another_client_id_of_a_connection_is_found_by_its_own_groups(harness: BrokerHarness) -> None:
    members, channel = harness.broker.members, FakeChannel()
    harness.join({}, producers=["p"], channel=channel, name="former")
    harness.join({}, producers=["p"], channel=channel, name="present")
    assert (members.producer_channels("former"), members.producer_channels("present")) == ([], [channel])
    assert members.groups_after(channel, "former", [], []) == 0


async def test_broadcasting_members_are_not_notified(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]}, messageModel="BROADCASTING")
    harness.join({"g": ["t"]}, channel=FakeChannel(), name="two", messageModel="BROADCASTING")
    assert _told(harness) == []


async def test_enums_of_a_heartbeat_may_be_ordinals(harness: BrokerHarness) -> None:
    """C++ clients send them so."""
    harness.topic("t")
    harness.join({"g": ["t"]}, consumeType=1, messageModel=0, consumeFromWhere=4)
    harness.join({"g": ["t"]}, channel=FakeChannel(), name="two", consumeType=1, messageModel=0, consumeFromWhere=4)
    body = orjson.loads(harness.get(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}).body)
    found = (body["consumeType"], body["messageModel"], body["consumeFromWhere"])
    assert found == ("CONSUME_PASSIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")
    # As of other broadcasting groups, members are not notified.
    assert _told(harness) == []


async def test_a_heartbeat_creates_the_retry_topic(harness: BrokerHarness) -> None:
    harness.join({"g": ["t"]})
    topic = harness.broker.topics.get("%RETRY%g")
    assert topic is not None
    assert topic.read == 1


async def test_a_member_without_heartbeats_is_removed(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]}, producers=["p"])
    harness.pass_time(131_000, step=5000)
    assert harness.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code == ResponseCode.SYSTEM_ERROR
    assert harness.broker.members.producers_in_turn("p") == []


async def test_heartbeats_without_subscriptions_keep_them(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]})
    body = {
        "clientID": "c",
        "heartbeatFingerprint": 7,
        "withoutSub": True,
        "consumerDataSet": [{"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}],
    }
    reply = harness.get(RequestCode.HEART_BEAT, {}, orjson.dumps(body))
    assert reply.fields["IS_SUB_CHANGE"] == "false"
    assert harness.broker.members.subscription("g", "t") is not None


async def test_producers_take_turns(harness: BrokerHarness) -> None:
    channels = [FakeChannel(), FakeChannel(), FakeChannel()]
    for channel in channels:
        harness.join(producers=["p"], channel=channel)
    channels[1].closed = True
    turns = [
        [channels.index(cast(FakeChannel, channel)) for channel in harness.broker.members.producers_in_turn("p")]
        for _ in range(4)
    ]
    assert turns in ([[0, 2], [2, 0]] * 2, [[2, 0], [0, 2]] * 2)


async def test_connections_of_producers_and_consumers_are_listed(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]}, producers=["p"])
    consumers = _json(harness.get(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}))
    producers = _json(harness.get(204, {"producerGroup": "p"}))
    for found in (consumers, producers):
        [connection] = found["connectionSet"]
        assert (connection["clientId"], connection["clientAddr"]) == ("c", "192.0.2.7:50000")
    assert harness.ask(204, {"producerGroup": "nobody"}).code == ResponseCode.SYSTEM_ERROR
    assert b'"remoteIP":"192.0.2.7:50000"' in harness.get(328).body


# Locks.


def _lock(harness: BrokerHarness, client: str, queues: list[int], code: int = RequestCode.LOCK_BATCH_MQ) -> list[int]:
    body = {"consumerGroup": "g", "clientId": client, "mqSet": [message_queue("t", queue) for queue in queues]}
    reply = harness.get(code, {}, orjson.dumps(body))
    return [queue["queueId"] for queue in orjson.loads(reply.body)["lockOKMQSet"]] if reply.body else []


async def test_a_queue_lock_excludes_other_clients_until_it_expires(harness: BrokerHarness) -> None:
    assert _lock(harness, "one", [0, 1]) == [0, 1]
    assert _lock(harness, "two", [0, 1, 2]) == [2]
    harness.now += 50_000
    assert _lock(harness, "one", [0]) == [0]
    harness.now += 20_000
    assert _lock(harness, "two", [0, 1]) == [1]
    _lock(harness, "one", [0, 1], RequestCode.UNLOCK_BATCH_MQ)
    assert _lock(harness, "three", [0, 1]) == [0]


async def test_one_address_does_not_take_all_places_of_locks() -> None:
    """Clients choose the names of groups and queues."""
    harness = BrokerHarness(BrokerSettings(max_locks=90))
    other = FakeChannel(peer("192.0.2.8:50000"))

    def lock(group: str, queues: range, code: int, channel: FakeChannel) -> int:
        mq_set = [message_queue("t", queue) for queue in queues]
        body = orjson.dumps({"consumerGroup": group, "clientId": "c", "mqSet": mq_set})
        reply = harness.get(code, {}, body, channel)
        return len(orjson.loads(reply.body)["lockOKMQSet"]) if reply.body else 0

    granting, releasing = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
    assert sum(lock(f"g{number}", range(10), granting, FakeChannel()) for number in range(30)) == 60
    assert lock("g0", range(10), granting, FakeChannel()) == 10, "those that it holds are renewed"
    assert lock("g", range(16), granting, other) == 16
    lock("g0", range(10), releasing, FakeChannel())
    assert lock("g", range(16, 20), granting, other) == 4
    harness.pass_time(80_000, step=10_000)
    assert lock("g", range(100), granting, other) == 60


async def test_a_failed_message_of_an_orderly_group_is_dead_lettered_immediately(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]})
    _lock(harness, "c", [0])
    harness.send("%RETRY%g", b"x", {"DELAY": "3"}, reconsumeTimes=1)
    assert harness.bodies("%DLQ%g") == [b"x"]


# Assignments.


def _assigned(
    harness: BrokerHarness, client: str, strategy: str = "AVG", **changes: object
) -> list[tuple[int, str]] | None:
    question = {
        "topic": "t",
        "consumerGroup": "g",
        "clientId": client,
        "strategyName": strategy,
        "messageModel": "CLUSTERING",
        **changes,
    }
    reply = harness.get(RequestCode.QUERY_ASSIGNMENT, {}, orjson.dumps(question))
    found = orjson.loads(reply.body).get("messageQueueAssignments")
    return None if found is None else [(item["messageQueue"]["queueId"], item["mode"]) for item in found]


def _queues(harness: BrokerHarness, client: str, strategy: str = "AVG") -> list[int]:
    return [queue for queue, _ in _assigned(harness, client, strategy) or ()]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [("AVG", [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]), ("AVG_BY_CIRCLE", [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]])],
)
async def test_queue_assignment_follows_the_strategy(
    harness: BrokerHarness, strategy: str, shares: list[list[int]]
) -> None:
    harness.topic("t", queues=10)
    for name in "abc":
        harness.join({"g": ["t"]}, channel=FakeChannel(), name=name)
    assert [_queues(harness, name, strategy) for name in "abc"] == shares
    assert _assigned(harness, "a", "MAGIC") is None
    assert _assigned(harness, "stranger") == []
    assert len(_assigned(harness, "a", messageModel="BROADCASTING") or ()) == 10
    assert _assigned(harness, "a", topic="absent") is None


async def test_queue_assignment_of_popping_groups_follows_the_share(harness: BrokerHarness) -> None:
    harness.topic("t", queues=4)
    for name in "abcd":
        harness.join({"g": ["t"]}, channel=FakeChannel(), name=name)

    def share(number: int, mode: str = "POP") -> None:
        body = {"topic": "t", "consumerGroup": "g", "mode": mode, "popShareQueueNum": number}
        harness.get(401, {}, orjson.dumps(body))

    share(8)
    harness.restart()
    for name in "abcd":
        harness.join({"g": ["t"]}, channel=FakeChannel(), name=name)
    assert _assigned(harness, "a") == [(-1, "POP")]
    share(1)
    assert _queues(harness, "d") == [3, 0]
    share(-1, "PULL")
    assert _assigned(harness, "d") == [(3, "PULL")]
    assert b'"popShareQueueNum":-1' in harness.get(402).body
    wrong = {"topic": "absent", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 1}
    assert harness.ask(401, {}, orjson.dumps(wrong)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_locks_that_are_not_renewed_are_removed(harness: BrokerHarness) -> None:
    body = b'{"consumerGroup":"%b","clientId":"c","mqSet":[{"topic":"t","brokerName":"broker-a","queueId":%d}]}'
    for number in range(10):
        harness.get(RequestCode.LOCK_BATCH_MQ, {}, body % (b"g%d" % number, number))
    assert len(harness.broker.locks._locks) == 10
    harness.pass_time(60_000, step=10_000)
    harness.get(RequestCode.LOCK_BATCH_MQ, {}, body % (b"g1", 1))
    harness.pass_time(20_000, step=10_000)
    assert list(harness.broker.locks._locks) == ["g1"]
