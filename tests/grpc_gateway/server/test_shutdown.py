"""Ends of connections and servers: drain, timeouts, keepalive."""

import asyncio
from typing import Any

import grpc
import pytest

from grpc_gateway.http2 import CloseCause, Limits, Timeouts
from grpc_gateway.server import GrpcConnection, ServerOptions
from tests.grpc_gateway.server.servers import UNARY, path, serving, status_of
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def closed() -> list[GrpcConnection]:
    """Connections that have ended."""
    return []


def causes(connections: list[GrpcConnection]) -> list[CloseCause | None]:
    return [connection.cause for connection in connections]


async def sleep(request: bytes, _: Any) -> bytes:
    """Handle a request that is a number of seconds."""
    await asyncio.sleep(float(request))
    return request


async def test_drain_lets_calls_finish(closed: list[GrpcConnection]) -> None:
    async with serving({"Sleep": UNARY(sleep)}, on_close=closed.append) as (server, channel):
        call = channel.unary_unary(path("Sleep"))(b"0.3")
        await until(lambda: server.open_streams)
        await server.drain(10)
        assert await call == b"0.3"
        assert causes(closed) == [CloseCause.DRAIN]


async def test_drain_cancels_calls_after_the_grace_period() -> None:
    async with serving({"Sleep": UNARY(sleep)}) as (server, channel):
        call = channel.unary_unary(path("Sleep"))(b"60")
        await until(lambda: server.open_streams)
        async with asyncio.timeout(30):
            await server.drain(0.2)
        assert (await status_of(call))[0] is grpc.StatusCode.UNAVAILABLE
        assert server.calls() == {(path("Sleep"), grpc.StatusCode.CANCELLED): 1}


async def test_drain_of_idle_clients_is_quick() -> None:
    async with serving({"Sleep": UNARY(sleep)}) as (server, channel):
        await channel.unary_unary(path("Sleep"))(b"0")
        async with asyncio.timeout(30):
            await server.drain(120)
        assert not server.connections


async def test_idle_connections_are_drained(closed: list[GrpcConnection]) -> None:
    options = ServerOptions(check_interval=0.05, timeouts=Timeouts(idle=0.2))
    async with serving({"Sleep": UNARY(sleep)}, options, on_close=closed.append) as (_, channel):
        call = channel.unary_unary(path("Sleep"))
        await call(b"0.5")
        await until(lambda: closed)
        assert causes(closed) == [CloseCause.DRAIN]
        # The client connects again for the next call.
        assert await call(b"0") == b"0"


async def test_connections_over_the_maximum_age_are_drained(closed: list[GrpcConnection]) -> None:
    options = ServerOptions(check_interval=0.05, timeouts=Timeouts(age=0.2))
    async with serving({"Sleep": UNARY(sleep)}, options, on_close=closed.append) as (_, channel):
        call = channel.unary_unary(path("Sleep"))
        assert await call(b"0.5") == b"0.5"
        await until(lambda: closed)
        # Several on a slow machine: the client connects again at once, and that connection has its age too.
        assert set(causes(closed)) == {CloseCause.DRAIN}


async def test_silent_clients_are_pinged_and_aborted_without_an_answer(closed: list[GrpcConnection]) -> None:
    options = ServerOptions(check_interval=0.05, timeouts=Timeouts(ping_after=0.1, ping_timeout=0.3))
    async with serving({"Sleep": UNARY(sleep)}, options, on_close=closed.append) as (server, channel):
        # A client that answers pings stays connected.
        assert await channel.unary_unary(path("Sleep"))(b"0.8") == b"0.8"
        assert closed == []
        reader, writer = await asyncio.open_connection(*_address(server))
        await until(lambda: closed)
        assert causes(closed) == [CloseCause.UNRESPONSIVE]
        writer.close()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000)


async def test_unacknowledged_settings_end_the_connection(closed: list[GrpcConnection]) -> None:
    options = ServerOptions(check_interval=0.05, limits=Limits(settings_timeout=0.2))
    async with serving({"Sleep": UNARY(sleep)}, options, on_close=closed.append) as (server, channel):
        await channel.unary_unary(path("Sleep"))(b"0.5")
        reader, writer = await asyncio.open_connection(*_address(server))
        assert b"SETTINGS were not acknowledged" in await reader.read()
        writer.close()
        await until(lambda: closed)
        fault = closed[0].http2.fault
        assert fault is not None
        assert fault.reason == "settings_timeout"


def _address(server: Any) -> tuple[str, int]:
    local = next(iter(server.connections)).peer.local
    return local.host, local.port
