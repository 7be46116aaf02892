"""FIFO groups over POP: locks of queues, order, redelivery."""

import pytest

from remoting import pop_offset_info
from remoting.codes import RequestCode, ResponseCode
from remoting.pop_offset_info import Retry
from tests.proxy.embedded.broker_harness import BrokerHarness, texts

pytestmark = pytest.mark.anyio


async def test_a_fifo_queue_is_locked_until_all_messages_are_acknowledged(harness: BrokerHarness) -> None:
    harness.topic("t", queues=2)
    for number in range(4):
        harness.send("t", b"%d" % number, queue=0)
    harness.send("t", b"other", queue=1)
    popped = harness.pop("t", order=True, queueId=0, maxMsgNums=2)
    assert texts(popped) == [b"0", b"1"]
    assert all(one.extra_info.is_order for one in popped)
    assert harness.pop("t", order=True, queueId=0) == []
    assert texts(harness.pop("t", order=True)) == [b"other"]
    harness.ack("t", popped[0])
    assert harness.pop("t", order=True, queueId=0) == []
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", order=True, queueId=0, pollTime=5000))
    harness.ack("t", popped[1])
    assert texts(harness.popped(waiting.result(), "t")) == [b"2", b"3"]


async def test_an_unacknowledged_fifo_message_is_redelivered_and_counted(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number)
    popped = harness.pop("t", order=True)
    harness.ack("t", popped[0])
    harness.restart()
    assert harness.pop("t", order=True) == []
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", order=True, pollTime=30_000))
    harness.pass_time(10_000)
    reply = waiting.result()
    again = harness.popped(reply, "t")
    assert (texts(again), [one.reconsume_times for one in again]) == ([b"1", b"2"], [1, 1])
    assert pop_offset_info.parse_order_count_info(reply.fields["orderCountInfo"]) == {
        (Retry.NORMAL, 0, 1): 1,
        (Retry.NORMAL, 0, 2): 1,
        (Retry.NORMAL, 0, None): 1,
    }
    # An old handle has no effect, an unknown message is rejected.
    harness.ack("t", popped[1])
    assert harness.pop("t", order=True) == []
    wrong = harness.handle_fields("t", again[0], offset=3)
    assert harness.ask(RequestCode.ACK_MESSAGE, wrong).code == ResponseCode.MESSAGE_ILLEGAL
    harness.pass_time(10_000)
    assert [one.reconsume_times for one in harness.pop("t", order=True)] == [2, 2]


async def test_a_retried_attempt_gets_the_same_messages(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    first = harness.pop("t", order=True, attemptId="a")
    assert harness.pop("t", order=True, attemptId="b") == []
    again = harness.pop("t", order=True, attemptId="a")
    assert (texts(again), again[0].reconsume_times) == (texts(first), 0)


async def test_change_invisible_time_postpones_a_fifo_message(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t", order=True)
    harness.pass_time(1000)
    fields = harness.change("t", popped, 2000)
    assert (fields["popTime"], fields["invisibleTime"]) == (str(popped.extra_info.pop_time), "3000")
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", order=True, pollTime=30_000))
    harness.pass_time(1900)
    assert not waiting.done()
    harness.pass_time(100)
    assert texts(harness.popped(waiting.result(), "t")) == [b"x"]


async def test_a_reset_unlocks_a_fifo_queue(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number)
        harness.now += 1000
    harness.pop("t", order=True, invisibleTime=1_000_000)
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", order=True, pollTime=30_000))
    harness.get(222, {"topic": "t", "group": "g", "timestamp": harness.now - 2000, "isForce": True})
    assert texts(harness.popped(waiting.result(), "t")) == [b"1", b"2"]


async def test_a_late_acknowledgement_does_not_undo_a_reset(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(3):
        harness.send("t", b"%d" % number)
        harness.now += 1000
    popped = harness.pop("t", order=True, queueId=0)
    harness.get(222, {"topic": "t", "group": "g", "timestamp": harness.now - 2000, "isForce": True})
    # This pop takes the reset, but no message.
    assert harness.pop("t", order=True, maxMsgNums=0) == []
    for one in popped:
        harness.ack("t", one)
    assert texts(harness.pop("t", order=True, queueId=0)) == [b"1", b"2"]
