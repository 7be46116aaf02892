"""Turns of long polls at a broker."""

import asyncio
import gc
import weakref

import pytest

from proxy.core import poll_turns
from proxy.core.long_poll import cancel_polls
from proxy.core.poll_turns import BrokerPollTurns
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ConnectionLost, Overloaded
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from tests.proxy.fakes import Clock, FakeBackend, FakeChannel, Stage, peer, settle, stage
from tests.proxy.messages import complete

pytestmark = pytest.mark.anyio

PULL = REQUESTS[RequestCode.PULL_MESSAGE]
_LIMIT = 4


class Received:
    """The number of bytes that brokers have sent."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self) -> int:
        return self.size


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(poll_turns, "monotonic", clock)
    monkeypatch.setattr("proxy.core.forwarding.monotonic", clock)
    monkeypatch.setattr("proxy.core.messaging.monotonic", clock)
    return clock


@pytest.fixture
def on(received: Received) -> Stage:
    """Return a core whose broker answers when `answer` is called."""
    on = stage(FakeBackend(pending=[]))
    on.core.poll_turns = BrokerPollTurns(_LIMIT, 1, lambda broker: broker == "broker-a", received)
    return on


@pytest.fixture
def received() -> Received:
    return Received()


def client(host: str) -> FakeChannel:
    return FakeChannel(peer(f"{host}:50000"))


def pull(on: Stage, channel: FakeChannel, group: str = "g", suspend: int = 0) -> Reply:
    command = complete(PULL, bname="broker-a", consumerGroup=group, suspendTimeoutMillis=str(suspend))
    reply = on.core.handle(channel, command)
    assert reply is not None
    return reply


async def answer(on: Stage, count: int, body: bytes = b"") -> None:
    """Let the broker answer the first `count` requests that it has not answered."""
    assert on.backend.pending is not None
    for _ in range(count):
        reply = commands.success()
        reply.body = body
        on.backend.pending.pop(0).set_result(reply)
    await settle()


def groups_sent(on: Stage) -> list[str]:
    return [sent.fields["consumerGroup"] for sent in on.backend.sent]


async def test_polls_over_the_limit_wait_until_others_are_answered(on: Stage, clock: Clock) -> None:
    channel = client("10.0.0.1")
    replies = [pull(on, channel) for _ in range(_LIMIT + 3)]
    assert len(on.backend.sent) == _LIMIT
    assert on.core.poll_turns is not None
    assert (on.core.poll_turns.waiting, on.core.poll_turns.waited) == (3, 3)
    await answer(on, 2)
    assert len(on.backend.sent) == _LIMIT + 2
    await answer(on, _LIMIT)
    await answer(on, 1)
    assert [reply.done() for reply in replies] == [True] * len(replies)
    assert on.core.poll_turns.waiting == 0


class _Text(str):
    """A string whose end can be observed by a weak reference, also in an object of a compiled class."""


async def test_a_waiting_poll_whose_client_has_gone_keeps_no_request(on: Stage, clock: Clock) -> None:
    channel = client("10.0.0.1")
    for _ in range(_LIMIT):
        pull(on, channel)
    command = complete(PULL, bname="broker-a", suspendTimeoutMillis="0")
    command.fields["subscription"] = text = _Text("a")
    kept = weakref.ref(text)
    reply = on.core.handle(channel, command)
    del command, text
    gc.collect()
    assert kept() is not None
    cancel_polls(channel)
    await settle()
    gc.collect()
    assert kept() is None
    assert reply is not None


async def test_polls_that_end_while_they_wait_leave_the_queue_at_once(on: Stage, clock: Clock) -> None:
    """Their turn may come late: a client could fill the queue with polls that have been answered with an error."""
    ending, staying = client("10.0.0.3"), client("10.0.0.3")
    for _ in range(_LIMIT):
        pull(on, client("10.0.0.1"))
    ended = [pull(on, ending, "ending") for _ in range(3)]
    pull(on, staying, "staying")
    assert on.core.poll_turns is not None
    ended[1].set_exception(Overloaded("too many requests are in flight"))
    await settle()
    assert on.core.poll_turns.waiting == 3
    for reply in (ended[0], ended[2]):
        reply.set_exception(Overloaded("too many requests are in flight"))
    await settle()
    assert on.core.poll_turns.waiting == 1
    await answer(on, 1)
    assert groups_sent(on)[_LIMIT:] == ["staying"]
    assert on.core.poll_turns.waiting == 0


async def test_parked_polls_do_not_count(on: Stage, clock: Clock) -> None:
    for _ in range(10):
        for _ in range(_LIMIT):
            pull(on, client("10.0.0.1"), suspend=15_000)
        clock.now += 0.07
    assert len(on.backend.sent) == 10 * _LIMIT


async def test_waiting_polls_are_sent_once_others_are_parked(on: Stage, clock: Clock) -> None:
    for _ in range(_LIMIT + 1):
        pull(on, client("10.0.0.1"), suspend=15_000)
    assert len(on.backend.sent) == _LIMIT
    clock.now += 0.07
    await asyncio.sleep(0.05)
    assert len(on.backend.sent) == _LIMIT + 1


async def test_while_a_broker_sends_much_polls_count_for_longer(on: Stage, clock: Clock, received: Received) -> None:
    for _ in range(_LIMIT + 1):
        pull(on, client("10.0.0.1"))
    received.size += 2 * 2**20
    clock.now += 0.1
    await asyncio.sleep(0.03)
    received.size += 2 * 2**20
    clock.now += 2.8
    await asyncio.sleep(0.03)
    assert len(on.backend.sent) == _LIMIT
    received.size += 2 * 2**20
    clock.now += 0.2
    await asyncio.sleep(0.03)
    assert len(on.backend.sent) == 1 + _LIMIT


async def test_polls_sent_before_an_answered_one_are_parked(on: Stage, clock: Clock, received: Received) -> None:
    received.size += 2 * 2**20
    for _ in range(_LIMIT - 1):
        pull(on, client("10.0.0.1"), suspend=15_000)
    clock.now += 0.04
    pull(on, client("10.0.0.2"))
    assert on.core.poll_turns is not None
    turns = on.core.poll_turns.of("broker-a", client("10.0.0.1").session)
    assert turns is not None
    assert turns.active == _LIMIT
    assert on.backend.pending is not None
    on.backend.pending.pop().set_result(commands.success())
    await settle()
    # Parked polls are forgotten when there seems to be no room.
    for _ in range(2):
        pull(on, client("10.0.0.2"))
    assert turns.active == 2
    assert turns.waiting == 0


async def test_sources_and_their_clients_take_turns(on: Stage, clock: Clock) -> None:
    bad, worse, good = client("10.0.0.3"), client("10.0.0.3"), client("10.0.0.1")
    for _ in range(_LIMIT + 6):
        pull(on, bad, "bad")
    for _ in range(4):
        pull(on, worse, "worse")
    pull(on, good, "good")
    await answer(on, _LIMIT)
    assert groups_sent(on)[_LIMIT:] == ["bad", "good", "worse", "bad"]


async def test_polls_of_clients_that_do_not_read_are_to_be_repeated(on: Stage, clock: Clock) -> None:
    channel = client("10.0.0.3")
    replies = [pull(on, channel) for _ in range(_LIMIT + 2)]
    channel.unread_bytes = on.core.settings.limits.unread + 1
    await answer(on, 1)
    assert len(on.backend.sent) == _LIMIT
    found = [reply.result() for reply in replies[_LIMIT:]]
    assert [reply.code for reply in found] == [ResponseCode.PULL_RETRY_IMMEDIATELY] * 2
    assert {reply.fields["nextBeginOffset"] for reply in found} == {"0"}
    assert on.core.poll_turns is not None
    turns = on.core.poll_turns.of("broker-a", channel.session)
    assert turns is not None
    assert turns.active == _LIMIT - 1


async def test_polls_of_clients_that_have_gone_are_not_sent(on: Stage, clock: Clock) -> None:
    channel = client("10.0.0.3")
    replies = [pull(on, channel) for _ in range(_LIMIT + 2)]
    replies[-1].cancel()
    channel.closed = True
    await answer(on, 1)
    assert len(on.backend.sent) == _LIMIT
    assert isinstance(replies[-2].exception(), ConnectionLost)


async def test_the_broker_still_answers_polls_whose_client_has_gone(on: Stage, clock: Clock) -> None:
    gone, other = client("10.0.0.3"), client("10.0.0.1")
    for _ in range(_LIMIT):
        pull(on, gone).cancel()
    await settle()
    pull(on, other)
    assert len(on.backend.sent) == _LIMIT
    clock.now += 0.07
    await asyncio.sleep(0.05)
    assert len(on.backend.sent) == _LIMIT + 1


async def test_the_memory_of_a_poll_that_waited_is_released_when_its_client_goes(on: Stage, clock: Clock) -> None:
    replies = [pull(on, client("10.0.0.3")) for _ in range(_LIMIT + 1)]
    await answer(on, 1)
    assert on.backend.pending is not None
    sent = on.backend.pending[-1]
    replies[-1].cancel()
    await settle()
    assert sent.cancelled()


async def test_brokers_that_do_not_exist_take_no_turns(on: Stage, clock: Clock) -> None:
    command = complete(PULL, bname="unknown")
    on.core.handle(client("10.0.0.3"), command)
    assert on.core.poll_turns is not None
    assert on.core.poll_turns.of("unknown", client("10.0.0.1").session) is None
    assert len(on.backend.sent) == 1


async def test_a_request_that_waited_too_long_is_refused(on: Stage, clock: Clock) -> None:
    replies = [pull(on, client("10.0.0.3")) for _ in range(_LIMIT + 1)]
    clock.now += on.core.settings.cluster.request_timeout + 1
    await answer(on, 1)
    error = replies[-1].exception()
    assert isinstance(error, Overloaded)
    assert error.code == ResponseCode.SYSTEM_BUSY
