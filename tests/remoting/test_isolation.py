"""A failure in the continuation of one request or connection does not reach others."""

import asyncio
import logging

import pytest

from remoting import command as commands
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost
from remoting.flow_control import FlowControl
from remoting.tasks import isolated
from remoting.timeout_wheel import TimeoutWheel

pytestmark = pytest.mark.anyio


class Source:
    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.resumed = 0

    def pause(self) -> None: ...

    def resume(self) -> None:
        if self.fails:
            raise RuntimeError("injected")
        self.resumed += 1


def _connection(on_close: object = None) -> RemotingConnection:
    def close(_: RemotingConnection) -> None:
        if on_close is not None:
            raise RuntimeError("injected")

    return RemotingConnection(TimeoutWheel(asyncio.get_running_loop().time), lambda *_: None, close, name="server")


async def test_requests_fail_although_the_handler_of_the_lost_connection_fails() -> None:
    connection = _connection("fails")
    replies = [connection.request(commands.request(34), 10) for _ in range(2)]
    connection.connection_lost(None)
    assert [type(reply.exception()) for reply in replies] == [ConnectionLost] * 2


async def test_requests_fail_although_a_takeover_fails() -> None:
    connection = _connection()

    def fail(*_: object) -> None:
        raise RuntimeError("injected")

    first = connection.request(commands.request(34), 10, None, fail)
    second = connection.request(commands.request(34), 10)
    connection.connection_lost(None)
    assert isinstance(first.exception(), RuntimeError)
    assert isinstance(second.exception(), ConnectionLost)


async def test_sources_resume_although_one_fails() -> None:
    connection: FlowControl = _connection()
    connection.congested = True
    sources = [Source(fails=True), Source(fails=False)]
    for source in sources:
        connection.pause_until_drained(source)
    connection.resume_sources()
    assert sources[1].resumed == 1


async def test_an_isolated_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        isolated(Source(fails=True).resume)
    assert "Source.resume failed" in caplog.text
