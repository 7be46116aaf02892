"""Requests to a broker while the process stands still: here, while a callback of a read blocks the event loop."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import pytest

from proxy.backends.cluster.server_turns import ServerTurns
from proxy.backends.cluster.upstream import Upstream
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import RequestCode, ResponseCode, SerializeType
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import RequestTimeout, UnsupportedRequest
from remoting.timeout_wheel import TimeoutWheel, ticking

pytestmark = pytest.mark.anyio

# Seconds: the request's timeout passes during the standstill.
_TIMEOUT, _STANDSTILL = 0.3, 2.0


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Broker:
    """The broker's end of a connection; and a socket in whose read the process stands still, as a stopped one does."""

    def __init__(self) -> None:
        self.ours, self._broker = socket.socketpair()
        self._trigger, self._triggered = socket.socketpair()
        self._over = asyncio.Event()
        self._answer = b""

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._triggered, self._block)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._triggered)
        for end in (self._broker, self._trigger, self._triggered):
            end.close()

    def _block(self) -> None:
        self._triggered.recv(1)
        if self._answer:
            self._broker.sendall(self._answer)
        time.sleep(_STANDSTILL)
        self._over.set()

    async def answer_in_standstill(self, answer: bytes = b"") -> None:
        self._answer = answer
        self._over.clear()
        self._trigger.sendall(b"!")
        await self._over.wait()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[RemotingConnection, Broker]]:
    loop = asyncio.get_running_loop()
    wheel = TimeoutWheel(loop.time)
    with Broker() as broker, ticking(wheel):
        _, connection = await loop.create_connection(
            lambda: Upstream(wheel, _refuse, lambda _: None, "broker-a", ServerTurns(loop)), sock=broker.ours
        )
        yield connection, broker
        connection.close(CloseCause.LOCAL)


async def test_an_answer_of_the_meantime_is_read_before_the_timeout() -> None:
    async with connected() as (connection, broker):
        command = commands.request(RequestCode.SEND_MESSAGE_V2)
        reply = connection.request(command, _TIMEOUT)
        answer = commands.answer(commands.success({"queueOffset": "3"}), command.opaque, SerializeType.JSON)
        await broker.answer_in_standstill(answer.encode())
        async with asyncio.timeout(30):
            assert (await reply).code == ResponseCode.SUCCESS
        assert connection.cause is None


async def test_a_request_without_an_answer_times_out_after_it() -> None:
    async with connected() as (connection, broker):
        reply = connection.request(commands.request(RequestCode.SEND_MESSAGE_V2), _TIMEOUT)
        await broker.answer_in_standstill()
        async with asyncio.timeout(30):
            with pytest.raises(RequestTimeout):
                await reply
        assert connection.cause is CloseCause.UNRESPONSIVE


async def test_standstills_in_succession_do_not_put_off_timeouts() -> None:
    """As of a process that another one stops again and again."""
    async with connected() as (connection, broker):
        reply = connection.request(commands.request(RequestCode.SEND_MESSAGE_V2), _TIMEOUT)
        for _ in range(3):
            await broker.answer_in_standstill()
        await asyncio.sleep(0.1)
        assert isinstance(reply.exception(), RequestTimeout)


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"request {command.code}")
