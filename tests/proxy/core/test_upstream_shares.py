"""Shares of brokers between source addresses."""

import asyncio
from collections import deque
from functools import partial

import pytest

from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import HostPort
from proxy.core import upstream_shares
from proxy.core.handlers.tools import query_client
from proxy.core.upstream_shares import UpstreamShares
from proxy.observability.metrics import core_gauges
from proxy.observability.metrics.registry import Metrics
from proxy.operations import operator_channel
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.delayed_reply import DelayedReply
from remoting.errors import ClientGone, ConnectionLost, Overloaded, TopicNotExist
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from remoting.routes import TopicRoute
from remoting.tasks import spawn
from tests.proxy.fakes import Clock, FakeBackend, FakeChannel, Stage, peer, settle, stage
from tests.proxy.messages import complete, request
from tests.proxy.observability.metrics.samples import samples_of

pytestmark = pytest.mark.anyio

SEND = REQUESTS[RequestCode.SEND_MESSAGE_V2]
_WINDOW = 4
_RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(upstream_shares, "monotonic", clock)
    monkeypatch.setattr("proxy.core.forwarding.monotonic", clock)
    monkeypatch.setattr("proxy.core.messaging.monotonic", clock)
    return clock


@pytest.fixture
def on() -> Stage:
    """Return a core whose broker answers when `answer` is called."""
    on = stage(FakeBackend(pending=[]))
    on.core.shares = UpstreamShares(_WINDOW)
    return on


def client(host: str) -> FakeChannel:
    return FakeChannel(peer(f"{host}:50000"))


def send(on: Stage, channel: FakeChannel, **fields: str) -> Reply:
    reply = on.core.handle(channel, complete(SEND, n="broker-a", **fields))
    assert reply is not None
    return reply


async def answer(on: Stage, count: int) -> None:
    """Let the broker answer its first `count` requests."""
    assert on.backend.pending is not None
    for _ in range(count):
        on.backend.pending.pop(0).set_result(commands.success())
    await settle()


def sent(on: Stage) -> int:
    return len(on.backend.sent)


def in_flight(channel: FakeChannel) -> dict[str, int]:
    """Return the requests in flight of a channel's source address, by broker."""
    return {broker: window.in_flight for broker, window in channel.session.windows.items()}


async def test_one_source_alone_has_no_bound(on: Stage, clock: Clock) -> None:
    flood = [send(on, client("10.0.0.3")) for _ in range(50)]
    clock.now += 1
    flood += [send(on, client("10.0.0.3")) for _ in range(50)]
    assert sent(on) == 100
    await answer(on, 100)
    assert all(reply.done() for reply in flood)


async def test_requests_of_a_source_over_its_window_wait_while_others_use_the_broker(on: Stage, clock: Clock) -> None:
    good, bad, more = client("10.0.0.1"), client("10.0.0.3"), client("10.0.0.3")
    send(on, good)
    replies = [send(on, channel, b=f"topic{number}") for number in range(10) for channel in (bad, more)]
    assert sent(on) == 1 + _WINDOW
    assert on.core.shares is not None
    assert (on.core.shares.waiting, on.core.shares.waited) == (20 - _WINDOW, 20 - _WINDOW)
    metrics = Metrics()
    metrics.add(partial(core_gauges.read, on.core, FairTurns(asyncio.get_running_loop())))
    for name in ("gantry_upstream_requests_waiting", "gantry_upstream_requests_waited_total"):
        assert samples_of(metrics, name) == {(): 20 - _WINDOW}
    send(on, good)
    assert sent(on) == 2 + _WINDOW, "another source does not wait"
    for _ in range(20):
        await answer(on, 1)
    assert [reply.done() for reply in replies].count(True) >= 20 - _WINDOW
    await answer(on, len(on.backend.pending or ()))
    assert all(reply.result().code == 0 for reply in replies)
    topics = [request.fields["b"] for request in on.backend.sent if request.fields["b"].startswith("topic")]
    assert topics == sorted(topics), "the requests keep their order"
    assert on.core.shares.waiting == 0


async def test_waiting_requests_are_sent_when_the_other_sources_have_ended(on: Stage, clock: Clock) -> None:
    send(on, client("10.0.0.1"))
    for _ in range(20):
        send(on, client("10.0.0.3"))
    clock.now += 1
    await answer(on, 2)
    assert sent(on) == 21


async def test_brokers_have_separate_windows(on: Stage, clock: Clock) -> None:
    bad = client("10.0.0.3")
    send(on, client("10.0.0.1"))
    for _ in range(_WINDOW + 1):
        send(on, bad)
    on.core.handle(bad, complete(SEND, n="broker-b"))
    assert [request.broker for request in on.backend.sent].count("broker-b") == 1


async def test_a_oneway_request_stays_behind_waiting_requests(on: Stage, clock: Clock) -> None:
    bad = client("10.0.0.3")
    send(on, client("10.0.0.1"))
    for _ in range(_WINDOW + 1):
        send(on, bad)
    oneway = request(RequestCode.SEND_MESSAGE_V2, b"", True, **{**complete(SEND, n="broker-a").fields, "b": "last"})
    reply = on.core.handle(bad, oneway)
    assert reply is not None
    assert sent(on) == 1 + _WINDOW
    await answer(on, 3)
    assert [request.timeout is None for request in on.backend.sent] == [False] * (_WINDOW + 2) + [True]
    assert (await reply).code == 0
    assert on.core.handle(bad, oneway) is None, "nothing waits any more"


async def test_waiting_requests_of_a_closed_client_are_not_sent(on: Stage, clock: Clock) -> None:
    bad = client("10.0.0.3")
    send(on, client("10.0.0.1"))
    replies = [send(on, bad) for _ in range(20)]
    bad.closed = True
    await answer(on, 2)
    assert sent(on) == 1 + _WINDOW
    assert isinstance(replies[-1].exception(), ConnectionLost)
    assert on.core.shares is not None
    assert on.core.shares.waiting == 0


async def test_a_request_that_waited_too_long_is_refused(on: Stage, clock: Clock) -> None:
    good, bad = client("10.0.0.1"), client("10.0.0.3")
    send(on, good)
    replies = [send(on, bad) for _ in range(20)]
    clock.now += on.core.settings.cluster.request_timeout + 1
    for context in on.core.in_flight:
        context.started = clock.now - on.core.settings.cluster.request_timeout - 1
    send(on, good)
    await answer(on, 2)
    error = replies[-1].exception()
    assert isinstance(error, Overloaded)
    assert "10.0.0.3" in str(error)
    assert "broker-a" in str(error)


@pytest.mark.parametrize(("latency", "rate", "flood_in_flight"), [(0.001, 2_000, 16), (0.02, 2_000, 100)])
async def test_a_flood_leaves_a_good_client_half_of_its_fair_share(
    clock: Clock, latency: float, rate: float, flood_in_flight: int
) -> None:
    """A simulated broker replies to `rate` requests per second in their order, each at the earliest after `latency`.

    The good client has 8 requests in flight, the flood 1,000. Alone, each would get min(rate, in flight / latency).
    """
    on = stage(FakeBackend(pending=[]))
    shares = on.core.shares = UpstreamShares(16)
    pending = on.backend.pending
    assert pending is not None
    queue: deque[tuple[float, Reply]] = deque()
    good, bad = client("10.0.0.1"), client("10.0.0.3")
    outstanding = {id(good): 0, id(bad): 0}
    served = {id(good): 0, id(bad): 0}
    largest = 0

    def done(channel: FakeChannel, _: object) -> None:
        outstanding[id(channel)] -= 1
        served[id(channel)] += 1

    step, credit = 0.001, 0.0
    for turn in range(1_000):
        if turn == 400:
            served = dict.fromkeys(served, 0)
            largest = 0
        for channel, width in ((good, 8), (bad, 1_000)):
            while outstanding[id(channel)] < width:
                outstanding[id(channel)] += 1
                send(on, channel).add_done_callback(partial(done, channel))
        queue.extend((clock.now + latency, reply) for reply in pending)
        pending.clear()
        window = bad.session.windows["broker-a"]
        largest = max(largest, window.in_flight)
        clock.now += step
        credit = min(credit + rate * step, max(rate * step, 1))
        while queue and credit >= 1 and queue[0][0] <= clock.now:
            credit -= 1
            queue.popleft()[1].set_result(commands.success())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    alone = min(rate, 8 / max(latency, step))
    fair = min(alone, rate / 2)
    seconds = 0.6
    assert served[id(good)] >= fair / 2 * seconds, (served, largest)
    assert largest <= flood_in_flight, "the bound follows the broker's latency"
    assert served[id(good)] + served[id(bad)] >= 0.9 * rate * seconds, "the broker is used in full"
    assert shares.waiting > 500


async def test_a_reply_names_the_time_at_which_its_request_was_sent(on: Stage, clock: Clock) -> None:
    victim = client("10.0.0.1")
    first = send(on, victim)
    send(on, client("10.0.0.2"))
    waiting = [send(on, victim) for _ in range(_WINDOW)][-1]
    assert not isinstance(first, DelayedReply)
    assert isinstance(waiting, DelayedReply)
    assert waiting.sent_at is None
    clock.now += 2.0
    await answer(on, 1)
    assert waiting.sent_at == clock.now


async def test_a_request_whose_client_has_gone_is_not_sent(on: Stage, clock: Clock) -> None:
    """The error says so: the failure is not the broker's."""
    victim = client("10.0.0.1")
    send(on, client("10.0.0.2"))
    waiting = [send(on, victim) for _ in range(_WINDOW + 1)][-1]
    victim.closed = True
    before = sent(on)
    await answer(on, 2)
    assert sent(on) == before
    with pytest.raises(ClientGone):
        await waiting


async def test_a_request_to_one_broker_after_another_counts_only_where_it_is(on: Stage, clock: Clock) -> None:
    victim = client("10.0.0.1")
    on.backend.names = ["broker-a", "broker-b"]
    reply = on.core.handle(victim, request(_RUNNING_INFO, b"", clientId="c1", consumerGroup="g"))
    assert reply is not None
    await settle()
    assert in_flight(victim) == {"broker-a": 1}
    assert on.backend.pending is not None
    on.backend.pending.pop().set_exception(ConnectionLost("away"))
    await settle()
    assert in_flight(victim) == {"broker-a": 0, "broker-b": 1}
    await answer(on, 1)
    assert (await reply).code == 0
    assert in_flight(victim) == {"broker-a": 0, "broker-b": 0}


async def test_a_request_that_is_cancelled_before_it_is_sent_is_not_sent(
    on: Stage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one waits for its route, the second one in the window."""

    async def route(topic: str) -> TopicRoute:
        await settle()
        raise TopicNotExist(topic)

    monkeypatch.setattr(on.backend, "route", route)
    victim = client("10.0.0.1")
    on.backend.names = ["broker-a"]
    send(on, client("10.0.0.2"))
    cold = on.core.handle(victim, complete(SEND, n=""))
    assert cold is not None
    cold.cancel()
    await settle()
    await settle()
    assert (sent(on), in_flight(victim)) == (1, {})
    for _ in range(_WINDOW):
        send(on, victim)
    cold = on.core.handle(victim, complete(SEND, n=""))
    assert cold is not None
    await settle()
    await settle()
    assert on.core.shares is not None
    assert on.core.shares.waiting == 1
    cold.cancel()
    await settle()
    await answer(on, _WINDOW + 1)
    assert (sent(on), in_flight(victim)) == (_WINDOW + 1, {"broker-a": 0})


async def test_an_operators_request_counts_until_it_ends(on: Stage, clock: Clock) -> None:
    on.backend.names = ["broker-a"]
    fields = {"clientId": "c1", "consumerGroup": "g"}
    asked = spawn(operator_channel.handle(on.core, query_client, _RUNNING_INFO, fields))
    late = spawn(operator_channel.handle(on.core, query_client, _RUNNING_INFO, fields, timeout=0.5))
    await settle()
    assert on.core.shares is not None
    window = on.core.shares.of(HostPort("127.0.0.1", 0), "broker-a")
    assert window.in_flight == 2
    await answer(on, 1)
    assert (await asked).code == 0
    with pytest.raises(TimeoutError):
        await late
    assert window.in_flight == 0
