"""One rpc in progress: its client, its deadline, and its statistics."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.server_push import TELEMETRY_PUSH
from grpc_gateway.core import Core, dispatch
from protocol_negotiation.peer import HostPort, Peer
from remoting.command import RemotingCommand

# Peers as grpcio's transport writes them: `ipv4:192.0.2.7:50000`, `ipv6:%5B::1%5D:50000`, `unix:`.
_PEER: Final = re.compile(r"ipv[46]:(?:%5B|\[)?(?P<host>.*?)(?:%5D|\])?:(?P<port>\d+)", re.IGNORECASE)
_UNKNOWN_ADDRESS: Final = HostPort("unix:", 0)


# Writes serialized responses of a stream.
Write = Callable[[list[bytes]], Awaitable[None]]


class Rpc:
    """One rpc of the messaging service. `context` is the transport's `grpc.aio.ServicerContext`.

    The other fields are statistics for the observer. broker, queue: target of the latest request to a broker.
    broker_seconds: time spent in requests to brokers, added up; None without any. messages: messages sent, delivered
    or settled; bytes_out: size of their bodies. attempt: highest delivery attempt of the messages delivered.
    trace_id: trace of a sampled request. code: v2 code of the status in a stream; 0 before it is written. topic, group,
    key, bytes_in: facts that the service has read from the request; topic is None if the observer is to read them.
    """

    __slots__ = (
        "attempt",
        "broker",
        "broker_seconds",
        "bytes_in",
        "bytes_out",
        "client",
        "code",
        "context",
        "group",
        "key",
        "messages",
        "peer",
        "queue",
        "topic",
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
        self.code = 0
        self.topic: str | None = None
        self.group: str | None = None
        self.key: str | None = None
        self.bytes_in = 0

    def request(
        self, core: Core, command: RemotingCommand, broker: str, queue: int = -1
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Give a command to the core and return its reply. Raises RemotingError.

        broker, queue: target, for the statistics; -1 for a command about no single queue.
        """
        return self.wait_for(self.dispatch(core, command), broker, queue)

    def dispatch(self, core: Core, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        """Give a command to the core and return the future of its reply, for `wait_for`. Raises RemotingError."""
        reply = dispatch(core, self.client, command)
        self.trace_id = command.trace_id
        return reply

    async def wait_for(self, reply: "asyncio.Future[RemotingCommand]", broker: str, queue: int = -1) -> RemotingCommand:
        """Return the reply to a command that the core already has. Raises RemotingError."""
        self.note_target(broker, queue)
        started = time.monotonic()
        try:
            return await reply
        finally:
            self.note_wait(started)

    def note_target(self, broker: str, queue: int) -> None:
        """Note the broker and the queue of a command, -1 for none, that has been given to the core."""
        self.broker = broker
        self.queue = queue if queue >= 0 else None

    def note_wait(self, started: float) -> None:
        """Note the end of a command that was given to the core at the time `started`."""
        self.broker_seconds = (self.broker_seconds or 0.0) + time.monotonic() - started

    def count_delivery(self, size: int, attempt: int) -> None:
        """Count a message with a body of `size` bytes that is sent with the response."""
        self.messages += 1
        self.bytes_out += size
        self.attempt = max(self.attempt or 0, attempt)

    async def flushed(self) -> None:
        """Wait until the responses so far are written to the connection, if the transport supports that.

        Raises CancelledError if the client disconnects first.
        """
        flushed = getattr(self.context, "flushed", None)
        if flushed is not None:
            await flushed()

    def may_hold(self, limit: int) -> bool:
        """Return whether at most `limit` bytes wait for the client."""
        unread: int = getattr(self.context, "unread_bytes", 0)
        return unread <= limit

    def hold(self, size: int, limit: int) -> bool:
        """Count `size` bytes of messages that wait for the client; return False if over `limit` bytes wait already."""
        if not self.may_hold(limit):
            return False
        hold = getattr(self.context, "hold", None)
        if hold is not None:
            hold(size)
        return True

    def release(self, size: int) -> None:
        """Undo a successful `hold`."""
        hold = getattr(self.context, "hold", None)
        if hold is not None:
            hold(-size)

    def remaining(self) -> float | None:
        """Return the seconds until the deadline; None without a deadline."""
        remaining: float | None = self.context.time_remaining()
        return remaining


# Called at the end of each rpc with its name, the rpc, the request (None if there was none), the v2 code (0 if the rpc
# ended without a status), and the start time in seconds of `time.monotonic`.
Observer = Callable[[str, Rpc, Any, int, float], None]


def anonymous_rpc(context: Any) -> Rpc:
    """Return the rpc of a client that sent no client id."""
    peer = peer_of(context)
    return Rpc(Client("", peer, TELEMETRY_PUSH), context, peer)


def peer_of(context: Any) -> Peer:
    """Return the peer of an rpc's connection."""
    connection = getattr(context, "connection", None)
    if connection is not None:
        peer: Peer = connection.peer
        return peer
    match = _PEER.fullmatch(context.peer())
    address = HostPort(match["host"], int(match["port"])) if match else _UNKNOWN_ADDRESS
    return Peer(address, _UNKNOWN_ADDRESS)
