"""The backend protocol: access of the core to brokers, for requests and for group membership."""

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.requests import RequestSpec
from remoting.routes import TopicRoute

# Handles a request of a broker to one of our clients; the reply goes back to the broker.
Push = Callable[[Channel, RemotingCommand], Reply | None]


def unchecked(push: Push) -> Push:
    """Return a push without checks, for brokers without authentication."""
    return push


class Backend(Protocol):
    """Brokers by name.

    unresponsive_brokers: those that hang. Their connections are open, and they answer nothing.
    """

    unresponsive_brokers: frozenset[str]

    def cached_route(self, topic: str) -> TopicRoute | None:
        """Return the topic's cached route, which may be slightly old, or None."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises TopicNotExist, ServiceUnavailable."""

    async def brokers(self) -> Collection[str]:
        """Return the names of all brokers. Raises ServiceUnavailable."""

    async def clusters(self) -> Mapping[str, str]:
        """Return the cluster of each broker, by the broker's name. Raises ServiceUnavailable."""

    def broker_at(self, address: str) -> str | None:
        """Return the name of the broker with a replica at this address, by the last list of the name servers."""

    async def forget_topic(self, topic: str) -> None:
        """Remove the routes of a topic that was deleted from its brokers. Raises ServiceUnavailable."""

    async def query_name_server(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Return the reply of the first name server that replies. Raises ServiceUnavailable if none does."""

    async def change_name_servers(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Send a request to all name servers; return the first error or the first reply. Raises RemotingError."""

    def topic_created(self, topic: str) -> None:
        """Look up a topic again, if it was unknown: it was created at its brokers."""

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> Reply:
        """Send a request to a broker for a client (None: for Gantry itself); `timeout` in seconds.

        The future raises ServiceUnavailable if no live broker may serve the request, ConnectionLost or RequestTimeout
        if it is unknown whether it was served. The caller may modify the reply.
        """

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        """Send a oneway request to a broker. Raises ServiceUnavailable."""

    def has_broker(self, broker: str) -> bool:
        """Return whether a broker of this name is currently listed."""

    def register(
        self, channel: Channel, groups: Groups, brokers: Collection[str]
    ) -> Coroutine[Any, Any, RemotingCommand | None]:
        """Register the client as a member of its groups at these brokers, with its session's last heartbeat.

        Returns when each broker has answered or failed: the heartbeat, if a broker has accepted it and it still is the
        last. Raises NotPermitted if brokers denied it and none accepted it.
        """

    def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> Coroutine[Any, Any, None]:
        """End the client's membership in these groups at every broker.

        Sends `unregister_command`, the client's own and perhaps signed UNREGISTER_CLIENT, if given. Returns when each
        broker has answered or failed.
        """
