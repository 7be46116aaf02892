"""A gRPC client: a channel of the messaging core, over any number of connections."""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from grpc_gateway.clients.telemetry_stream import TelemetryStream
from grpc_gateway.name_mapping import NameMapping
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, Settings
from remoting.command import RemotingCommand
from remoting.compilation import mypyc_attr
from remoting.private_future import PrivateFuture
from remoting.tasks import spawn

# Topics recorded from the calls of one client, for sending and for receiving each, and bytes of what is recorded.
_MAX_TOPICS: Final = 1_000
_MAX_RECORDED_BYTES: Final = 256 * 1024


class Push(Protocol):
    """Delivers commands of brokers and admin tools to a client."""

    def request(
        self, client: "Client", command: RemotingCommand, timeout: float
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Return the client's reply. Raises RemotingError; `timeout` is in seconds."""

    def oneway(self, client: "Client", command: RemotingCommand) -> None:
        """Deliver a command that has no reply."""


@dataclass(slots=True)
class Registration:
    """A client as it is registered with the core.

    group: consumer group; empty for producers. topics: topics of a producer, which are its producer groups.
    revision: revision of the client that was registered. registered_at: seconds of the loop's clock.
    """

    client_type: ClientType
    group: str
    topics: frozenset[str]
    revision: int
    registered_at: float


@mypyc_attr(allow_interpreted_subclasses=True)
class Client:
    """One client: its id, its settings, and its open telemetry streams.

    Calls need neither settings nor a stream; only commands that are pushed to the client need a stream.

    peer: peer of the connection of the latest call.
    language, version: from the metadata of the latest call.
    last_call_at: time of the latest call, seconds of the loop's clock.
    connections: open connections with calls of this client.
    disconnected_at: close of the last connection, seconds of the loop's clock; None while one is open.
    settings, settings_bytes: as received from the client, and their encoded size.
    subscriptions, topics: from its receives and sends, for clients without settings. recorded_bytes: their size.
    registration: the client as it is registered with the core.
    producers_represented: another channel registers its producer groups at the brokers.
    representative: it is that channel, and no client.
    leave_cause: the cause if it leaves its groups.
    name_mapping: mapping of topic and group names; all names stored here are the brokers'.
    principal: the sender of its calls, opaque here. user: that sender's name; "" while authentication is off. The same
    client id of another user is another client.
    """

    # Clients are asked to leave by HTTP/2 GOAWAY, never by a response code.
    supports_go_away = False
    # Each rpc limits the unread responses of its own connection.
    unread_bytes = 0

    def __init__(self, client_id: str, peer: Peer, push: Push) -> None:
        self.client_id = client_id
        self.peer = peer
        self.push = push
        self.name_mapping: NameMapping | None = None
        self.principal: Any = None
        self.user = ""
        self.language = ""
        self.version = ""
        self.last_call_at = 0.0
        self.closed = False
        self.producers_represented = False
        self.representative = False
        self.leave_cause = "unregistered"
        self.connections: set[Any] = set()
        self.disconnected_at: float | None = None
        self.settings: Settings | None = None
        self.settings_bytes = 0
        self.subscriptions: dict[str, FilterExpression] = {}
        self.topics: set[str] = set()
        self.recorded_bytes = 0
        self.client_type = ClientType.CLIENT_TYPE_UNSPECIFIED
        self.registration: Registration | None = None
        # Number of changes that the core has to learn of; times are ms since 1970.
        self.revision = 0
        self.created_at = self.revised_at = _now()
        self._streams: list[TelemetryStream] = []
        self._pauses = 0
        # Calls that wait, in their order.
        self._waiting: dict[asyncio.Future[None], None] = {}

    # Telemetry.

    @property
    def stream(self) -> TelemetryStream | None:
        """The newest open telemetry stream."""
        return self._streams[-1] if self._streams else None

    @property
    def queued_bytes(self) -> int:
        """The size of the commands that wait in its streams."""
        return sum(stream.queued_bytes for stream in self._streams)

    def attach(self, stream: TelemetryStream) -> None:
        """Make this the stream that commands are pushed to."""
        if stream not in self._streams:
            self._streams.append(stream)

    def detach(self, stream: TelemetryStream) -> None:
        """Remove a stream that has ended; the newest one left takes over."""
        if stream in self._streams:
            self._streams.remove(stream)

    def end_streams(self) -> None:
        """End all telemetry streams without an error."""
        for stream in list(self._streams):
            stream.end()

    # Topics seen in calls, for clients without settings.

    def record_subscription(self, topic: str, expression: FilterExpression) -> None:
        """Record that the client receives from a topic; ignored for a client with settings."""
        if self.settings is None and self.subscriptions.get(topic) != expression:
            # A copy, since a submessage keeps the memory of the whole request.
            copy = FilterExpression(type=expression.type, expression=expression.expression)
            self._make_room(len(topic) + copy.ByteSize())
            self.subscriptions[topic] = copy
            self.revise()

    def record_publication(self, topic: str) -> None:
        """Record that the client sends to a topic, so that it can answer transaction checks of it."""
        if topic not in self.topics:
            self._make_room(len(topic))
            self.topics.add(topic)
            self.revise()

    def forget(self, sent: Iterable[str], received: Iterable[str]) -> None:
        """Forget recorded topics."""
        self.topics.difference_update(sent)
        for topic in received:
            self.subscriptions.pop(topic, None)
        self.revise()

    def _make_room(self, size: int) -> None:
        """Count `size` bytes that are to be recorded; forget all that was recorded before if it is too much."""
        self.recorded_bytes += size
        if self.recorded_bytes > _MAX_RECORDED_BYTES or max(len(self.subscriptions), len(self.topics)) >= _MAX_TOPICS:
            self.subscriptions.clear()
            self.topics.clear()
            self.recorded_bytes = size

    def revise(self) -> None:
        """Mark the registration with the core as outdated."""
        self.revision += 1
        self.revised_at = _now()

    # Channel of the core.

    def request(self, command: RemotingCommand, timeout: float) -> "asyncio.Future[RemotingCommand]":
        """Send a request of a broker or an admin tool to the client. The future raises RemotingError."""
        return spawn(self.push.request(self, command, timeout))

    def oneway(self, command: RemotingCommand) -> None:
        """Send a command that has no reply to the client."""
        self.push.oneway(self, command)

    def pause(self) -> None:
        """Delay the client's calls, because a broker is slower than the client sends.

        Its connections are still read: they carry flow-control windows, and calls of other clients.
        """
        self._pauses += 1

    def resume(self) -> None:
        """Undo one `pause`."""
        self._pauses -= 1
        if not self._pauses:
            for waiting in list(self._waiting):
                if not waiting.done():
                    waiting.set_result(None)

    @property
    def paused(self) -> bool:
        """Whether calls have to wait."""
        return self._pauses > 0

    async def wait_until_resumed(self) -> None:
        """Wait while the client is paused."""
        while self._pauses > 0:
            waiting: PrivateFuture[None] = PrivateFuture()
            self._waiting[waiting] = None
            waiting.add_done_callback(self._waiting.pop)
            await waiting


def _now() -> int:
    return time.time_ns() // 1_000_000
