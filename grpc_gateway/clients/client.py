"""A gRPC client: a channel of the core, over however many connections it uses."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpc_gateway.clients import server_push
from grpc_gateway.clients.telemetry_stream import Stream
from grpc_gateway.name_mapping import Names
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, Settings
from remoting.command import RemotingCommand
from remoting.tasks import spawn

if TYPE_CHECKING:
    from grpc_gateway.clients.client_lifecycle import Part

# Topics of one client that are noted without its settings naming them.
_MAX_TOPICS = 1_000


class Client:
    """One client: its id, what it told us, and its telemetry streams while there are any.

    Nothing but a push needs settings or a stream: a client whose stream is gone, or was never here, is served all
    the same. peer: of the connection of its newest call. language, version: as its calls' metadata say. seen: when it
    called last, in seconds of the loop's clock. connections: those that it calls over; alone_since: when the last one
    of them closed. settings: its own, as it sent them. subscriptions, topics: what its receives and its sends named,
    which is what is known of one without settings. kind, part: what it is, and what the core knows of that.
    producers_represented: the brokers know its producer groups by another channel. notices: where what brokers tell it
    goes. leave_cause: why it leaves its groups. names: its own for topics and groups; everything that is kept of it
    here is in the brokers' names.
    """

    # It is told to leave by its transport (GOAWAY of HTTP/2), never by a response code.
    supports_go_away = False

    def __init__(self, client_id: str, peer: Peer) -> None:
        self.client_id = client_id
        self.peer = peer
        self.names: Names | None = None
        self.language = ""
        self.version = ""
        self.seen = 0.0
        self.closed = False
        self.producers_represented = False
        self.leave_cause = "unregistered"
        self.connections: set[Any] = set()
        self.alone_since: float | None = None
        self.settings: Settings | None = None
        self.subscriptions: dict[str, FilterExpression] = {}
        self.topics: set[str] = set()
        self.kind = ClientType.CLIENT_TYPE_UNSPECIFIED
        self.part: Part | None = None
        self.notices: Callable[[Client, RemotingCommand], None] = server_push.tell
        # Counts the changes of what the core's knowledge of it is made from; and when the last was, ms since 1970.
        self.revision = 0
        self.known_since = self.revised_at = _now()
        self._streams: list[Stream] = []
        self._holds = 0
        self._free: asyncio.Event | None = None

    # Telemetry.

    @property
    def stream(self) -> Stream | None:
        """The stream to tell it something by: the newest that is open."""
        return self._streams[-1] if self._streams else None

    def attach(self, stream: Stream) -> None:
        """From now on it is told by this stream."""
        if stream not in self._streams:
            self._streams.append(stream)

    def detach(self, stream: Stream) -> None:
        """The stream has ended; an older one that is still open serves on."""
        if stream in self._streams:
            self._streams.remove(stream)

    def end_streams(self) -> None:
        """End all of its streams in good order."""
        for stream in list(self._streams):
            stream.end()

    # What it does, in case that it does not say so.

    def subscribed(self, topic: str, expression: FilterExpression) -> None:
        """It receives from a topic: so it is subscribed to it, whether we have its settings or not."""
        if self.settings is None and self.subscriptions.get(topic) != expression:
            self._note(topic, self.subscriptions)
            # A copy: a part of a request keeps all of it in memory.
            self.subscriptions[topic] = FilterExpression(type=expression.type, expression=expression.expression)
            self.revise()

    def publishes(self, topic: str) -> None:
        """It sends to a topic: so transaction checks of that topic may be for it."""
        if topic not in self.topics:
            self._note(topic, self.topics)
            self.topics.add(topic)
            self.revise()

    def _note(self, topic: str, known: "dict[str, FilterExpression] | set[str]") -> None:
        if len(known) >= _MAX_TOPICS:
            known.clear()

    def revise(self) -> None:
        """What the core knows of it is no longer all."""
        self.revision += 1
        self.revised_at = _now()

    # As a channel of the core.

    def request(self, command: RemotingCommand, timeout: float) -> "asyncio.Future[RemotingCommand]":
        """Ask the client what a broker or a tool wants to know. The future raises RemotingError."""
        return spawn(server_push.ask(self, command, timeout))

    def oneway(self, command: RemotingCommand) -> None:
        """Tell the client what a broker has to say."""
        self.notices(self, command)

    def pause(self) -> None:
        """Let its calls wait: a broker does not keep up with what it sends.

        Its connections are read on, as they carry the windows of its receives and perhaps other clients' calls.
        """
        self._holds += 1

    def resume(self) -> None:
        """Undo one `pause`."""
        self._holds -= 1
        if not self._holds and self._free is not None:
            self._free.set()
            self._free = None

    @property
    def held(self) -> bool:
        """Whether its calls have to wait."""
        return self._holds > 0

    async def released(self) -> None:
        """Wait until nothing holds it."""
        while self._holds > 0:
            if self._free is None:
                self._free = asyncio.Event()
            await self._free.wait()


def _now() -> int:
    return time.time_ns() // 1_000_000
