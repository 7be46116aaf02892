"""A backend: the brokers behind the core. Three verbs for requests, two for membership."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from remoting.command import RemotingCommand
from remoting.requests import RequestSpec
from remoting.routes import TopicRoute

# Takes what a broker asks of one of our clients; answers go back to the broker.
Push = Callable[[Channel, RemotingCommand], "asyncio.Future[RemotingCommand] | None"]


class Backend(Protocol):
    """Brokers by name."""

    def cached_route(self, topic: str) -> TopicRoute | None:
        """The topic's route if it is at hand; it may be slightly old."""

    async def route(self, topic: str) -> TopicRoute:
        """The topic's route. Raises TopicNotExist, ServiceUnavailable."""

    async def brokers(self) -> Collection[str]:
        """The names of all brokers. Raises ServiceUnavailable."""

    async def forget_topic(self, topic: str) -> None:
        """The topic has been deleted from its brokers: let nobody be sent there. Raises ServiceUnavailable."""

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> "asyncio.Future[RemotingCommand]":
        """Ask a broker on behalf of a client (None: of our own).

        The future raises ServiceUnavailable where no live broker may serve this, ConnectionLost or
        RequestTimeout where it is unknown whether it was served. The answer is the caller's to change.
        """

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        """Tell a broker. Raises ServiceUnavailable."""

    def has_broker(self, broker: str) -> bool:
        """Whether there is a broker of this name, as far as is known."""

    def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> Coroutine[Any, Any, None]:
        """Make the client a member of its groups, as its session's heartbeat says, at these brokers.

        Done when they all know it, or cannot be told.
        """

    def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> Coroutine[Any, Any, None]:
        """End the client's membership in these groups at every broker; done when all know.

        `farewell` is the client's own UNREGISTER_CLIENT, which may be signed.
        """
