"""POP: invisible time, acknowledgement, redelivery, long polls, restarts."""

from dataclasses import replace

import pytest

from proxy.embedded.broker import popping
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Corrupt
from remoting import pop_offset_info, properties
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.pop_offset_info import Retry
from tests.proxy.embedded.broker_harness import BrokerHarness, texts
from tests.proxy.fakes import FakeChannel, peer

pytestmark = pytest.mark.anyio


async def test_popped_messages_are_redelivered_after_their_invisible_time(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number, {"KEYS": f"k{number}"})
    popped = harness.pop("t")
    assert texts(popped) == [b"0", b"1", b"2"]
    assert [one.extra_info.start_offset for one in popped] == [0, 0, 0]
    assert harness.pop("t") == []
    harness.ack("t", popped[1])
    harness.pass_time(9_900)
    assert harness.pop("t") == []
    first_time = harness.now - 9_900
    harness.pass_time(100)
    again = harness.pop("t")
    assert texts(again) == [b"0", b"2"]
    for one in again:
        assert (one.extra_info.retry, one.reconsume_times, one.first_pop_time) == (Retry.V1, 1, first_time)
        assert one.message.topic == "t"
        harness.ack("t", one)
    harness.pass_time(60_000, step=1000)
    assert harness.pop("t") == []
    assert len(harness.broker.checkpoints) == 0
    assert [message.get("KEYS") for message in harness.stored("%RETRY%g_t")] == ["k0", "k2"]


@pytest.mark.parametrize(("v2", "name"), [(False, "%RETRY%g_t"), (True, "%RETRY%g+t")])
async def test_retry_topics_of_both_versions_are_popped(v2: bool, name: str) -> None:
    harness = BrokerHarness(BrokerSettings(retry_topic_v2=v2))
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t")
    harness.pass_time(10_000)
    assert harness.bodies(name) == [b"x"]
    [again] = harness.pop("t")
    assert again.extra_info.retry is (Retry.V2 if v2 else Retry.V1)
    harness.pass_time(10_000)
    [third] = harness.pop("t")
    assert third.reconsume_times == 2


async def test_pops_without_acknowledgement_are_limited(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popping, "MAX_UNACKNOWLEDGED", 3)
    harness.topic("t")
    for number in range(8):
        harness.send("t", b"%d" % number)
    popped = [harness.pop("t", maxMsgNums=2)[0] for _ in range(3)]
    refused = harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=5_000))
    assert refused.code == ResponseCode.POLLING_FULL
    assert refused.remark == "the group g has 3 pops without acknowledgement in t, which is the maximum"
    assert len(harness.pop("t", "h")) == 8, "another group"
    harness.ack("t", popped[0])
    assert harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t")).code == ResponseCode.POLLING_FULL
    harness.pass_time(10_000)
    assert len(harness.pop("t")) == 7, "those that are visible again, and the last two"
    assert (harness.broker.checkpoints.count("t", "g"), harness.broker.checkpoints.count("%RETRY%g_t", "g")) == (1, 1)


async def test_groups_pop_independently(harness: BrokerHarness) -> None:
    harness.topic("t", queues=3)
    for queue in range(3):
        harness.send("t", b"%d" % queue, queue=queue)
    for group in ("g", "h"):
        assert sorted(texts(harness.pop("t", group))) == [b"0", b"1", b"2"]
    assert texts(harness.pop("t", "i", queueId=1)) == [b"1"]


async def test_a_pop_returns_at_most_its_count_and_the_remaining_number(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(50):
        harness.send("t", b"%d" % number)
    reply = harness.get(RequestCode.POP_MESSAGE, harness.pop_fields("t", maxMsgNums=20))
    assert (len(harness.popped(reply, "t")), reply.fields["restNum"]) == (20, "30")
    assert pop_offset_info.parse_msg_offset_info(reply.fields["msgOffsetInfo"]) == {(Retry.NORMAL, 0): tuple(range(20))}


async def test_a_pop_skips_messages_that_do_not_match(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(6):
        harness.send("t", b"%d" % number, {"TAGS": "ab"[number % 2], "n": str(number)})
    popped = harness.pop("t", exp="b", expType="TAG")
    assert texts(popped) == [b"1", b"3", b"5"]
    assert [one.extra_info.queue_offset for one in popped] == [1, 3, 5]
    harness.ack("t", popped[1])
    harness.pass_time(10_000)
    assert texts(harness.pop("t", exp="b", expType="TAG")) == [b"1", b"5"]
    assert texts(harness.pop("t", "h", exp="n < 2", expType="SQL92")) == [b"0", b"1"]
    bad = harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t", exp="n <", expType="SQL92"))
    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_batch_acknowledges_several_messages(harness: BrokerHarness) -> None:
    harness.topic("t", queues=2)
    for number in range(10):
        harness.send("t", b"%d" % number, queue=number % 2)
    popped = harness.pop("t")
    acks = batch_acks("t", "g", [one.extra_info for one in popped if one.message.body != b"7"])
    harness.get(RequestCode.BATCH_ACK_MESSAGE, {}, BatchAckBody("broker-a", acks).encode())
    harness.pass_time(10_000)
    assert texts(harness.pop("t")) == [b"7"]
    empty = harness.ask(RequestCode.BATCH_ACK_MESSAGE, {}, BatchAckBody("broker-a", ()).encode())
    assert empty.code == ResponseCode.NO_MESSAGE


async def test_change_invisible_time_redelivers_at_the_new_time(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    harness.pass_time(5000)
    fields = harness.change("t", popped, 20_000)
    handle = popped.extra_info.changed(fields)
    assert (handle.pop_time, handle.invisible_time) == (harness.now, 20_000)
    # The previous handle has expired.
    harness.ack("t", popped)
    harness.pass_time(19_900)
    assert harness.pop("t") == []
    harness.pass_time(100)
    assert texts(harness.pop("t")) == [b"x"]


async def test_the_invisible_time_is_changed_in_the_millisecond_of_the_pop(harness: BrokerHarness) -> None:
    """Both handles would have the same pop time; the new one gets the next ms and its whole invisible time."""
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    handle = popped.extra_info.changed(harness.change("t", popped, 20_000))
    assert (handle.pop_time, handle.invisible_time) == (harness.now + 1, 20_000)
    harness.ack("t", popped)
    harness.pass_time(20_000)
    assert harness.pop("t") == []
    harness.pass_time(1)
    assert texts(harness.pop("t")) == [b"x"]


async def test_changes_within_a_millisecond_do_not_bring_an_expired_handle_back(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    second = replace(popped, extra_info=popped.extra_info.changed(harness.change("t", popped, 20_000)))
    third = replace(second, extra_info=second.extra_info.changed(harness.change("t", second, 20_000)))
    assert len({one.extra_info.pop_time for one in (popped, second, third)}) == 3
    harness.ack("t", popped)
    harness.ack("t", second)
    harness.pass_time(21_000)
    assert texts(harness.pop("t")) == [b"x"]


async def test_a_late_change_of_the_invisible_time_redelivers_nothing(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    harness.ack("t", popped)
    harness.change("t", popped, 1000)
    harness.pass_time(60_000, step=1000)
    assert harness.pop("t") == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"offset": 5}, ResponseCode.NO_MESSAGE),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"queueId": 1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queueId": -1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"extraInfo": "?"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_invalid_acknowledgements_are_rejected(
    harness: BrokerHarness, changes: dict[str, object], code: ResponseCode
) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    fields = {**harness.handle_fields("t", popped, invisibleTime=1), **changes}
    for request in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        assert harness.ask(request, fields).code == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 1}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"bornTime": 1000}, ResponseCode.POLLING_TIMEOUT),
    ],
)
async def test_invalid_pops_are_rejected(
    harness: BrokerHarness, changes: dict[str, object], code: ResponseCode
) -> None:
    harness.topic("t")
    assert harness.ask(RequestCode.POP_MESSAGE, {**harness.pop_fields("t"), **changes}).code == code


async def test_a_new_group_begins_by_its_init_mode(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number)
    assert len(harness.pop("t", "first", initMode=0)) == 3
    # A queue that still has its first message is consumed from its start.
    assert len(harness.pop("t", "last", initMode=1)) == 3


async def test_a_restart_neither_loses_nor_duplicates_messages(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(6):
        harness.send("t", b"%d" % number)
    popped = harness.pop("t", maxMsgNums=4)
    harness.ack("t", popped[0])
    changed = popped[2].extra_info.changed(harness.change("t", popped[2], 30_000))
    harness.restart()
    assert texts(harness.pop("t")) == [b"4", b"5"]
    harness.ack("t", popped[1])
    harness.pass_time(10_000)
    assert sorted(texts(harness.pop("t", invisibleTime=100_000))) == [b"3", b"4", b"5"]
    harness.restart()
    harness.pass_time(20_000, step=1000)
    # The new handle has the next millisecond, since the old one has this.
    harness.pass_time(1)
    assert changed.queue_offset == 2
    assert texts(harness.pop("t")) == [b"2"]


# Long polls.


async def test_a_pop_waits_for_a_message(harness: BrokerHarness) -> None:
    harness.topic("t", queues=2)
    fields = harness.pop_fields("t", pollTime=10_000)
    anywhere = harness.begin(RequestCode.POP_MESSAGE, fields)
    second = harness.begin(RequestCode.POP_MESSAGE, {**fields, "queueId": 1})
    info = harness.get(RequestCode.POLLING_INFO, {"topic": "t", "consumerGroup": "g", "queueId": -1})
    assert info.fields["pollingNum"] == "1"
    harness.send("t", b"0", queue=0)
    assert texts(harness.popped(anywhere.result(), "t")) == [b"0"]
    assert not second.done()
    harness.send("t", b"1", queue=1)
    assert texts(harness.popped(second.result(), "t")) == [b"1"]


async def test_a_message_wakes_one_pop(harness: BrokerHarness) -> None:
    harness.topic("t")
    waiting = [harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=10_000)) for _ in range(3)]
    harness.send("t", b"x")
    assert [reply.done() for reply in waiting] == [True, False, False]
    harness.pass_time(9_800)
    assert not waiting[1].done()
    harness.pass_time(200)
    assert waiting[1].result().code == waiting[2].result().code == ResponseCode.POLLING_TIMEOUT


async def test_a_closed_client_receives_no_message(harness: BrokerHarness) -> None:
    harness.topic("t")
    gone = FakeChannel()
    left = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=10_000), channel=gone)
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=10_000))
    gone.closed = True
    harness.send("t", b"x")
    assert texts(harness.popped(waiting.result(), "t")) == [b"x"]
    assert left.result().code == ResponseCode.POLLING_TIMEOUT


async def test_a_message_wakes_only_pops_that_it_matches(harness: BrokerHarness) -> None:
    harness.topic("t")
    fields = harness.pop_fields("t", pollTime=10_000, exp="b", expType="TAG")
    waiting = harness.begin(RequestCode.POP_MESSAGE, fields)
    harness.send("t", b"a", {"TAGS": "a"})
    assert not waiting.done()
    harness.send("t", b"b", {"TAGS": "b"})
    assert texts(harness.popped(waiting.result(), "t")) == [b"b"]


async def test_a_redelivered_message_wakes_a_pop(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t", invisibleTime=2000)
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=10_000))
    notice = harness.begin(
        RequestCode.NOTIFICATION, {"topic": "t", "consumerGroup": "g", "queueId": -1, "pollTime": 10_000, "bornTime": 0}
    )
    harness.pass_time(2000)
    assert texts(harness.popped(waiting.result(), "t")) == [b"x"]
    assert not notice.done()


async def test_a_notification_waits_for_a_message(harness: BrokerHarness) -> None:
    harness.topic("t")
    fields = {"topic": "t", "consumerGroup": "g", "queueId": 0, "pollTime": 5000, "bornTime": 0}
    waiting = harness.begin(RequestCode.NOTIFICATION, fields)
    in_vain = harness.begin(RequestCode.NOTIFICATION, {**fields, "consumerGroup": "h", "queueId": -1, "pollTime": 100})
    harness.pass_time(200)
    assert in_vain.result().fields == {"hasMsg": "false", "pollingFull": "false"}
    harness.send("t", b"x")
    assert waiting.result().fields["hasMsg"] == "true"
    assert harness.get(RequestCode.NOTIFICATION, fields).fields["hasMsg"] == "true"
    peek = harness.get(RequestCode.PEEK_MESSAGE, {**fields, "maxMsgNums": 5})
    assert (len(harness.stored("t")), peek.fields["restNum"]) == (1, "1")
    harness.pop("t")
    assert harness.ask(RequestCode.PEEK_MESSAGE, {**fields, "maxMsgNums": 5}).code == ResponseCode.PULL_NOT_FOUND


async def test_pops_over_the_limit_of_long_polls_are_rejected() -> None:
    harness = BrokerHarness(BrokerSettings(max_polls=2))
    harness.topic("t")
    for _ in range(2):
        assert not harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=1000)).done()
    full = harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t", pollTime=1000))
    assert full.code == ResponseCode.POLLING_FULL
    fields = {"topic": "t", "consumerGroup": "g", "queueId": 0, "pollTime": 5000, "bornTime": 0}
    assert harness.get(RequestCode.NOTIFICATION, fields).fields == {"hasMsg": "false", "pollingFull": "true"}


@pytest.mark.parametrize(
    "settings", [BrokerSettings(max_polls=90), BrokerSettings(max_polls_per_queue=90)], ids=["all", "queue"]
)
async def test_one_address_does_not_take_all_places_of_pops(settings: BrokerSettings) -> None:
    harness = BrokerHarness(settings)
    harness.topic("t")
    pop = harness.pop_fields("t", pollTime=10_000)
    waiting = [harness.begin(RequestCode.POP_MESSAGE, pop, channel=FakeChannel()) for _ in range(200)]
    assert 60 <= sum(not reply.done() for reply in waiting) <= 61
    other = FakeChannel(peer("192.0.2.8:50000"))
    assert not harness.begin(RequestCode.POP_MESSAGE, pop, channel=other).done()
    notice = {"topic": "t", "consumerGroup": "g", "queueId": -1, "pollTime": 10_000, "bornTime": 0}
    assert not harness.begin(RequestCode.NOTIFICATION, notice, channel=other).done()


async def test_a_waiting_pop_skips_many_messages_that_do_not_match(harness: BrokerHarness) -> None:
    harness.topic("t")
    for _ in range(3000):
        harness.send("t", b"-", {"n": "0"})
    harness.send("t", b"+", {"n": "1"})
    fields = harness.pop_fields("t", pollTime=10_000, exp="n = 1", expType="SQL92")
    waiting = harness.begin(RequestCode.POP_MESSAGE, fields)
    assert not waiting.done()
    harness.pass_time(1000)
    assert texts(harness.popped(await waiting, "t")) == [b"+"]


# Changes of topics, and repeated changes.


async def test_messages_of_a_deleted_topic_are_not_redelivered(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t")
    harness.get(215, {"topic": "t"})
    harness.pass_time(20_000)
    assert len(harness.broker.checkpoints) == 0
    assert "%RETRY%g_t" not in harness.broker.topics
    harness.topic("t")
    assert harness.pop("t") == []
    harness.send("t", b"new")
    assert texts(harness.pop("t")) == [b"new"]
    assert harness.stored("t")[0].get(properties.POP_CK) is None


async def test_many_messages_visible_at_one_time_are_redelivered_in_several_ticks(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(2500):
        harness.send("t", b"%d" % number)
    while harness.pop("t"):
        pass
    harness.pass_time(10_000, step=10_000)
    assert 0 < harness.broker.store.bounds("%RETRY%g_t", 0)[1] < 2500
    harness.pass_time(500)
    assert harness.broker.store.bounds("%RETRY%g_t", 0)[1] == 2500
    assert len(harness.broker.checkpoints) == 0


@pytest.mark.parametrize("order", [False, True])
async def test_times_of_messages_whose_visibility_changes_often_are_not_kept(
    harness: BrokerHarness, order: bool
) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t", order=str(order).lower())
    fields = harness.handle_fields("t", popped)
    for number in range(3000):
        changed = harness.get(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields | {"invisibleTime": str(2**40 + number)}
        ).fields
        if not order:
            handle = f"0 {changed['popTime']} {changed['invisibleTime']} {changed['reviveQid']} 0 broker-a 0 0"
            fields["extraInfo"] = handle
    assert len(harness.broker.checkpoints._times) + len(harness.broker._unlocks) < 1100
    harness.get(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields | {"invisibleTime": "1000"})
    assert harness.pop("t", order=str(order).lower()) == []
    # Each change within a millisecond has the next one as its pop time.
    harness.pass_time(5000)
    assert texts(harness.pop("t", order=str(order).lower())) == [b"x"]


async def test_groups_that_acknowledge_nothing_leave_room_for_others(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popping, "MAX_CHECKPOINTS", 300)
    harness.topic("t")
    for _ in range(100):
        harness.send("t")
    for _ in range(60):
        for group in range(5):
            harness.pop("t", f"greedy{group}", maxMsgNums=1)
    assert 250 < len(harness.broker.checkpoints) < 300
    assert len(harness.pop("t", "other", maxMsgNums=1)) == 1
    refused = harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t", "greedy1"))
    assert refused.code == ResponseCode.POLLING_FULL
    assert "of all groups" in (refused.remark or "")


async def test_messages_of_a_deleted_topics_successor_are_delivered_once(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t")
    harness.get(215, {"topic": "t"})
    harness.topic("t")
    harness.send("t", b"new")
    harness.now += 1
    [popped] = harness.pop("t")
    harness.ack("t", popped)
    harness.pass_time(60_000, step=1000)
    assert harness.pop("t") == []


async def test_an_unreadable_message_does_not_keep_others_from_their_redelivery(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number)
    harness.pop("t")
    read = harness.store.read

    def damaged(topic: str, queue_id: int, offset: int, count: int, size: int) -> list[bytes]:
        if (topic, offset) == ("t", 1):
            raise Corrupt("the record is damaged")
        return read(topic, queue_id, offset, count, size)

    monkeypatch.setattr(harness.store, "read", damaged)
    harness.pass_time(10_000)
    assert texts(harness.pop("t")) == [b"0", b"2"]
    assert len(harness.broker.checkpoints) == 1


async def test_a_message_without_room_for_a_receipt_handle_becomes_a_dead_letter(harness: BrokerHarness) -> None:
    """Its copies in the retry topic have further properties, whose limit is 32,767 bytes."""
    harness.topic("t")
    harness.send("t", b"large", {"A": "x" * 32_600})
    harness.send("t", b"x", {"A": "x" * 32_000})
    assert texts(harness.pop("t")) == [b"large", b"x"]
    dead: list[tuple[str, str, str]] = []
    harness.broker.on_dead_letter = lambda *letter: dead.append(letter)
    harness.pass_time(10_000)
    assert texts(harness.pop("t")) == [b"x"]
    assert dead == [("remoting", "g", "t")]
    [letter] = harness.stored("%DLQ%g")
    assert (letter.body, letter.get("A")) == (b"large", "x" * 32_600)


async def test_vain_wakeups_of_a_waiting_pop_take_no_memory(harness: BrokerHarness) -> None:
    """A FIFO pop is woken by every message of a locked queue."""
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t", order=True, queueId=0, invisibleTime=1_000_000)
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", order=True, queueId=0, pollTime=25_000))
    for _ in range(3_000):
        harness.send("t", b"more")
    polls = harness.broker.waiting_pops
    assert len(polls._deadlines) < 1_100
    [poll] = polls.take(("t", "g", 0), lambda _: True)
    assert poll is not None
    assert poll.reply is waiting
