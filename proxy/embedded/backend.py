"""The core's backend for a broker in this process: commands are function calls."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import anyio

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.core.heartbeat import accepted_groups, without
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.dispatch import new_broker
from proxy.embedded.broker.routing import route_of
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.broker.work_budget import MAX_SECONDS
from proxy.embedded.store import StorageError, Store, StoreUnusable
from remoting import command as commands
from remoting.broker_requests import BROKER_REQUESTS
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, no_route
from remoting.outcomes import Reply
from remoting.requests import RequestSpec
from remoting.routes import TopicRoute
from remoting.tasks import every

# Seconds between ticks of the broker, unless a tick left work.
_TICK_INTERVAL = 0.05
# Seconds between upkeeps of the store.
_UPKEEP_INTERVAL = 1.0


def wall_clock() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class EmbeddedBackend:
    """One broker over one store, which it closes. `push` sends the broker's requests to clients."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        push: Push,
        clock: Callable[[], int] = wall_clock,
        close_silent: Callable[[Channel], None] = lambda channel: None,
    ) -> None:
        self._clock = clock
        self._store = store
        self.broker: Broker = new_broker(settings, store, push, clock(), time.monotonic, close_silent)
        self.name = settings.name
        # It is this process.
        self.unresponsive_brokers: frozenset[str] = frozenset()
        # Routes of this version of the topics.
        self._routes: dict[str, TopicRoute] = {}
        self._routes_version = -1
        # Seconds until the next tick.
        self._pause = _TICK_INTERVAL

    async def start(self) -> None:
        """Return at once: the broker is ready."""

    async def run(self) -> None:
        """Run the routines of broker and store, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(partial(every, self._tick_interval, self._tick, name="routines of the broker"))
            group.start_soon(partial(every, _UPKEEP_INTERVAL, self._upkeep, name="upkeep of the store"))

    def _tick(self) -> None:
        self._pause = _TICK_INTERVAL
        started = time.monotonic()
        if self.broker.tick(self._clock()):
            # Each of several routines may have used its time: requests get half of all.
            self._pause = max(MAX_SECONDS, time.monotonic() - started)

    def _tick_interval(self) -> float:
        return self._pause

    def _upkeep(self) -> None:
        self._store.upkeep()

    def close(self) -> None:
        """Make everything durable and release the directory. Raises StoreUnusable if the last writes failed."""
        try:
            self._store.close()
        except StorageError as error:
            raise StoreUnusable(str(error)) from error

    def handle(self, channel: Channel | None, command: RemotingCommand) -> Reply | None:
        """Serve a request from the broker's own listener."""
        return self.broker.handle(channel, command, self._clock())

    # Backend.

    def cached_route(self, topic: str) -> TopicRoute | None:
        """Return the topic's route; None for an unknown topic."""
        if self._routes_version != self.broker.topics.version:
            self._routes.clear()
            self._routes_version = self.broker.topics.version
        route = self._routes.get(topic)
        if route is None:
            route = route_of(self.broker, topic)
            if route is not None:
                self._routes[topic] = route
        return route

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route. Raises TopicNotExist."""
        route = self.cached_route(topic)
        if route is None:
            raise no_route(topic)
        return route

    async def brokers(self) -> Collection[str]:
        """Return the broker's name."""
        return (self.name,)

    async def clusters(self) -> Mapping[str, str]:
        """Return the broker's cluster."""
        return {self.name: self.broker.settings.cluster}

    def broker_at(self, address: str) -> str | None:
        """Return the only broker's name: its clients may know it by any address."""
        return self.name

    async def query_name_server(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Return the reply of the broker, which is the name server, too."""
        return await self.request(self.name, BROKER_REQUESTS[code], commands.request(code, fields), 0.0, None)

    async def change_name_servers(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Return the reply of the broker, which is the only name server."""
        return await self.query_name_server(code, fields)

    def topic_created(self, topic: str) -> None:
        """Do nothing: routes are derived from the topics."""

    async def forget_topic(self, topic: str) -> None:
        """Do nothing: routes are derived from the topics."""

    def has_broker(self, broker: str) -> bool:
        """Return whether this is the broker's name."""
        return broker == self.name

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> Reply:
        """Send a request to the broker; its own deadlines replace `timeout`."""
        self._check(broker)
        reply = self.broker.handle(channel, command, self._clock())
        if reply is None:
            # The broker sends no response, but the caller needs one.
            reply = asyncio.get_running_loop().create_future()
            reply.set_result(commands.success())
        return reply

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        """Send a oneway request to the broker."""
        self._check(broker)
        self.broker.handle(channel, command, self._clock())

    def _check(self, broker: str) -> None:
        if broker != self.name:
            raise ServiceUnavailable(f"there is no broker {broker}, only {self.name}")

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> RemotingCommand | None:
        """Make the client a member of the groups in its last heartbeat."""
        heartbeat = channel.session.membership.heartbeat
        if heartbeat is None or self.name not in brokers or channel.closed:
            return None
        command = heartbeat.copy()
        excluded = _groups(channel) - groups
        command.body = without(heartbeat.body, excluded) if excluded else heartbeat.body
        self.broker.handle(channel, command, self._clock())
        return heartbeat

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        """End the client's membership in these groups."""
        if channel.closed:
            self.broker.channel_closed(channel)
            return
        client_id = channel.session.client_id or ""
        fields = [{"consumerGroup": group} for group in sorted(groups.consumers)]
        fields += [{"producerGroup": group} for group in sorted(groups.producers)]
        for field in fields:
            command = commands.request(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, **field})
            self.broker.handle(channel, command, self._clock())


def _groups(channel: Channel) -> Groups:
    """Return the groups in a client's last heartbeat."""
    heartbeat = channel.session.membership.heartbeat
    return Groups() if heartbeat is None else accepted_groups(heartbeat.body)
