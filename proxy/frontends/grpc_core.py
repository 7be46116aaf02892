"""The messaging core as the gRPC service uses it."""

from collections.abc import Callable, Iterable

from protocol_negotiation.peer import HostPort, Peer
from proxy.core import membership
from proxy.core.client_registry import Groups, LeaveCause
from proxy.core.grpc_channel import GrpcChannel
from proxy.core.messaging import Messaging
from proxy.core.metadata_cache import MetadataCache
from proxy.core.own_request import own_request
from proxy.core.principal import OWN
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.routes import TopicRoute
from remoting.topic_group_config import GroupConfig, TopicConfig


class GrpcCore:
    """Implements `grpc_gateway.core.Core` with the messaging core, its backend and the metadata cache."""

    own = OWN

    def __init__(self, core: Messaging, metadata: MetadataCache) -> None:
        self._core = core
        self._metadata = metadata

    @property
    def unread_limit(self) -> int:
        return self._core.settings.limits.unread

    def handle(self, channel: GrpcChannel, command: RemotingCommand) -> Reply | None:
        return self._core.handle(channel, command)

    async def own_request(self, broker: str, command: RemotingCommand) -> RemotingCommand:
        return await own_request(self._core, broker, command)

    async def leave(self, channel: GrpcChannel, producers: Iterable[str] = (), consumers: Iterable[str] = ()) -> None:
        groups = Groups(frozenset(producers), frozenset(consumers))
        await membership.leave(self._core, channel, groups, cause=LeaveCause(channel.leave_cause))

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self._core.backend.cached_route(topic)

    async def route(self, topic: str) -> TopicRoute:
        return await self._core.backend.route(topic)

    def unresponsive_brokers(self) -> frozenset[str]:
        return self._core.backend.unresponsive_brokers

    def cached_topic(self, topic: str) -> TopicConfig | None:
        return self._metadata.topics.cached(topic)

    async def topic(self, topic: str) -> TopicConfig:
        return await self._metadata.topics.get(topic)

    def cached_group(self, group: str) -> GroupConfig | None:
        return self._metadata.groups.cached(group)

    async def group(self, group: str) -> GroupConfig:
        return await self._metadata.groups.get(group)

    def on_group_changed(self, listener: Callable[[GroupConfig], None]) -> None:
        self._metadata.on_group_changed(listener)

    def address(self, peer: Peer) -> HostPort | None:
        return self._core.listener_routes.advertised_address(peer)
