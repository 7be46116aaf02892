"""A channel: one connected client of any protocol, as the core sees it."""

import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from protocol_negotiation.peer import Peer
from proxy.core.membership_state import MembershipState
from proxy.core.principal import Principal
from proxy.core.upstream_shares import Window
from remoting.command import RemotingCommand
from remoting.outcomes import Reply

if TYPE_CHECKING:
    from proxy.core.context import Context

ChannelProtocol = Literal["remoting", "grpc"]

_numbers = itertools.count(1)


class Identity(NamedTuple):
    """The identity that a client reports; None: not reported yet."""

    client_id: str | None
    language: str | None
    version: str | None


UNIDENTIFIED = Identity(None, None, None)


class Session:
    """The core's state of an open channel.

    number: unique in this process; requests of one number to one broker keep their order.
    address: the client's address as text.
    client_id, language, version: from the last heartbeat. heartbeat_users: by name, the authenticated senders of
    heartbeats, only while authentication is on.
    query_turns: by topic, the index of the broker that answers the client's next QUERY_MESSAGE without a broker name,
    the topic of the last one at the end.
    polls: the replies of in-flight long polls, each with its request's context. asked: correlation ids of messages that
    ask for a reply, oldest first, only while authentication is on or for clients in a namespace. windows: by broker
    name, the bound of its source address there.
    """

    __slots__ = (
        "address",
        "asked",
        "client_id",
        "heartbeat_users",
        "language",
        "membership",
        "number",
        "polls",
        "query_turns",
        "version",
        "windows",
    )

    def __init__(self, address: str) -> None:
        self.number = next(_numbers)
        self.address = address
        self.client_id: str | None = None
        self.language = ""
        self.version = 0
        self.membership = MembershipState()
        self.query_turns: dict[str, int] = {}
        self.polls: dict[Reply, Context] = {}
        self.windows: dict[str, Window] = {}
        self.heartbeat_users: dict[str, Principal] = {}
        self.asked: dict[str, None] = {}


class Channel(Protocol):
    """One client: its identity, its session, and a way to send requests to it."""

    protocol: ChannelProtocol
    # Whether the core reports its requests to observers.
    observed: bool
    closed: bool
    # Whether another channel registers its producer groups at the brokers.
    producers_represented: bool
    # Whether it is that channel, and no client.
    representative: bool
    # Whether the client signs the requests that brokers receive, if it has credentials. For gRPC they are Gantry's.
    signs: bool
    # The `LeaveCause` (proxy/core/client_registry.py) if it unregisters.
    leave_cause: str
    # The sender of the request that is being handed over. A remoting client signs each request.
    principal: Principal

    def __hash__(self) -> int:
        """Hash by identity."""

    @property
    def session(self) -> Session:
        """The core's state of the channel."""

    @property
    def identity(self) -> Identity:
        """The client's identity."""

    @property
    def peer(self) -> Peer:
        """The client's connection: addresses, listener, TLS."""

    @property
    def supports_go_away(self) -> bool:
        """Whether the client handles the response code GO_AWAY if its version is recent enough."""

    @property
    def unread_bytes(self) -> int:
        """The number of bytes of responses that the client has not read, as far as its frontend does not limit them."""

    def request(self, command: RemotingCommand, timeout: float) -> Reply:
        """Send a request to the client; the future raises the errors of `RemotingConnection.request`."""

    def oneway(self, command: RemotingCommand) -> None:
        """Send a oneway request to the client."""

    def pause(self) -> None:
        """Stop reading the client's requests until the matching `resume`."""

    def resume(self) -> None:
        """Undo one `pause`."""
