import asyncio
import logging
from typing import Any

import pytest

from proxy.core.context import REQUEST_MEMORY, Context
from proxy.core.long_poll import cancel_polls
from proxy.core.messaging import Messaging
from proxy.settings.limits import LimitSettings
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, Overloaded, RemotingError, RequestTimeout, ServiceUnavailable
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, settle, stage
from tests.proxy.messages import complete, java, request, route

pytestmark = pytest.mark.anyio

PULL = REQUESTS[RequestCode.PULL_MESSAGE]
SEND = REQUESTS[RequestCode.SEND_MESSAGE_V2]
SECRET = "user's secret"


async def test_forwarding_with_a_cached_route_creates_no_task() -> None:
    on = stage()
    before = asyncio.all_tasks()
    reply = on.core.handle(FakeChannel(), complete(PULL))
    assert reply is not None
    assert asyncio.all_tasks() == before
    assert (await reply).fields["served by"] == "broker-a"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (commands.success(), 0),
        (commands.response(19), 19),
        (commands.response(206, remark="gone"), 206),
        (ServiceUnavailable("no master"), 14),
        (ConnectionLost("lost"), 14),
        (RequestTimeout("late"), 2),
        (ValueError(SECRET), 1),
    ],
)
async def test_observers_receive_each_request_once_with_its_response_code(
    answer: RemotingCommand | Exception, code: int
) -> None:
    on = stage(FakeBackend(answer=lambda *_: answer))
    await asyncio.gather(on.ask(complete(PULL)), return_exceptions=True)
    await settle()
    assert on.observed == [("PULL_MESSAGE", code)]


async def test_observers_receive_oneway_requests() -> None:
    on = stage()
    assert on.core.handle(FakeChannel(), request(15, b"", True, **_offset())) is None
    assert on.observed == [("UPDATE_CONSUMER_OFFSET", 0)]
    with pytest.raises(RemotingError):
        on.core.handle(FakeChannel(), request(15, b"", True))
    assert on.observed[1:] == [("UPDATE_CONSUMER_OFFSET", 29)]


def _offset() -> dict[str, str]:
    return {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "7", "bname": "broker-a"}


async def test_observers_receive_cancelled_requests() -> None:
    on = stage(FakeBackend(pending=[]))
    reply = on.core.handle(FakeChannel(), complete(PULL))
    assert reply is not None
    assert on.observed == []
    reply.cancel()
    await settle()
    assert on.observed == [("PULL_MESSAGE", 1)]


async def test_internal_error_is_logged_and_hidden_from_the_client(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Messaging, __: Context) -> Any:
        raise ValueError(SECRET)

    on = stage(handlers={RequestCode.HEART_BEAT: broken})
    with caplog.at_level(logging.ERROR), pytest.raises(RemotingError) as caught:
        on.core.handle(FakeChannel(), request(RequestCode.HEART_BEAT))
    assert (str(caught.value), caught.value.code, caught.value.__cause__) == ("internal error", 1, None)
    assert SECRET in caplog.text
    assert on.observed == [("HEART_BEAT", 1)]


async def test_requests_of_an_unobserved_channel_are_not_reported() -> None:
    on = stage()
    await on.ask(complete(PULL), FakeChannel(protocol="grpc", observed=False))
    await settle()
    assert on.observed == []


async def test_active_requests_counts_requests_other_than_polls() -> None:
    backend = FakeBackend(pending=[])
    on = stage(backend)
    specs = (PULL, SEND, SEND, REQUESTS[RequestCode.POP_MESSAGE], REQUESTS[RequestCode.NOTIFICATION], SEND)
    waiting = [on.core.handle(FakeChannel(), complete(spec)) for spec in specs]
    on.core.handle(FakeChannel(), request(15, b"", True, **_offset()))
    assert on.core.active_requests == 3
    assert backend.pending is not None
    backend.pending[0].set_result(commands.success())
    backend.pending[1].set_result(commands.success())
    backend.pending[2].set_exception(ServiceUnavailable("gone"))
    backend.pending[5].cancel()
    await settle()
    assert on.core.active_requests == 0
    for reply in (*backend.pending, *filter(None, waiting)):
        reply.cancel()
        await asyncio.gather(reply, return_exceptions=True)


async def test_requests_over_the_byte_budget_are_rejected() -> None:
    backend = FakeBackend(pending=[])
    on = stage(backend, Settings(limits=LimitSettings(total_bytes=2 * REQUEST_MEMORY + 100)))
    waiting = [on.core.handle(FakeChannel(), _sized(size)) for size in (60, 60)]
    assert on.core.budget.used == 2 * REQUEST_MEMORY + 120
    with pytest.raises(Overloaded):
        on.core.handle(FakeChannel(), _sized(1))
    assert on.observed == [("SEND_MESSAGE_V2", 2)]
    assert backend.pending is not None
    backend.pending[0].set_result(commands.success())
    backend.pending[1].set_exception(ServiceUnavailable("gone"))
    await asyncio.gather(*filter(None, waiting), return_exceptions=True)
    assert on.core.budget.used == 0
    assert on.core.handle(FakeChannel(), _sized(1)) is not None


async def test_polls_end_with_their_channel() -> None:
    on = stage(FakeBackend(pending=[]))
    gone, other = FakeChannel(), FakeChannel()
    poll = complete(PULL)
    poll.body = bytes(100)
    ended, waiting = on.core.handle(gone, poll), on.core.handle(other, complete(PULL))
    assert ended is not None
    assert waiting is not None
    cancel_polls(gone)
    await settle()
    assert (ended.cancelled(), waiting.done(), on.core.budget.used) == (True, False, REQUEST_MEMORY)
    assert not gone.session.polls
    waiting.cancel()


@pytest.mark.parametrize(("unread", "dropped"), [(8 * 2**20, False), (8 * 2**20 + 1, True)])
async def test_a_client_that_does_not_read_is_to_repeat_its_pulls(unread: int, dropped: bool) -> None:
    answer = commands.success({"nextBeginOffset": "40", "minOffset": "0"}, b"messages")
    on = stage(FakeBackend(answer=lambda *_: answer))
    reply = on.core.handle(FakeChannel(unread_bytes=unread), complete(PULL, queueOffset="8"))
    assert reply is not None
    await settle()
    result = reply.result()
    if dropped:
        assert (result.code, result.header["code"], result.body) == (20, 20, b"")
        assert result.fields == {"nextBeginOffset": "8", "minOffset": "0"}
    else:
        assert (result.code, result.body, result.fields["nextBeginOffset"]) == (0, b"messages", "40")


async def test_only_pulls_are_repeated() -> None:
    answer = commands.success({}, b"body")
    on = stage(FakeBackend(answer=lambda *_: answer))
    assert (await on.ask(complete(SEND), FakeChannel(unread_bytes=2**30))).body == b"body"


def _sized(size: int) -> RemotingCommand:
    command = complete(SEND)
    command.body = bytes(size)
    command.memory = size
    return command


@pytest.mark.parametrize(
    ("version", "code", "sent_away"),
    [
        (GO_AWAY_VERSION, RequestCode.PULL_MESSAGE, False),
        (GO_AWAY_VERSION + 1, RequestCode.PULL_MESSAGE, True),
        (GO_AWAY_VERSION + 1, RequestCode.SEND_MESSAGE_V2, True),
        (GO_AWAY_VERSION + 1, RequestCode.HEART_BEAT, True),
        (GO_AWAY_VERSION + 1, RequestCode.UNREGISTER_CLIENT, False),
        (0, RequestCode.SEND_MESSAGE_V2, False),
    ],
)
async def test_draining_answers_go_away_to_clients_that_support_it(version: int, code: int, sent_away: bool) -> None:
    on = stage(FakeBackend(warm={"orders": route()}))
    assert (await on.ask(java(complete(REQUESTS[code]), version))).code == 0
    on.core.drain.draining = True
    if sent_away:
        with pytest.raises(GoAway):
            on.core.handle(FakeChannel(), java(complete(REQUESTS[code]), version))
        assert on.observed[-1] == (RequestCode(code).name, 1500)
    else:
        assert (await on.ask(java(complete(REQUESTS[code]), version))).code == 0


@pytest.mark.parametrize(
    ("version", "supports_go_away", "sent_away"),
    # gRPC clients receive their protocol's response for no messages.
    [(GO_AWAY_VERSION, True, False), (GO_AWAY_VERSION + 1, True, True), (GO_AWAY_VERSION, False, True)],
)
async def test_draining_ends_in_flight_long_polls_with_go_away(
    version: int, supports_go_away: bool, sent_away: bool
) -> None:
    on = stage(FakeBackend(pending=[]))
    polling = on.core.handle(FakeChannel(supports_go_away=supports_go_away), java(complete(PULL), version))
    sending = on.core.handle(FakeChannel(supports_go_away=supports_go_away), java(complete(SEND), version))
    assert polling is not None
    assert sending is not None
    on.core.drain.start()
    assert (polling.done(), sending.done()) == (sent_away, False)
    if sent_away:
        with pytest.raises(GoAway):
            await polling


async def test_draining_serves_oneway_requests() -> None:
    on = stage()
    on.core.drain.start()
    assert on.core.handle(FakeChannel(), java(request(15, b"", True, **_offset()), GO_AWAY_VERSION + 1)) is None
    assert [sent.code for sent in on.backend.sent] == [15]


async def test_poll_that_waits_for_its_route_is_ended_by_the_drain() -> None:
    on = stage(FakeBackend(cold={"orders": route()}))
    command = java(complete(PULL), GO_AWAY_VERSION + 1)
    del command.fields["bname"]
    polling = on.core.handle(FakeChannel(), command)
    on.core.drain.start()
    assert polling is not None
    with pytest.raises(GoAway):
        await polling
