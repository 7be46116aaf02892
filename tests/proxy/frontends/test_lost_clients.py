"""Clients that die, through the real port on the embedded broker."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grpc_gateway.http2.limits import Timeouts
from grpc_gateway.server import GrpcConnection
from protos.apache.rocketmq.v2.definition_pb2 import ClientType
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest
from proxy.app import App
from proxy.settings.model import Settings
from tests.cluster.grpc.consumer import Consumer, bodies
from tests.cluster.servers import eventually
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.replica import Client, ask_route, running
from tests.proxy.tools.doctor.servers import create_topic

pytestmark = pytest.mark.anyio

# Seconds after which a renewed message would be delivered again if its consumer's death were not noticed.
_RENEWAL = 60.0


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    embedded = {"directory": tmp_path, "sync": "os"}
    listen = [{"address": "127.0.0.1:0"}]
    settings = Settings(listen=listen, embedded=embedded, admin={"listen": "off"}, drain_timeout=0.2)
    async with running(settings) as app:
        create_topic(app, "orders")
        yield app


class Cable:
    """A TCP relay whose connections to the replica can be reset, as those of a killed process are."""

    def __init__(self, app: App) -> None:
        self._target = app.addresses[0]
        self._writers: list[asyncio.StreamWriter] = []
        self._copying: list[asyncio.Future[None]] = []
        self._server: asyncio.Server

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.reset()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += (writer, to_writer)
        copying = [asyncio.ensure_future(_copy(reader, to_writer)), asyncio.ensure_future(_copy(to_reader, writer))]
        self._copying += copying
        await asyncio.gather(*copying, return_exceptions=True)

    def stop(self) -> None:
        """Relay nothing any more, as if the client's process were stopped; the connections stay open."""
        for copying in self._copying:
            copying.cancel()

    def reset(self) -> None:
        """Reset all connections, and accept no further ones."""
        self._server.close()
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            if not writer.transport.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


async def test_grpc_consumer_that_answers_no_pings_leaves_its_group(app: App) -> None:
    cable = Cable(app)
    async with cable as relayed, Consumer(relayed, "g", "orders", "stopped") as stopped:
        receiving = asyncio.ensure_future(stopped.receive(wait=20, auto_renew=True))
        await eventually(lambda: app.core.in_flight, "the receive")
        await _join(stopped)
        await eventually(lambda: app.registry.consumer_ids("g") == {"stopped"}, "the membership")
        cable.stop()
        for connection in app.grpc.server.connections:
            # From now on, so that a slow machine does not miss a ping before.
            assert isinstance(connection, GrpcConnection)
            connection._timeouts = Timeouts(ping_after=0.1, ping_timeout=0.5)
        await eventually(lambda: not app.registry.consumer_ids("g"), "the end of the membership")
        assert app.grpc.service.client_lifecycle.lost["unresponsive"] == 1
        receiving.cancel()


def test_vanished_hosts_are_noticed_within_15_seconds_by_default() -> None:
    settings = Settings()
    # Connections are checked every second.
    assert settings.grpc.ping_after + settings.grpc.ping_timeout + 2 <= 15
    assert 0 < settings.limits.dead_peer_timeout <= 15


async def test_accepted_connections_of_both_protocols_have_the_socket_options(app: App) -> None:
    options: list[tuple[int, int]] = []
    client = await Client.connect(app)
    await client.ask(ask_route())
    async with Consumer(str(app.addresses[0]), "g", "orders") as consumer:
        await _join(consumer)
        for connection in (*app.remoting.channels, *app.grpc.server.connections):
            transport = getattr(connection, "transport", None) or getattr(connection, "_transport", None)
            assert transport is not None
            accepted = transport.get_extra_info("socket")
            alive = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options.append((alive, accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)))
    assert options == [(1, 12_000)] * 2
    await client.close()


async def _join(consumer: Consumer) -> None:
    await consumer.call("Heartbeat", HeartbeatRequest(group=consumer.group, client_type=ClientType.PUSH_CONSUMER))


async def test_messages_of_a_killed_grpc_consumer_reach_another_member(app: App) -> None:
    cable = Cable(app)
    address = str(app.addresses[0])
    async with (
        cable as relayed,
        Consumer(address, "g", "orders", "alive") as alive,
        Consumer(relayed, "g", "orders", "dead") as dead,
    ):
        receiving = asyncio.ensure_future(dead.receive_all(1, auto_renew=True))
        await eventually(lambda: app.core.in_flight, "the receive")
        await alive.send(b"m")
        assert bodies(await receiving) == [b"m"]
        await _join(dead)
        await eventually(lambda: app.registry.consumer_ids("g") == {"dead"}, "the membership")
        began = time.monotonic()
        cable.reset()
        await eventually(lambda: not app.registry.consumer_ids("g"), "the end of the membership")
        assert bodies(await alive.receive_all(1, auto_renew=True)) == [b"m"]
        assert time.monotonic() - began < _RENEWAL / 2
        assert app.grpc.service.client_lifecycle.lost["reset"] == 1
        assert samples_of(app.metrics, "gantry_grpc_lost_clients_total")["reset",] == 1
