"""The messaging core as the gRPC service sees it. Who implements it is not decided here."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from protocol_negotiation.peer import HostPort, Peer
from remoting.command import RemotingCommand
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig, TopicConfig


class Core(Protocol):
    """What rpcs are translated to: commands, and views of what brokers know of topics and groups."""

    def handle(self, channel: Any, command: RemotingCommand) -> "asyncio.Future[RemotingCommand] | None":
        """Serve one command of a gRPC client. Raises RemotingError, now or by the future."""

    def cached_route(self, topic: str) -> TopicRoute | None:
        """The topic's route if it is at hand."""

    async def route(self, topic: str) -> TopicRoute:
        """The topic's route. Raises TopicNotExist, ServiceUnavailable."""

    def cached_topic(self, topic: str) -> TopicConfig | None:
        """The topic's configuration if it is at hand."""

    async def topic(self, topic: str) -> TopicConfig:
        """The topic's configuration; the defaults where no broker tells it. Never raises for a slow broker."""

    def cached_group(self, group: str) -> GroupConfig | None:
        """The consumer group's configuration if it is at hand."""

    async def group(self, group: str) -> GroupConfig:
        """The consumer group's configuration; the defaults where no broker tells it. Answers within two seconds."""

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        """Call `listener` with a group's configuration whenever it is another than what was given out."""

    def address(self, peer: Peer) -> HostPort | None:
        """Where this client shall reach us: the configured advertised address; None: where it dialled."""


def ask(core: Core, client: Any, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
    """The answer to a command, which is not oneway, of a client. Raises RemotingError, now or by the future."""
    reply = core.handle(client, command)
    assert reply is not None
    return reply
