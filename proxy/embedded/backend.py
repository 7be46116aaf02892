"""The backend for a broker in this process: commands go to it by a call."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection

import anyio

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.core.heartbeat import parse, without
from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.dispatch import new_broker
from proxy.embedded.broker.routing import route_of
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Store
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import RequestSpec
from remoting.routes import TopicRoute

_log = logging.getLogger("gantry.embedded")

# Seconds between two looks at what is due, and between two times of upkeep in the store.
_TICK = 0.05
_UPKEEP = 1.0


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class EmbeddedBackend:
    """One broker over one store, which is closed with it. `push` takes what the broker asks of clients."""

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
        self.broker: Broker = new_broker(settings, store, push, clock(), close_silent)
        self.name = settings.name
        # Routes as they were at this version of the topics.
        self._routes: dict[str, TopicRoute] = {}
        self._version = -1

    async def start(self) -> None:
        """Be ready for requests; nothing has to be waited for."""

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        kept = anyio.current_time()
        while True:
            self.broker.tick(self._clock())
            now = anyio.current_time()
            if now - kept >= _UPKEEP:
                kept = now
                self._keep()
            await anyio.sleep(_TICK)

    def _keep(self) -> None:
        try:
            self._store.upkeep()
        except Exception:
            # Reads go on, and so does what else this process serves.
            _log.exception("upkeep of the store failed")

    def close(self) -> None:
        """Make everything durable and give the directory back."""
        self._store.close()

    def handle(self, channel: Channel | None, command: RemotingCommand) -> "asyncio.Future[RemotingCommand] | None":
        """Serve a request that comes to the broker itself."""
        return self.broker.handle(channel, command, self._clock())

    # Backend.

    def cached_route(self, topic: str) -> TopicRoute | None:
        """The topic's route, which is always at hand; None: there is no such topic."""
        if self._version != self.broker.topics.version:
            self._routes.clear()
            self._version = self.broker.topics.version
        found = self._routes.get(topic)
        if found is None:
            found = route_of(self.broker, topic)
            if found is not None:
                self._routes[topic] = found
        return found

    async def route(self, topic: str) -> TopicRoute:
        """The topic's route. Raises TopicNotExist."""
        found = self.cached_route(topic)
        if found is None:
            raise TopicNotExist(f"no route info of topic {topic}")
        return found

    async def brokers(self) -> Collection[str]:
        """The broker's name."""
        return (self.name,)

    async def forget_topic(self, topic: str) -> None:
        """Nothing to do: routes are made of the topics that there are."""

    def has_broker(self, broker: str) -> bool:
        return broker == self.name

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> "asyncio.Future[RemotingCommand]":
        """Ask the broker; its answers never take longer than the request says that they may."""
        self._check(broker)
        reply = self.broker.handle(channel, command, self._clock())
        if reply is None:
            # There is nothing to be said; whoever asked has an answer all the same.
            reply = asyncio.get_running_loop().create_future()
            reply.set_result(commands.success())
        return reply

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        """Tell the broker."""
        self._check(broker)
        self.broker.handle(channel, command, self._clock())

    def _check(self, broker: str) -> None:
        if broker != self.name:
            raise ServiceUnavailable(f"there is no broker {broker}, only {self.name}")

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> None:
        """Make the client a member of its groups, as its session's heartbeat says."""
        beat = channel.session.heartbeat
        if beat is None or self.name not in brokers or channel.closed:
            return
        told = beat.copy()
        left = _groups(channel) - groups
        told.body = without(beat.body, left) if left else beat.body
        self.broker.handle(channel, told, self._clock())

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        """End the client's membership in these groups."""
        client_id = channel.session.client_id or ""
        fields = [{"consumerGroup": group} for group in sorted(groups.consumers)]
        fields += [{"producerGroup": group} for group in sorted(groups.producers)]
        for field in fields:
            command = commands.request(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, **field})
            self.broker.handle(channel, command, self._clock())


def _groups(channel: Channel) -> Groups:
    """The groups in a client's last heartbeat."""
    beat = channel.session.heartbeat
    return Groups() if beat is None else parse(beat.body).groups
