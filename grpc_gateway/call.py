"""One rpc under way: who calls, and until when."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

from grpc_gateway.clients.client import Client
from grpc_gateway.core import Core, ask
from protocol_negotiation.peer import HostPort, Peer
from remoting.command import RemotingCommand

# What grpcio's own transport says of a peer: `ipv4:192.0.2.7:50000`, `ipv6:%5B::1%5D:50000`, `unix:`.
_PEER = re.compile(r"ipv[46]:(?:%5B|\[)?(?P<host>.*?)(?:%5D|\])?:(?P<port>\d+)", re.IGNORECASE)
_UNIDENTIFIED = HostPort("unix:", 0)


class Call:
    """One rpc. `client` is who calls, `context` the transport's own view of it (a `grpc.aio.ServicerContext`).

    What is noted for whoever observes rpcs: broker, queue: of what was asked last; broker_seconds: how long brokers
    took, all together (None: none was asked); messages: sent, delivered or settled; bytes_out: of their bodies;
    attempt: the highest delivery attempt among them; trace_id: of a sampled one.
    """

    __slots__ = (
        "attempt",
        "broker",
        "broker_seconds",
        "bytes_out",
        "client",
        "context",
        "messages",
        "peer",
        "queue",
        "trace_id",
    )

    def __init__(self, client: Client, context: Any, peer: Peer) -> None:
        self.client = client
        self.context = context
        self.peer = peer
        self.broker: str | None = None
        self.queue: int | None = None
        self.broker_seconds: float | None = None
        self.messages = 0
        self.bytes_out = 0
        self.attempt: int | None = None
        self.trace_id: str | None = None

    def ask(
        self, core: Core, command: RemotingCommand, broker: str, queue: int = -1
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """The broker's answer to a command of this rpc, about this queue of it (-1: any). Raises RemotingError."""
        handling = ask(core, self.client, command)
        self.trace_id = command.trace_id
        return self.answer(handling, broker, queue)

    async def answer(
        self, handling: "asyncio.Future[RemotingCommand]", broker: str, queue: int = -1
    ) -> RemotingCommand:
        """The same where the command has been given to the core already."""
        self.broker = broker
        self.queue = queue if queue >= 0 else None
        asked = time.monotonic()
        try:
            return await handling
        finally:
            self.broker_seconds = (self.broker_seconds or 0.0) + time.monotonic() - asked

    def delivers(self, size: int, attempt: int) -> None:
        """A message of this size goes out with the answer."""
        self.messages += 1
        self.bytes_out += size
        self.attempt = max(self.attempt or 0, attempt)

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


# Called when an rpc has been answered, or been given up: its name, the call, the request where there is one, the v2
# code (0: it ended before there was any), and when it began, in seconds of `time.monotonic`.
Observer = Callable[[str, Call, Any, int, float], None]


def stranger(context: Any) -> Call:
    """The call of a client that does not say who it is."""
    peer = peer_of(context)
    return Call(Client("", peer), context, peer)


def peer_of(context: Any) -> Peer:
    """Who is at the other end of a call's connection."""
    connection = getattr(context, "connection", None)
    if connection is not None:
        peer: Peer = connection.peer
        return peer
    found = _PEER.fullmatch(context.peer())
    address = HostPort(found["host"], int(found["port"])) if found else _UNIDENTIFIED
    return Peer(address, _UNIDENTIFIED)
