"""Connections full of long polls, through the real port on the embedded broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.app import App
from proxy.frontends import remoting_frontend
from proxy.settings.model import Settings
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.cluster.servers import eventually
from tests.proxy.messages import request
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.replica import Client, ask_route, running
from tests.proxy.tools.doctor.servers import create_topic
from tests.waiting import until

pytestmark = pytest.mark.anyio

_WAITING = 16


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr(remoting_frontend, "_FULL_TIMEOUT", 0.5)
    monkeypatch.setattr(remoting_frontend, "_SWEEP_INTERVAL", 0.2)
    settings = Settings(
        listen=[{"address": "127.0.0.1:0"}],
        embedded={"directory": tmp_path, "sync": "os"},
        admin={"listen": "off"},
        limits={"requests": 4, "waiting": _WAITING},
        drain_timeout=0.2,
    )
    async with running(settings) as app:
        create_topic(app, "orders")
        yield app


def _pull() -> RemotingCommand:
    """A pull that waits for a message for a minute."""
    fields = {"topic": "orders", "consumerGroup": "g", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6}
    more = {"commitOffset": 0, "suspendTimeoutMillis": 60_000, "subscription": "*", "subVersion": 0}
    return request(RequestCode.PULL_MESSAGE, b"", False, **fields, **more)


async def test_a_full_connection_is_read_on_after_its_polls_have_ended(app: App) -> None:
    client = await Client.connect(app)
    polls = [asyncio.ensure_future(client.connection.request(_pull(), 60.0)) for _ in range(_WAITING + 4)]
    await eventually(lambda: len(app.core.in_flight) == _WAITING, "the limit")
    # It waits behind the polls.
    assert (await client.ask(ask_route())).code == ResponseCode.SUCCESS
    ended = await asyncio.gather(*polls[:_WAITING])
    assert {reply.code for reply in ended} == {ResponseCode.PULL_NOT_FOUND}
    assert {reply.remark for reply in ended} == {"too many requests of this connection are in flight"}
    assert sum(channel.ended_polls for channel in app.remoting.channels) == _WAITING
    assert samples_of(app.metrics, "gantry_ended_polls_total") == {(): _WAITING}
    # Those behind the limit take their places and go on waiting.
    assert not any(poll.done() for poll in polls[_WAITING:])
    await client.close()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_polls_below_the_limit_go_on_waiting(app: App) -> None:
    client = await Client.connect(app)
    polls = [asyncio.ensure_future(client.connection.request(_pull(), 60.0)) for _ in range(_WAITING - 1)]
    await eventually(lambda: len(app.core.in_flight) == _WAITING - 1, "the polls")
    await asyncio.sleep(1.2)
    assert not any(poll.done() for poll in polls)
    await client.close()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_the_end_of_a_full_connection_is_noticed(app: App) -> None:
    host, port = "127.0.0.1", app.addresses[0].port
    _, writer = await asyncio.open_connection(host, port)
    writer.write(_pull().encode() * 2 * _WAITING)
    await eventually(lambda: len(app.core.in_flight) == _WAITING, "the limit")
    writer.close()
    await eventually(lambda: not app.remoting.channels, "the end of the connection")
    # The channel is gone one turn of the event loop before its polls are.
    await until(lambda: not app.core.in_flight, 5)
