"""Interface of the messaging core that the gRPC service uses."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from protocol_negotiation.peer import HostPort, Peer
from remoting.command import RemotingCommand
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig, TopicConfig


class Core(Protocol):
    """Serves remoting commands of gRPC clients, and caches routes, topic and group configurations.

    own: the sender of the gateway's own requests, for `Client.principal`. unread_limit: bytes of responses that wait
    for a client's connection and above which it gets no more messages.
    """

    @property
    def own(self) -> Any: ...

    @property
    def unread_limit(self) -> int: ...

    def handle(self, channel: Any, command: RemotingCommand) -> "asyncio.Future[RemotingCommand] | None":
        """Serve a command of a gRPC client. Raises RemotingError, directly or by the future; None for a oneway."""

    async def own_request(self, broker: str, command: RemotingCommand) -> RemotingCommand:
        """Return a broker's reply to a request of the gateway itself. Raises RemotingError."""

    async def leave(self, channel: Any, producers: Iterable[str] = (), consumers: Iterable[str] = ()) -> None:
        """End a client's membership in these groups, here and at the brokers."""

    def cached_route(self, topic: str) -> TopicRoute | None:
        """Return the topic's route if it is cached."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises TopicNotExist, ServiceUnavailable."""

    def unresponsive_brokers(self) -> frozenset[str]:
        """Return the names of the brokers that hang. Requests that any broker can serve avoid them."""

    def cached_topic(self, topic: str) -> TopicConfig | None:
        """Return the topic's configuration if it is cached."""

    async def topic(self, topic: str) -> TopicConfig:
        """Return the topic's configuration, or the defaults if no broker returns it. Never raises for a slow broker."""

    def cached_group(self, group: str) -> GroupConfig | None:
        """Return the consumer group's configuration if it is cached."""

    async def group(self, group: str) -> GroupConfig:
        """Return the consumer group's configuration within two seconds, or the defaults if no broker returns it."""

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        """Call `listener` with each group configuration that differs from the one returned before."""

    def address(self, peer: Peer) -> HostPort | None:
        """Return the advertised address for this client; None if it is the address that the client connected to."""


def dispatch(core: Core, client: Any, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
    """Return the reply to a command that is not oneway. Raises RemotingError, directly or by the future."""
    reply = core.handle(client, command)
    assert reply is not None
    return reply
