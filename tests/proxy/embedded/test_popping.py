"""Popping: invisible time, acknowledging, reviving, waiting; in order; and what a restart must not change."""

import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting import pop_offset_info, properties
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import Retry
from tests.proxy.embedded.bench import Bench, texts
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


def _change(bench: Bench, popped: PoppedMessage, milliseconds: int, topic: str = "t") -> dict[str, str]:
    fields = bench.handle_fields(topic, popped, invisibleTime=milliseconds)
    return bench.get(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields).fields


async def test_popped_messages_are_redelivered_after_their_invisible_time(bench: Bench) -> None:
    bench.topic("t")
    for number in range(3):
        bench.send("t", b"%d" % number, {"KEYS": f"k{number}"})
    popped = bench.pop("t")
    assert texts(popped) == [b"0", b"1", b"2"]
    assert [one.extra_info.start_offset for one in popped] == [0, 0, 0]
    assert bench.pop("t") == []
    bench.ack("t", popped[1])
    bench.pass_time(9_900)
    assert bench.pop("t") == []
    first_time = bench.now - 9_900
    bench.pass_time(100)
    again = bench.pop("t")
    assert texts(again) == [b"0", b"2"]
    for one in again:
        assert (one.extra_info.retry, one.reconsume_times, one.first_pop_time) == (Retry.V1, 1, first_time)
        assert one.message.topic == "t"
        bench.ack("t", one)
    bench.pass_time(60_000, step=1000)
    assert bench.pop("t") == []
    assert len(bench.broker.checkpoints) == 0
    assert [message.get("KEYS") for message in bench.stored("%RETRY%g_t")] == ["k0", "k2"]


@pytest.mark.parametrize(("v2", "name"), [(False, "%RETRY%g_t"), (True, "%RETRY%g+t")])
async def test_retry_topics_of_both_versions_are_popped(v2: bool, name: str) -> None:
    bench = Bench(BrokerSettings(retry_topic_v2=v2))
    bench.topic("t")
    bench.send("t", b"x")
    bench.pop("t")
    bench.pass_time(10_000)
    assert bench.bodies(name) == [b"x"]
    [again] = bench.pop("t")
    assert again.extra_info.retry is (Retry.V2 if v2 else Retry.V1)
    bench.pass_time(10_000)
    [third] = bench.pop("t")
    assert third.reconsume_times == 2


async def test_groups_pop_independently(bench: Bench) -> None:
    bench.topic("t", queues=3)
    for queue in range(3):
        bench.send("t", b"%d" % queue, queue=queue)
    for group in ("g", "h"):
        assert sorted(texts(bench.pop("t", group))) == [b"0", b"1", b"2"]
    assert texts(bench.pop("t", "i", queueId=1)) == [b"1"]


async def test_a_pop_returns_at_most_its_count_and_the_remaining_number(bench: Bench) -> None:
    bench.topic("t")
    for number in range(50):
        bench.send("t", b"%d" % number)
    reply = bench.get(RequestCode.POP_MESSAGE, bench.pop_fields("t", maxMsgNums=20))
    assert (len(bench.popped(reply, "t")), reply.fields["restNum"]) == (20, "30")
    assert pop_offset_info.parse_msg_offset_info(reply.fields["msgOffsetInfo"]) == {(Retry.NORMAL, 0): tuple(range(20))}


async def test_a_pop_skips_messages_that_do_not_match(bench: Bench) -> None:
    bench.topic("t")
    for number in range(6):
        bench.send("t", b"%d" % number, {"TAGS": "ab"[number % 2], "n": str(number)})
    popped = bench.pop("t", exp="b", expType="TAG")
    assert texts(popped) == [b"1", b"3", b"5"]
    assert [one.extra_info.queue_offset for one in popped] == [1, 3, 5]
    bench.ack("t", popped[1])
    bench.pass_time(10_000)
    assert texts(bench.pop("t", exp="b", expType="TAG")) == [b"1", b"5"]
    assert texts(bench.pop("t", "h", exp="n < 2", expType="SQL92")) == [b"0", b"1"]
    bad = bench.ask(RequestCode.POP_MESSAGE, bench.pop_fields("t", exp="n <", expType="SQL92"))
    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_batch_acknowledges_several_messages(bench: Bench) -> None:
    bench.topic("t", queues=2)
    for number in range(10):
        bench.send("t", b"%d" % number, queue=number % 2)
    popped = bench.pop("t")
    acks = batch_acks("t", "g", [one.extra_info for one in popped if one.message.body != b"7"])
    bench.get(RequestCode.BATCH_ACK_MESSAGE, {}, BatchAckBody("broker-a", acks).encode())
    bench.pass_time(10_000)
    assert texts(bench.pop("t")) == [b"7"]
    empty = bench.ask(RequestCode.BATCH_ACK_MESSAGE, {}, BatchAckBody("broker-a", ()).encode())
    assert empty.code == ResponseCode.NO_MESSAGE


async def test_change_invisible_time_redelivers_at_the_new_time(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    [popped] = bench.pop("t")
    bench.pass_time(5000)
    fields = _change(bench, popped, 20_000)
    handle = popped.extra_info.changed(fields)
    assert (handle.pop_time, handle.invisible_time) == (bench.now, 20_000)
    # The handle of before is void.
    bench.ack("t", popped)
    bench.pass_time(19_900)
    assert bench.pop("t") == []
    bench.pass_time(100)
    assert texts(bench.pop("t")) == [b"x"]


async def test_the_invisible_time_is_changed_in_the_millisecond_of_the_pop(bench: Bench) -> None:
    """Both handles would have the same pop time; the new one has the next, and all of its invisible time."""
    bench.topic("t")
    bench.send("t", b"x")
    [popped] = bench.pop("t")
    handle = popped.extra_info.changed(_change(bench, popped, 20_000))
    assert (handle.pop_time, handle.invisible_time) == (bench.now + 1, 20_000)
    bench.ack("t", popped)
    bench.pass_time(20_000)
    assert bench.pop("t") == []
    bench.pass_time(1)
    assert texts(bench.pop("t")) == [b"x"]


async def test_a_late_change_of_the_invisible_time_redelivers_nothing(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    [popped] = bench.pop("t")
    bench.ack("t", popped)
    _change(bench, popped, 1000)
    bench.pass_time(60_000, step=1000)
    assert bench.pop("t") == []


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
    bench: Bench, changes: dict[str, object], code: ResponseCode
) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    [popped] = bench.pop("t")
    fields = {**bench.handle_fields("t", popped, invisibleTime=1), **changes}
    for request in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        assert bench.ask(request, fields).code == code


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
async def test_invalid_pops_are_rejected(bench: Bench, changes: dict[str, object], code: ResponseCode) -> None:
    bench.topic("t")
    assert bench.ask(RequestCode.POP_MESSAGE, {**bench.pop_fields("t"), **changes}).code == code


async def test_a_new_group_begins_by_its_init_mode(bench: Bench) -> None:
    bench.topic("t")
    for number in range(3):
        bench.send("t", b"%d" % number)
    assert len(bench.pop("t", "first", initMode=0)) == 3
    # A queue whose start is still there counts as young.
    assert len(bench.pop("t", "last", initMode=1)) == 3


async def test_a_restart_neither_loses_nor_duplicates_messages(bench: Bench) -> None:
    bench.topic("t")
    for number in range(6):
        bench.send("t", b"%d" % number)
    popped = bench.pop("t", maxMsgNums=4)
    bench.ack("t", popped[0])
    changed = popped[2].extra_info.changed(_change(bench, popped[2], 30_000))
    bench.restart()
    assert texts(bench.pop("t")) == [b"4", b"5"]
    bench.ack("t", popped[1])
    bench.pass_time(10_000)
    assert sorted(texts(bench.pop("t", invisibleTime=100_000))) == [b"3", b"4", b"5"]
    bench.restart()
    bench.pass_time(20_000, step=1000)
    assert changed.queue_offset == 2
    assert texts(bench.pop("t")) == [b"2"]


async def test_a_full_disk_delivers_no_message(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    bench.pop("t", "other")
    bench.broker.groups.find("g")
    bench.store.full = True
    reply = bench.ask(RequestCode.POP_MESSAGE, bench.pop_fields("t"))
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    bench.pass_time(10_000)
    bench.store.full = False
    assert texts(bench.pop("t")) == [b"x"]
    bench.pass_time(2000)
    assert texts(bench.pop("t", "other")) == [b"x"]


# Waiting.


async def test_a_pop_waits_for_a_message(bench: Bench) -> None:
    bench.topic("t", queues=2)
    fields = bench.pop_fields("t", pollTime=10_000)
    anywhere = bench.begin(RequestCode.POP_MESSAGE, fields)
    second = bench.begin(RequestCode.POP_MESSAGE, {**fields, "queueId": 1})
    info = bench.get(RequestCode.POLLING_INFO, {"topic": "t", "consumerGroup": "g", "queueId": -1})
    assert info.fields["pollingNum"] == "1"
    bench.send("t", b"0", queue=0)
    assert texts(bench.popped(anywhere.result(), "t")) == [b"0"]
    assert not second.done()
    bench.send("t", b"1", queue=1)
    assert texts(bench.popped(second.result(), "t")) == [b"1"]


async def test_a_message_wakes_one_pop(bench: Bench) -> None:
    bench.topic("t")
    waiting = [bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=10_000)) for _ in range(3)]
    bench.send("t", b"x")
    assert [reply.done() for reply in waiting] == [True, False, False]
    bench.pass_time(9_800)
    assert not waiting[1].done()
    bench.pass_time(200)
    assert waiting[1].result().code == waiting[2].result().code == ResponseCode.POLLING_TIMEOUT


async def test_a_closed_client_receives_no_message(bench: Bench) -> None:
    bench.topic("t")
    gone = FakeChannel()
    left = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=10_000), channel=gone)
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=10_000))
    gone.closed = True
    bench.send("t", b"x")
    assert texts(bench.popped(waiting.result(), "t")) == [b"x"]
    assert left.result().code == ResponseCode.POLLING_TIMEOUT


async def test_a_message_wakes_only_pops_that_it_matches(bench: Bench) -> None:
    bench.topic("t")
    fields = bench.pop_fields("t", pollTime=10_000, exp="b", expType="TAG")
    waiting = bench.begin(RequestCode.POP_MESSAGE, fields)
    bench.send("t", b"a", {"TAGS": "a"})
    assert not waiting.done()
    bench.send("t", b"b", {"TAGS": "b"})
    assert texts(bench.popped(waiting.result(), "t")) == [b"b"]


async def test_a_redelivered_message_wakes_a_pop(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    bench.pop("t", invisibleTime=2000)
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=10_000))
    notice = bench.begin(
        RequestCode.NOTIFICATION, {"topic": "t", "consumerGroup": "g", "queueId": -1, "pollTime": 10_000, "bornTime": 0}
    )
    bench.pass_time(2000)
    assert texts(bench.popped(waiting.result(), "t")) == [b"x"]
    assert not notice.done()


async def test_a_notification_waits_for_a_message(bench: Bench) -> None:
    bench.topic("t")
    fields = {"topic": "t", "consumerGroup": "g", "queueId": 0, "pollTime": 5000, "bornTime": 0}
    waiting = bench.begin(RequestCode.NOTIFICATION, fields)
    in_vain = bench.begin(RequestCode.NOTIFICATION, {**fields, "consumerGroup": "h", "queueId": -1, "pollTime": 100})
    bench.pass_time(200)
    assert in_vain.result().fields == {"hasMsg": "false", "pollingFull": "false"}
    bench.send("t", b"x")
    assert waiting.result().fields["hasMsg"] == "true"
    assert bench.get(RequestCode.NOTIFICATION, fields).fields["hasMsg"] == "true"
    peek = bench.get(RequestCode.PEEK_MESSAGE, {**fields, "maxMsgNums": 5})
    assert (len(bench.stored("t")), peek.fields["restNum"]) == (1, "1")
    bench.pop("t")
    assert bench.ask(RequestCode.PEEK_MESSAGE, {**fields, "maxMsgNums": 5}).code == ResponseCode.PULL_NOT_FOUND


async def test_pops_over_the_limit_of_long_polls_are_rejected() -> None:
    bench = Bench(BrokerSettings(max_polls=2))
    bench.topic("t")
    for _ in range(2):
        assert not bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=1000)).done()
    full = bench.ask(RequestCode.POP_MESSAGE, bench.pop_fields("t", pollTime=1000))
    assert full.code == ResponseCode.POLLING_FULL
    fields = {"topic": "t", "consumerGroup": "g", "queueId": 0, "pollTime": 5000, "bornTime": 0}
    assert bench.get(RequestCode.NOTIFICATION, fields).fields == {"hasMsg": "false", "pollingFull": "true"}


async def test_a_waiting_pop_skips_many_messages_that_do_not_match(bench: Bench) -> None:
    bench.topic("t")
    for _ in range(3000):
        bench.send("t", b"-", {"n": "0"})
    bench.send("t", b"+", {"n": "1"})
    fields = bench.pop_fields("t", pollTime=10_000, exp="n = 1", expType="SQL92")
    waiting = bench.begin(RequestCode.POP_MESSAGE, fields)
    assert not waiting.done()
    bench.pass_time(1000)
    assert texts(bench.popped(await waiting, "t")) == [b"+"]


# In order.


async def test_a_fifo_queue_is_locked_until_all_messages_are_acknowledged(bench: Bench) -> None:
    bench.topic("t", queues=2)
    for number in range(4):
        bench.send("t", b"%d" % number, queue=0)
    bench.send("t", b"other", queue=1)
    popped = bench.pop("t", order=True, queueId=0, maxMsgNums=2)
    assert texts(popped) == [b"0", b"1"]
    assert all(one.extra_info.is_order for one in popped)
    assert bench.pop("t", order=True, queueId=0) == []
    assert texts(bench.pop("t", order=True)) == [b"other"]
    bench.ack("t", popped[0])
    assert bench.pop("t", order=True, queueId=0) == []
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", order=True, queueId=0, pollTime=5000))
    bench.ack("t", popped[1])
    assert texts(bench.popped(waiting.result(), "t")) == [b"2", b"3"]


async def test_an_unacknowledged_fifo_message_is_redelivered_and_counted(bench: Bench) -> None:
    bench.topic("t")
    for number in range(3):
        bench.send("t", b"%d" % number)
    popped = bench.pop("t", order=True)
    bench.ack("t", popped[0])
    bench.restart()
    assert bench.pop("t", order=True) == []
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", order=True, pollTime=30_000))
    bench.pass_time(10_000)
    reply = waiting.result()
    again = bench.popped(reply, "t")
    assert (texts(again), [one.reconsume_times for one in again]) == ([b"1", b"2"], [1, 1])
    assert pop_offset_info.parse_order_count_info(reply.fields["orderCountInfo"]) == {
        (Retry.NORMAL, 0, 1): 1,
        (Retry.NORMAL, 0, 2): 1,
        (Retry.NORMAL, 0, None): 1,
    }
    # An old handle is void, an unknown message refused.
    bench.ack("t", popped[1])
    assert bench.pop("t", order=True) == []
    wrong = bench.handle_fields("t", again[0], offset=3)
    assert bench.ask(RequestCode.ACK_MESSAGE, wrong).code == ResponseCode.MESSAGE_ILLEGAL
    bench.pass_time(10_000)
    assert [one.reconsume_times for one in bench.pop("t", order=True)] == [2, 2]


async def test_a_retried_attempt_gets_the_same_messages(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    first = bench.pop("t", order=True, attemptId="a")
    assert bench.pop("t", order=True, attemptId="b") == []
    again = bench.pop("t", order=True, attemptId="a")
    assert (texts(again), again[0].reconsume_times) == (texts(first), 0)


async def test_change_invisible_time_postpones_a_fifo_message(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    [popped] = bench.pop("t", order=True)
    bench.pass_time(1000)
    fields = _change(bench, popped, 2000)
    assert (fields["popTime"], fields["invisibleTime"]) == (str(popped.extra_info.pop_time), "3000")
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", order=True, pollTime=30_000))
    bench.pass_time(1900)
    assert not waiting.done()
    bench.pass_time(100)
    assert texts(bench.popped(waiting.result(), "t")) == [b"x"]


async def test_a_reset_unlocks_a_fifo_queue(bench: Bench) -> None:
    bench.topic("t")
    for number in range(3):
        bench.send("t", b"%d" % number)
        bench.now += 1000
    bench.pop("t", order=True, invisibleTime=1_000_000)
    waiting = bench.begin(RequestCode.POP_MESSAGE, bench.pop_fields("t", order=True, pollTime=30_000))
    bench.get(222, {"topic": "t", "group": "g", "timestamp": bench.now - 2000, "isForce": True})
    assert texts(bench.popped(waiting.result(), "t")) == [b"1", b"2"]


async def test_messages_of_a_deleted_topic_are_not_redelivered(bench: Bench) -> None:
    bench.topic("t")
    bench.send("t", b"x")
    bench.pop("t")
    bench.get(215, {"topic": "t"})
    bench.pass_time(20_000)
    assert len(bench.broker.checkpoints) == 0
    assert "%RETRY%g_t" not in bench.broker.topics
    bench.topic("t")
    assert bench.pop("t") == []
    bench.send("t", b"new")
    assert texts(bench.pop("t")) == [b"new"]
    assert bench.stored("t")[0].get(properties.POP_CK) is None
