"""Connections that the peer resets while their reads are paused."""

import asyncio
import socket
import struct

import pytest

from remoting.close_cause import CloseCause
from remoting.connection import RemotingConnection
from remoting.socket_state import is_reset
from remoting.timeout_wheel import TimeoutWheel

pytestmark = pytest.mark.anyio


async def test_a_reset_is_noticed_while_reads_are_paused() -> None:
    loop = asyncio.get_running_loop()
    made: list[RemotingConnection] = []

    def accept() -> RemotingConnection:
        made.append(RemotingConnection(TimeoutWheel(loop.time), lambda *_: None, lambda _: None))
        return made[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    peer = socket.create_connection(server.sockets[0].getsockname())
    while not made or made[0].transport is None:
        await asyncio.sleep(0.01)
    connection = made[0]
    connection.pause()
    before = connection.was_reset
    # Closing resets the connection.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    await asyncio.sleep(0.05)
    assert (before, connection.was_reset) == (False, True)
    # The event loop has not noticed it.
    assert not connection.closed
    connection.abort(CloseCause.RESET)
    server.close()


def test_unix_sockets_have_no_state() -> None:
    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return one

    one, other = socket.socketpair()
    with one, other:
        assert not is_reset(Transport())
