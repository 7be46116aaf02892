"""Clients that die, through the real port on the embedded broker."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import ClientType
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest
from proxy.app import App
from proxy.settings.model import Settings
from tests.cluster.grpc.consumer import Consumer, bodies
from tests.cluster.servers import eventually
from tests.proxy.replica import running
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
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer), return_exceptions=True)

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
