"""One rpc under way: who calls, and until when."""

import re
from typing import Any

from grpc_gateway.client import Client
from protocol_negotiation.peer import HostPort, Peer

# What grpcio's own transport says of a peer: `ipv4:192.0.2.7:50000`, `ipv6:%5B::1%5D:50000`, `unix:`.
_PEER = re.compile(r"ipv[46]:(?:%5B|\[)?(?P<host>.*?)(?:%5D|\])?:(?P<port>\d+)", re.IGNORECASE)
_NOBODY = HostPort("unix:", 0)


class Call:
    """One rpc. `client` is who calls, `context` the transport's own view of it (a `grpc.aio.ServicerContext`)."""

    __slots__ = ("client", "context", "peer")

    def __init__(self, client: Client, context: Any, peer: Peer) -> None:
        self.client = client
        self.context = context
        self.peer = peer

    async def flushed(self) -> None:
        """Wait until what was answered so far is on its way, as far as the transport can tell.

        Raises CancelledError where the client goes before.
        """
        flushed = getattr(self.context, "flushed", None)
        if flushed is not None:
            await flushed()

    def remaining(self) -> float | None:
        """Seconds until the call's deadline; None where it has none."""
        remaining: float | None = self.context.time_remaining()
        return remaining


def peer_of(context: Any) -> Peer:
    """Who is at the other end of a call's connection."""
    connection = getattr(context, "connection", None)
    if connection is not None:
        peer: Peer = connection.peer
        return peer
    found = _PEER.fullmatch(context.peer())
    address = HostPort(found["host"], int(found["port"])) if found else _NOBODY
    return Peer(address, _NOBODY)
