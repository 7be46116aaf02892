"""Waking of long polls: what of them is looked at, and when."""

import asyncio
import itertools
import struct
from typing import Any

import pytest

from proxy.embedded.broker.filters import TagFilter
from proxy.embedded.broker.long_polls import LongPoll
from proxy.embedded.broker.settings import BrokerSettings
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import decode_messages
from tests.cluster.client import pull_fields, send_fields, v2
from tests.proxy.embedded.broker_harness import BrokerHarness, texts
from tests.proxy.fakes import FakeChannel, peer

pytestmark = pytest.mark.anyio


async def test_groups_that_no_longer_wait_are_forgotten(harness: BrokerHarness) -> None:
    """Each group that waits for a topic is looked at with each of its messages."""
    harness.topic("t")
    poppers = harness.broker.waking.poppers
    for number in range(50):
        code = RequestCode.NOTIFICATION if number % 2 else RequestCode.POP_MESSAGE
        harness.begin(code, harness.pop_fields("t", f"g{number}", pollTime=1_000 + number))
    assert len(poppers.of("t")) == len(poppers.of("%RETRY%g7_t") or ()) * 50 == 50
    harness.pass_time(975, step=5)
    assert 0 < len(poppers.of("t")) < 50
    waiting = harness.begin(RequestCode.POP_MESSAGE, harness.pop_fields("t", "g", pollTime=10_000))
    harness.pass_time(100)
    assert list(poppers.of("t")) == [("t", "g")]
    harness.send("t", b"m")
    assert texts(harness.popped(waiting.result(), "t")) == [b"m"]
    assert not poppers._pairs
    assert not poppers._counts


class _Counting:
    """A filter that counts its calls, and passes nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def matches(self, _: object) -> bool:
        self.calls += 1
        return False


def _pulls(harness: BrokerHarness, count: int, offset: int = 0, **changes: object) -> list[asyncio.Future[Any]]:
    fields = {**pull_fields("t", "g", offset=offset, wait=60_000), **changes}
    return [harness.begin(RequestCode.PULL_MESSAGE, fields) for _ in range(count)]


def _polls(harness: BrokerHarness) -> list[LongPoll]:
    return [poll for polls in harness.broker.waiting_pulls._polls.values() for poll in polls.values()]


def _batch(harness: BrokerHarness, count: int, text: str = "") -> None:
    """Send a batch of empty messages."""
    size = 22 + len(text)
    message = struct.pack(">iiiii", size, 0, 0, 0, 0) + struct.pack(">h", len(text)) + text.encode()
    fields = v2({**send_fields("t", "", 0), "batch": "true"})
    assert harness.ask(RequestCode.SEND_BATCH_MESSAGE, fields, message * count).code == ResponseCode.SUCCESS


async def test_a_batch_looks_once_at_each_waiting_pull(harness: BrokerHarness) -> None:
    harness.topic("t")
    waiting = _pulls(harness, 200, subscription="never", expressionType="TAG")
    looks = 0

    def count(poll: LongPoll) -> bool:
        nonlocal looks
        looks += 1
        return False

    for poll in _polls(harness):
        poll.filter = TagFilter(frozenset((1,)))
    counted = harness.broker.waiting_pulls.take
    harness.broker.waiting_pulls.take = (  # type: ignore[method-assign]
        lambda key, fits: counted(key, lambda poll: count(poll) or fits(poll))
    )
    _batch(harness, 2_000)
    assert looks == 200
    assert not any(reply.done() for reply in waiting)


async def test_equal_filters_are_asked_once_about_a_message(harness: BrokerHarness) -> None:
    harness.topic("t")
    _pulls(harness, 100)
    shared = _Counting()
    for poll in _polls(harness):
        poll.filter = shared
    _batch(harness, 10)
    assert shared.calls == 10


async def test_pulls_are_served_without_a_test_after_many_messages(harness: BrokerHarness) -> None:
    """The read of the pull itself finds out whether there is a message that passes."""
    harness.topic("t")
    [waiting] = _pulls(harness, 1, subscription="a = 1", expressionType="SQL92", sysFlag=6)
    [poll] = _polls(harness)
    poll.filter = counting = _Counting()
    _batch(harness, 500)
    assert counting.calls == 0
    assert waiting.done()


async def test_many_waiting_pulls_are_looked_at_in_parts(harness: BrokerHarness) -> None:
    """Each turn of the event loop has other work between two parts, and no poll is forgotten."""
    harness.topic("t")
    waiting = _pulls(harness, 50)
    harness.elapse = (number * 0.001 for number in itertools.count()).__next__
    harness.send("t", b"m")
    done = [sum(reply.done() for reply in waiting)]
    while done[-1] < 50:
        await asyncio.sleep(0)
        done.append(sum(reply.done() for reply in waiting))
    assert max(after - before for before, after in itertools.pairwise([0, *done])) < 10
    assert len(done) > 5
    await asyncio.sleep(0.01)
    assert not harness.broker.waking._begun


async def test_a_queue_with_few_polls_does_not_wait_for_one_with_many(harness: BrokerHarness) -> None:
    harness.topic("t", queues=2)
    many = _pulls(harness, 100)
    few = harness.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", queue=1, wait=60_000))
    harness.elapse = (number * 0.001 for number in itertools.count()).__next__
    harness.send("t", b"0", queue=0)
    assert not all(reply.done() for reply in many)
    harness.send("t", b"1", queue=1)
    assert few.done()


async def test_messages_that_arrive_between_two_parts_are_not_missed(harness: BrokerHarness) -> None:
    harness.topic("t")
    waiting = _pulls(harness, 40, subscription="b", expressionType="TAG")
    harness.elapse = (number * 0.001 for number in itertools.count()).__next__
    harness.send("t", b"a", {"TAGS": "a"})
    await asyncio.sleep(0)
    harness.send("t", b"b", {"TAGS": "b"})
    async with asyncio.timeout(30):
        replies = await asyncio.gather(*waiting)
    assert {decode_messages(reply.body)[0].body for reply in replies} == {b"b"}


async def test_polls_whose_time_ends_together_are_answered_in_parts(harness: BrokerHarness) -> None:
    harness.topic("t")
    waiting = _pulls(harness, 60)
    harness.elapse = (number * 0.005 for number in itertools.count()).__next__
    harness.now += 60_001
    assert harness.broker.tick(harness.now)
    assert 0 < sum(reply.done() for reply in waiting) < 10
    for _ in range(30):
        harness.broker.tick(harness.now)
    assert all(reply.done() for reply in waiting)


async def test_a_limited_number_of_pulls_waits() -> None:
    harness = BrokerHarness(BrokerSettings(max_pulls_per_queue=3, max_pulls=4))
    harness.topic("t", queues=3)
    waiting = _pulls(harness, 3)
    refused = harness.ask(RequestCode.PULL_MESSAGE, pull_fields("t", "g", wait=60_000))
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "3 of them for queue 0" in (refused.remark or "")
    waiting.append(harness.begin(RequestCode.PULL_MESSAGE, pull_fields("t", "g", queue=1, wait=60_000)))
    last = pull_fields("t", "g", queue=2, wait=60_000)
    assert harness.ask(RequestCode.PULL_MESSAGE, last).code == ResponseCode.SYSTEM_BUSY
    assert not any(reply.done() for reply in waiting)
    harness.send("t", b"m")
    assert sum(reply.done() for reply in waiting) == 3
    assert not harness.begin(RequestCode.PULL_MESSAGE, last).done()


@pytest.mark.parametrize(
    "settings", [BrokerSettings(max_pulls=90), BrokerSettings(max_pulls_per_queue=90)], ids=["all", "queue"]
)
async def test_one_address_does_not_take_all_places_of_pulls(settings: BrokerSettings) -> None:
    harness = BrokerHarness(settings)
    harness.topic("t")
    greedy = [FakeChannel() for _ in range(10)]
    fields = pull_fields("t", "g", wait=60_000)
    waiting = [harness.begin(RequestCode.PULL_MESSAGE, fields, channel=greedy[n % 10]) for n in range(200)]
    assert sum(not reply.done() for reply in waiting) == 60
    other = FakeChannel(peer("192.0.2.8:50000"))
    assert not harness.begin(RequestCode.PULL_MESSAGE, fields, channel=other).done()
    harness.pass_time(60_100)
    again = [harness.begin(RequestCode.PULL_MESSAGE, fields, channel=greedy[0]) for _ in range(61)]
    assert [reply.done() for reply in again] == [False] * 60 + [True]


async def test_a_read_with_a_long_filter_examines_fewer_messages(harness: BrokerHarness) -> None:
    harness.topic("t")
    _batch(harness, 1_000)
    for length, examined in ((100, 800), (10_000, 32)):
        text = "a = 1 " + " " * length
        pulled = harness.pull("t", subscription=text, expressionType="SQL92", maxMsgNums=32)
        assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(pulled.fields["nextBeginOffset"]) == examined


async def test_a_read_with_a_filter_examines_a_limited_number_of_bytes(harness: BrokerHarness) -> None:
    """Of bodies, or of properties, which take longer."""
    for topic, body, pairs in (
        ("bodies", bytes(2**19), {}),
        ("properties", b"x", {f"p{n}": "x" for n in range(4_000)}),
    ):
        harness.topic(topic)
        for _ in range(100):
            assert harness.send(topic, body, pairs).code == 0
        pulled = harness.pull(topic, subscription="a = 1", expressionType="SQL92", maxMsgNums=32, queueOffset=0)
        assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 0 < int(pulled.fields["nextBeginOffset"]) <= 4


async def test_a_pop_with_a_filter_examines_a_limited_number_of_messages_of_all_queues(harness: BrokerHarness) -> None:
    harness.topic("t", queues=8)
    for queue in range(8):
        for _ in range(900):
            harness.send("t", queue=queue)
    pop = harness.pop_fields("t", exp="a = 1", expType="SQL92", pollTime=10_000)
    waiting = harness.begin(RequestCode.POP_MESSAGE, pop)
    examined = [harness.broker.offsets.get("t", "g", queue) for queue in range(8)]
    assert 800 <= sum(max(offset, 0) for offset in examined) < 1600
    harness.send("t", b"match", {"a": "1"}, queue=3)
    for _ in range(100):
        harness.pass_time(100)
    assert texts(harness.popped(waiting.result(), "t")) == [b"match"]


async def test_polls_with_costly_filters_are_looked_at_last(harness: BrokerHarness) -> None:
    harness.topic("t")
    [sql] = _pulls(harness, 1, subscription="a IS NULL", expressionType="SQL92", sysFlag=6)
    [tag] = _pulls(harness, 1, subscription="never || b", expressionType="TAG")
    [every] = _pulls(harness, 1)
    order: list[asyncio.Future[Any]] = []
    for reply in (sql, tag, every):
        reply.add_done_callback(order.append)
    harness.send("t", b"m", {"TAGS": "b"})
    await asyncio.sleep(0)
    assert order == [tag, every, sql]
