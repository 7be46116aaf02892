"""Timeouts of gRPC connections while the process stands still: here, while a callback of a read blocks the loop."""

import asyncio
import socket
import time

import pytest

from grpc_gateway.http2 import Timeouts, frames
from grpc_gateway.server import GrpcConnection, Server, ServerOptions
from tests.grpc_gateway.http2.http2_client import PREFACE, parse
from tests.grpc_gateway.server.servers import listening
from tests.waiting import until

pytestmark = pytest.mark.anyio

_STANDSTILL = 2.0


async def test_the_answer_to_a_ping_of_the_meantime_is_read_before_its_timeout() -> None:
    closed: list[GrpcConnection] = []
    options = ServerOptions(check_interval=0.1, timeouts=Timeouts(ping_after=0.2, ping_timeout=0.5))
    server, loop, pings = Server(options, on_close=closed.append), asyncio.get_running_loop(), 0

    def answer() -> None:
        """Answer a ping; the process stands still from the first answer on."""
        nonlocal pings
        for frame in parse(client.recv(65_536)):
            if frame.kind == frames.PING and not frame.flags & frames.ACK:
                client.sendall(frames.ping(frame.payload, ack=True))
                pings += 1
                if pings == 1:
                    time.sleep(_STANDSTILL)

    async with listening(server) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(PREFACE)
            loop.add_reader(client, answer)
            await until(lambda: pings == 3 or closed)
            loop.remove_reader(client)
            assert closed == []
