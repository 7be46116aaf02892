"""A channel: one connected client, whatever protocol it speaks, as the core sees it."""

import asyncio
import itertools
import math
from typing import Literal, NamedTuple, Protocol

from protocol_negotiation.peer import Peer
from remoting.command import RemotingCommand

ChannelProtocol = Literal["remoting", "grpc"]

_numbers = itertools.count(1)


class Identity(NamedTuple):
    """Who a client is, as it says itself; None: it has not said."""

    client_id: str | None
    language: str | None
    version: str | None


UNIDENTIFIED = Identity(None, None, None)


class Session:
    """What the core remembers of a channel while it is open.

    number: unique in this process; requests of one number to one broker keep their order.
    address: the client's, as text.
    client_id, language, version: from the last heartbeat, which is kept with the time (seconds) it
    came at. brokers: names of the brokers which the client has learned of from us and would
    therefore keep in touch with; enrolled: those that have been told of it. turns: per topic, which
    broker answers the client's next nameless query.
    """

    __slots__ = (
        "address",
        "client_id",
        "heartbeat",
        "heartbeat_at",
        "known_brokers",
        "language",
        "number",
        "query_turns",
        "registered_brokers",
        "version",
    )

    def __init__(self, address: str) -> None:
        self.number = next(_numbers)
        self.address = address
        self.client_id: str | None = None
        self.known_brokers: set[str] = set()
        self.registered_brokers: set[str] = set()
        self.heartbeat: RemotingCommand | None = None
        self.heartbeat_at = -math.inf
        self.language = ""
        self.version = 0
        self.query_turns: dict[str, int] = {}


class Channel(Protocol):
    """One client: who it is, what we remember of it, and how to ask it something."""

    protocol: ChannelProtocol
    # Whether the core reports its requests to observers.
    observed: bool
    closed: bool
    # It understands GO_AWAY, given that it is new enough.
    supports_go_away: bool
    # What producer groups it is in, brokers know by another channel.
    producers_represented: bool
    # Why it leaves groups when it unregisters: a `LeaveCause` (proxy/core/client_registry.py).
    leave_cause: str

    def __hash__(self) -> int:
        """A channel is itself."""

    @property
    def session(self) -> Session:
        """What we remember of it."""

    @property
    def identity(self) -> Identity:
        """Who it is."""

    @property
    def peer(self) -> Peer:
        """Where it comes from."""

    def request(self, command: RemotingCommand, timeout: float) -> "asyncio.Future[RemotingCommand]":
        """Ask the client; raises through the future as `RemotingConnection.request`."""

    def oneway(self, command: RemotingCommand) -> None:
        """Tell the client."""

    def pause(self) -> None:
        """Read no more of its requests for now."""

    def resume(self) -> None:
        """Undo one `pause`."""
