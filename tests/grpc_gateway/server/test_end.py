"""How connections and servers end."""

import asyncio
from typing import Any

import grpc
import pytest

from grpc_gateway.http2 import CloseCause, Limits, Upkeep
from grpc_gateway.server import GrpcConnection, ServerOptions
from tests.grpc_gateway.server.kit import UNARY, path, serving, status_of, until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def slow(request: bytes, _: Any) -> bytes:
    await asyncio.sleep(float(request))
    return request


async def test_a_drain_lets_calls_finish() -> None:
    closed: list[GrpcConnection] = []
    async with serving({"Slow": UNARY(slow)}, on_close=closed.append) as (server, channel):
        call = channel.unary_unary(path("Slow"))(b"0.3")
        await until(lambda: server.open_streams)
        await server.drain(10)
        assert await call == b"0.3"
        assert [connection.cause for connection in closed] == [CloseCause.DRAIN]
        assert server.stats.closed == {CloseCause.DRAIN: 1}


async def test_a_drain_has_an_end() -> None:
    async with serving({"Slow": UNARY(slow)}) as (server, channel):
        call = channel.unary_unary(path("Slow"))(b"60")
        await until(lambda: server.open_streams)
        async with asyncio.timeout(30):
            await server.drain(0.2)
        assert (await status_of(call))[0] is grpc.StatusCode.UNAVAILABLE
        assert server.stats.cancelled == 1


async def test_a_drain_of_idle_clients_is_quick() -> None:
    async with serving({"Slow": UNARY(slow)}) as (server, channel):
        await channel.unary_unary(path("Slow"))(b"0")
        async with asyncio.timeout(30):
            await server.drain(120)
        assert not server.connections


async def test_idle_connections_are_sent_away() -> None:
    options = ServerOptions(sweep=0.05, upkeep=Upkeep(idle=0.2))
    async with serving({"Slow": UNARY(slow)}, options) as (server, channel):
        call = channel.unary_unary(path("Slow"))
        await call(b"0.5")
        await until(lambda: server.stats.closed)
        assert server.stats.closed == {CloseCause.DRAIN: 1}
        # The client comes again when it needs to.
        assert await call(b"0") == b"0"


async def test_old_connections_are_sent_away() -> None:
    options = ServerOptions(sweep=0.05, upkeep=Upkeep(age=0.2))
    async with serving({"Slow": UNARY(slow)}, options) as (server, channel):
        call = channel.unary_unary(path("Slow"))
        assert await call(b"0.5") == b"0.5"
        await until(lambda: server.stats.closed)
        assert server.stats.closed == {CloseCause.DRAIN: 1}


async def test_clients_that_are_silent_are_asked() -> None:
    options = ServerOptions(sweep=0.05, upkeep=Upkeep(ping_after=0.1, ping_timeout=0.3))
    async with serving({"Slow": UNARY(slow)}, options) as (server, channel):
        call = channel.unary_unary(path("Slow"))
        # A client that answers pings stays, whatever else it does.
        assert await call(b"0.8") == b"0.8"
        assert server.stats.closed == {}
        reader, writer = await asyncio.open_connection(*_address(server))
        await until(lambda: server.stats.closed)
        assert server.stats.closed == {CloseCause.UNRESPONSIVE: 1}
        writer.close()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000)


async def test_settings_have_to_be_acknowledged() -> None:
    options = ServerOptions(sweep=0.05, limits=Limits(settings_timeout=0.2))
    async with serving({"Slow": UNARY(slow)}, options) as (server, channel):
        await channel.unary_unary(path("Slow"))(b"0.5")
        reader, writer = await asyncio.open_connection(*_address(server))
        said = await reader.read()
        assert b"SETTINGS were not acknowledged" in said
        writer.close()
        await until(lambda: server.stats.closed)
        assert server.stats.refused == {"settings_timeout": 1}


def _address(server: Any) -> tuple[str, int]:
    local = next(iter(server.connections)).peer.local
    return local.host, local.port
