"""Delays: levels, arbitrary times, recalls, messages sent back."""

import itertools

import pytest

from proxy.embedded.broker.settings import DELAY_LADDER
from proxy.embedded.store import StorageBusy
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from tests.proxy.embedded.broker_harness import START, BrokerHarness

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("level", "delay"), [(1, 1000), (3, 10_000), (18, 7_200_000), (99, 7_200_000)])
async def test_a_delay_level_delays_a_message(harness: BrokerHarness, level: int, delay: int) -> None:
    harness.topic("t")
    harness.send("t", b"later", {"DELAY": str(level), "TIMER_DELAY_MS": "1"})
    assert harness.bodies("SCHEDULE_TOPIC_XXXX", queue=min(level, 18) - 1) == [b"later"]
    harness.pass_time(delay - 1, step=delay)
    assert harness.bodies("t") == []
    harness.pass_time(1)
    [message] = harness.stored("t")
    assert (message.body, message.get("DELAY"), message.get("TIMER_DELAY_MS")) == (b"later", str(min(level, 18)), None)
    assert message.get(properties.REAL_TOPIC) == "t"


@pytest.mark.parametrize(
    ("pairs", "due"),
    [
        ({"TIMER_DELIVER_MS": str(START + 5_432)}, 5_432),
        ({"TIMER_DELAY_MS": "2500"}, 2_500),
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
    ],
)
async def test_a_timer_message_is_delivered_at_its_millisecond(
    harness: BrokerHarness, pairs: dict[str, str], due: int
) -> None:
    harness.topic("t", queues=2)
    harness.send("t", b"later", pairs, queue=1)
    harness.pass_time(due - 1)
    assert harness.bodies("t", queue=1) == []
    harness.pass_time(1)
    [message] = harness.stored("t", queue=1)
    assert message.get(properties.REAL_TOPIC) == "t"
    assert int(message.get(properties.TIMER_OUT_MS) or 0) % 1000 == 0


async def test_a_timer_in_the_past_delivers_immediately(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"now", {"TIMER_DELIVER_MS": str(START - 1)})
    assert harness.bodies("t") == [b"now"]


@pytest.mark.parametrize("pairs", [{"TIMER_DELIVER_MS": "soon"}, {"TIMER_DELAY_SEC": str(4 * 86_400)}])
async def test_invalid_times_are_rejected(harness: BrokerHarness, pairs: dict[str, str]) -> None:
    harness.topic("t")
    assert harness.send("t", b"x", pairs).code == ResponseCode.MESSAGE_ILLEGAL


async def test_many_delayed_messages_are_delivered_in_order_after_a_restart(harness: BrokerHarness) -> None:
    harness.topic("t")
    for delay in range(1000, 0, -1):
        harness.send("t", b"%d" % delay, {"TIMER_DELAY_MS": str(delay)})
    harness.pass_time(500)
    harness.restart()
    harness.pass_time(600)
    assert harness.bodies("t") == [b"%d" % delay for delay in range(1, 1001)]
    assert harness.broker.pipeline.delayed == 0


async def test_a_full_disk_postpones_delayed_messages(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"later", {"DELAY": "1"})
    harness.send("t", b"much later", {"TIMER_DELAY_SEC": "86400"})
    harness.store.full = True
    harness.pass_time(2000)
    assert harness.bodies("t") == []
    harness.store.full = False
    harness.pass_time(2000)
    assert harness.bodies("t") == [b"later"]


async def test_a_recalled_message_is_not_delivered(harness: BrokerHarness) -> None:
    harness.topic("t")
    pairs = {"TIMER_DELAY_MS": "5500"}
    kept = harness.send("t", b"kept", {**pairs, "UNIQ_KEY": "A"})
    taken = harness.send("t", b"taken", {**pairs, "UNIQ_KEY": "B"})
    assert kept.fields["recallHandle"] != taken.fields["recallHandle"]
    recall = {"topic": "t", "recallHandle": taken.fields["recallHandle"], "producerGroup": "p"}
    assert harness.get(RequestCode.RECALL_MESSAGE, recall).fields["msgId"] == "B"
    # A repetition has no effect.
    harness.get(RequestCode.RECALL_MESSAGE, recall)
    harness.pass_time(6000)
    assert harness.bodies("t") == [b"kept"]
    assert harness.ask(RequestCode.RECALL_MESSAGE, recall).code == ResponseCode.ILLEGAL_OPERATION
    for wrong in ({"recallHandle": "x"}, {"topic": "TBW102"}):
        assert harness.ask(RequestCode.RECALL_MESSAGE, {**recall, **wrong}).code == ResponseCode.ILLEGAL_OPERATION


async def test_a_message_sent_back_is_delayed_longer_each_time_until_dead_lettered(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join({"g": ["t"]})
    harness.send("t", b"hard", {"KEYS": "k"})
    [message] = harness.stored("t")
    back = {"group": "g", "delayLevel": 0, "originTopic": "t", "maxReconsumeTimes": 2}
    for times in (1, 2):
        harness.get(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": message.commit_log_offset})
        harness.pass_time(DELAY_LADDER[2 + times - 1] - 1, step=60_000)
        assert len(harness.bodies("%RETRY%g")) == times - 1
        harness.pass_time(1)
        message = harness.stored("%RETRY%g")[-1]
        assert (message.reconsume_times, message.get("RETRY_TOPIC"), message.get("KEYS")) == (times, "t", "k")
    harness.get(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": message.commit_log_offset})
    [dead] = harness.stored("%DLQ%g")
    assert (dead.body, dead.reconsume_times, dead.get("RETRY_TOPIC")) == (b"hard", 3, "t")
    lost = harness.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": 10**9})
    assert (lost.code, bool(lost.remark)) == (ResponseCode.SYSTEM_ERROR, True)


async def test_many_messages_due_at_one_time_are_delivered_in_several_ticks(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(2500):
        harness.send("t", b"%d" % number, {"TIMER_DELIVER_MS": str(START + 1000)})
    harness.pass_time(1000, step=1000)
    assert 0 < harness.broker.store.bounds("t", 0)[1] < 2500
    harness.pass_time(500)
    assert harness.broker.store.bounds("t", 0)[1] == 2500
    assert harness.broker.pipeline.delayed == 0


async def test_a_message_with_a_due_time_that_is_no_number_is_stored(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"now", {properties.TIMER_OUT_MS: "soon", properties.REAL_TOPIC: "other"})
    assert harness.bodies("t") == [b"now"]


async def test_large_messages_due_at_one_time_are_delivered_in_parts(harness: BrokerHarness) -> None:
    """No transaction has more than some megabytes, also after a restart."""
    harness.topic("t")
    for number in range(20):
        harness.send("t", bytes([number]) * 2**20, {"TIMER_DELIVER_MS": str(START + 1000)})
    counts = []
    for tick in range(6):
        harness.now = START + 1000 + tick
        more = harness.broker.tick(harness.now)
        counts.append(harness.store.bounds("t", 0)[1])
        assert more == (tick < 5), "the rest is not left for long"
        if tick == 2:
            harness.restart()
    assert counts == [4, 8, 12, 16, 20, 20]
    assert [body[0] for body in harness.bodies("t")] == list(range(20))
    assert harness.broker.pipeline.delayed == 0


async def test_the_largest_messages_are_delivered_one_by_one(harness: BrokerHarness) -> None:
    harness.topic("t")
    for _ in range(3):
        harness.send("t", bytes(4 * 2**20), {"TIMER_DELIVER_MS": str(START + 1000)})
    for count in (1, 2, 3):
        harness.now = START + 1000
        harness.broker.tick(harness.now)
        assert harness.store.bounds("t", 0)[1] == count


async def test_a_tick_ends_when_its_time_is_over(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(100):
        harness.send("t", b"%d" % number, {"TIMER_DELIVER_MS": str(START + 1000)})
    # Each look at the clock takes 5 ms.
    harness.elapse = (number * 0.005 for number in itertools.count()).__next__
    harness.now = START + 1000
    harness.broker.tick(harness.now)
    assert 0 < harness.store.bounds("t", 0)[1] < 10
    for _ in range(50):
        harness.broker.tick(harness.now)
    assert harness.bodies("t") == [b"%d" % number for number in range(100)]


async def test_a_delayed_message_that_cannot_be_read_now_is_delivered_later(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    harness.send("t", b"later", {"TIMER_DELAY_SEC": "3"})

    def busy(_: int) -> bytes:
        raise StorageBusy("Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "record", busy)
        harness.pass_time(5_000)
        assert harness.bodies("t") == []
    harness.pass_time(5_000)
    assert harness.bodies("t") == [b"later"]
