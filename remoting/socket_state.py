"""The state of a TCP connection, as the system knows it."""

import asyncio
import contextlib
import socket

# tcpi_state, the first byte of TCP_INFO: a connection that has ended (TCP_CLOSE, linux/tcp_states.h).
_CLOSED = 7


def is_reset(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has reset the connection; False for Unix sockets and where the system does not say."""
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    with contextlib.suppress(OSError):
        return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED)
    return False
