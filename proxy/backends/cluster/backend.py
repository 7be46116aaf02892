"""The cluster backend: requests to brokers by name, over connections that many clients share."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from proxy.backends.cluster.membership import Membership
from proxy.backends.cluster.name_servers import NameServers
from proxy.backends.cluster.route_cache import RouteCache
from proxy.backends.cluster.server_connection import Reply, ServerConnection
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.observability.metrics.upstream import Upstreams
from proxy.settings.cluster import ClusterSettings
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ConnectionLost, RemotingError, ServiceUnavailable, UnsupportedRequest
from remoting.requests import REQUESTS, Action, ReplicaChoice, RequestSpec
from remoting.routes import Replicas, TopicRoute
from remoting.tasks import spawn, spawn_quietly
from remoting.timeout_wheel import TimeoutWheel

if TYPE_CHECKING:
    from proxy.observability.metrics import Metrics

_log = logging.getLogger("gantry.cluster")

# Brokers drop connections that were silent for 120 s; the next request would pay for dialling.
_KEEPALIVE = 45.0
# Readers whose broker's suggestion is remembered.
_MAX_SUGGESTIONS = 100_000
# Seconds for which a name that no name server knows is not asked for again, and how many are noted.
_UNKNOWN_FOR = 1.0
_MAX_UNKNOWN = 1_000
# A master that could not be dialled is not tried again for reads that a slave can serve, in seconds.
_AVOID = 1.0


class ClusterBackend:
    """Name servers and brokers. `start` it, `run` it for as long as it is used, `close` it."""

    def __init__(
        self, settings: ClusterSettings, wheel: TimeoutWheel, push: Push, upstreams: Upstreams | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._wheel = wheel
        # Counts our connections.
        self._upstreams = Upstreams() if upstreams is None else upstreams
        self._name_servers = NameServers(settings.namesrv, wheel, settings.connect_timeout, self._upstreams)
        self._routes = RouteCache(
            self._name_servers.route, self._loop.time, settings.route_refresh, settings.route_idle
        )
        self._table: dict[str, Replicas] = {}
        self._links: dict[tuple[str, int, bool], ServerConnection] = {}
        self._membership = Membership(self._new_link, self._addresses, push)
        # Broker ids other than the master's which brokers told readers to go to, by what they read.
        self._suggested: dict[tuple[str, str, str, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        # When nobody knew a broker of this name, in seconds.
        self._unknown: dict[str, float] = {}
        # When an address could not be reached last, in seconds.
        self._failed: dict[str, float] = {}
        # Requests that were not sent where they belonged, by reason; CONSUMER_SEND_MSG_BACK by where it went.
        self.diverted: Counter[str] = Counter()
        self.sent_back: Counter[str] = Counter()

    # Routes and brokers.

    async def start(self) -> None:
        """Ask the name servers once; a cluster that is not there yet is no reason not to start."""
        try:
            await self.refresh_brokers()
        except RemotingError as error:
            _log.warning("starting without a cluster: %s", error)

    async def run(self) -> None:
        """Keep brokers and routes fresh and connections alive, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._every, self._settings.route_refresh, self._refresh)
            group.start_soon(self._every, _KEEPALIVE, self._keep_alive)

    def close(self) -> None:
        """Close all connections."""
        self._membership.close()
        self._name_servers.close()
        for link in self._links.values():
            link.close()

    @property
    def name_servers(self) -> Sequence[ServerConnection]:
        """The connections to the name servers."""
        return self._name_servers.links

    @property
    def table(self) -> Mapping[str, Replicas]:
        """The brokers by name, as the name servers told last."""
        return self._table

    @property
    def links(self) -> Collection[ServerConnection]:
        """The connections that requests go over; memberships have their own."""
        return self._links.values()

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self._routes.cached(topic)

    async def route(self, topic: str) -> TopicRoute:
        return await self._routes.get(topic)

    async def brokers(self) -> Collection[str]:
        if not self._table:
            await self.refresh_brokers()
        return self._table.keys()

    async def forget_topic(self, topic: str) -> None:
        await self._name_servers.delete_topic(topic)
        self._routes.remove(topic)

    async def refresh_brokers(self) -> None:
        """Ask the name servers for all brokers, once for however many want it at the moment."""
        await asyncio.shield(self._refreshing or self._start_refresh())

    def _start_refresh(self) -> "asyncio.Task[None]":
        self._refreshing = spawn(self._load_brokers())
        self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    async def _load_brokers(self) -> None:
        table = await self._name_servers.brokers()
        # A name server that was just started knows no broker yet; those we talk to are there all the same.
        silent = {name: known for name, known in self._table.items() if name not in table and self._is_live(known)}
        former, self._table = self._table, {**silent, **table}
        for name, replicas in table.items():
            known = former[name].addresses.values() if name in former else ()
            self._membership.appeared(name, set(replicas.addresses.values()).difference(known))

    def _is_live(self, replicas: Replicas) -> bool:
        connected = {address for (address, *_), link in self._links.items() if link.connection is not None}
        return not connected.isdisjoint(replicas.addresses.values())

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        # Every waiter gets its failure; without one it is of no consequence.
        _ = task.cancelled() or task.exception()

    async def _refresh(self) -> None:
        await self.refresh_brokers()
        await self._routes.refresh()
        self._forget_links()

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await anyio.sleep(seconds)
            try:
                await work()
            except RemotingError as error:
                _log.warning("%s; going on with what is known", error)

    # Requests.

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> Reply:
        future: Reply = self._loop.create_future()
        replicas = self._table.get(broker)
        if replicas is None:
            spawn_quietly(self._request_unknown(broker, spec, command, timeout, channel, future))
        else:
            self._send(replicas, spec, command, timeout, channel, future)
        if spec.poll is not None and replicas is not None and replicas.slaves:
            future.add_done_callback(partial(self._note_suggestion, _reader(broker, command)))
        return future

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        replicas = self._table.get(broker)
        if replicas is None:
            spawn_quietly(self._oneway_unknown(broker, spec, command, channel))
            return
        link = self._link(self._choose(replicas, spec, command)[0], channel, spec)
        link.oneway(command)
        if link.connection is not None and link.connection.congested and channel is not None:
            link.connection.pause_until_drained(channel)

    def _send(
        self,
        replicas: Replicas,
        spec: RequestSpec,
        command: RemotingCommand,
        timeout: float,
        channel: Channel | None,
        future: Reply,
        tried: tuple[str, ...] = (),
    ) -> None:
        """Send to the best of the brokers; those `tried` could not be reached or were lost before."""
        try:
            addresses = self._choose(replicas, spec, command)
        except RemotingError as error:
            future.set_exception(error)
            return
        # A lone broker gets a second chance: perhaps only the connection was lost.
        untried = [address for address in addresses if address not in tried] if tried else addresses
        if not untried and (len(tried) > 1 or not spec.repeatable):
            future.set_exception(ServiceUnavailable(f"no broker of {replicas.name} can be reached now"))
            return
        address = untried[0] if untried else addresses[0]
        link = self._link(address, channel, spec)
        connection = link.connection
        if connection is not None and not spec.repeatable:
            # The path of every send.
            connection.request(command, timeout, future, self._lost)
        else:
            again = partial(self._again, spec, timeout, channel, (*tried, address), replicas.name)
            link.request(command, timeout, future, again if spec.repeatable else self._lost, again)
        if connection is not None and connection.congested and channel is not None:
            # A broker that does not keep up: the clients that ask it are read no further for now.
            connection.pause_until_drained(channel)

    def _again(
        self,
        spec: RequestSpec,
        timeout: float,
        channel: Channel | None,
        tried: tuple[str, ...],
        broker: str,
        command: RemotingCommand,
        future: Reply,
    ) -> None:
        """A broker could not be reached, or was lost during a request that may be repeated: try the next."""
        self.diverted["unreachable"] += 1
        self._failed[tried[-1]] = self._loop.time()
        self._refresh_soon()
        replicas = self._table.get(broker)
        if replicas is None:
            future.set_exception(ServiceUnavailable(f"no name server knows the broker {broker} any more"))
        else:
            self._send(replicas, spec, command, timeout, channel, future, tried)

    def _lost(self, command: RemotingCommand, future: Reply) -> None:
        self.diverted["lost"] += 1
        self._refresh_soon()
        spec = REQUESTS.get(command.code)
        broker = command.fields.get(spec.broker, "") if spec is not None else ""
        future.set_exception(
            ConnectionLost(
                f"the connection to the broker {broker} was lost during request {command.code}; it may have been served"
            )
        )

    def _refresh_soon(self) -> None:
        """A broker has gone: the name servers may know more already."""
        if self._refreshing is None:
            self._start_refresh()

    async def _request_unknown(
        self,
        broker: str,
        spec: RequestSpec,
        command: RemotingCommand,
        timeout: float,
        channel: Channel | None,
        future: Reply,
    ) -> None:
        try:
            replicas = await self._find(broker)
        except RemotingError as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                self._send(replicas, spec, command, timeout, channel, future)

    async def _oneway_unknown(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None
    ) -> None:
        try:
            await self._find(broker)
            self.oneway(broker, spec, command, channel)
        except RemotingError as error:
            _log.info("request %s dropped: %s", spec.name, error)

    async def _find(self, broker: str) -> Replicas:
        """A broker that was not known a moment ago."""
        # A client that keeps asking for a broker that is no more must not keep the name servers busy.
        asked = self._loop.time() - self._unknown.get(broker, -math.inf) >= _UNKNOWN_FOR
        if asked:
            await self.refresh_brokers()
        replicas = self._table.get(broker)
        if replicas is None:
            if asked:
                if len(self._unknown) >= _MAX_UNKNOWN:
                    self._unknown.clear()
                self._unknown[broker] = self._loop.time()
            self.diverted["unknown_broker"] += 1
            raise ServiceUnavailable(f"no name server knows a broker {broker}")
        return replicas

    def _choose(self, replicas: Replicas, spec: RequestSpec, command: RemotingCommand) -> list[str]:
        """The addresses that may serve a request, the best first. Raises ServiceUnavailable, never empty."""
        master, slaves = replicas.master, replicas.slaves
        if spec.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            self.sent_back[_way_back(replicas)] += 1
        if spec.replica is ReplicaChoice.MASTER or (
            spec.replica is ReplicaChoice.ACTING_MASTER and not replicas.acting_master
        ):
            if master is None:
                self.diverted["no_master"] += 1
                raise ServiceUnavailable(
                    f"the broker {replicas.name} has no master now; only the master serves {spec.name}"
                )
            return replicas.masters
        if master is None:
            if not slaves:
                self.diverted["no_replica"] += 1
                raise ServiceUnavailable(f"the broker {replicas.name} has no live replica now")
            self.diverted["slave"] += 1
            return slaves
        if spec.replica is ReplicaChoice.ACTING_MASTER:
            # A slave can do it only where there is no master at all.
            return replicas.masters
        if spec.poll is not None and self._suggested:
            suggested = replicas.addresses.get(self._suggested.get(_reader(replicas.name, command), 0))
            if suggested is not None and suggested != master:
                return [suggested, master]
        if spec.action is Action.UPDATE:
            # A commit on a slave is overwritten by the master's: it takes no detour.
            return replicas.masters
        if slaves and self._is_avoided(master):
            self.diverted["slave"] += 1
            return [*slaves, master]
        return replicas.all

    def _is_avoided(self, address: str) -> bool:
        failed = self._failed.get(address)
        return failed is not None and self._loop.time() - failed < _AVOID

    def _note_suggestion(self, reader: tuple[str, str, str, str], reply: Reply) -> None:
        """Brokers tell readers which broker id to read from next; the client cannot pass that on to us."""
        if reply.cancelled() or reply.exception() is not None:
            return
        suggested = reply.result().fields.get("suggestWhichBrokerId", "0")
        if suggested != "0" and suggested.isdecimal():
            if len(self._suggested) >= _MAX_SUGGESTIONS:
                # Of readers that are gone; those that are not are told again.
                self._suggested.clear()
            self._suggested[reader] = int(suggested)
        elif self._suggested:
            self._suggested.pop(reader, None)

    # Membership.

    def has_broker(self, broker: str) -> bool:
        return broker in self._table

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> None:
        await self._membership.register(channel, groups, brokers)

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        await self._membership.unregister(channel, groups, unregister_command)

    # Connections.

    def watch(self, metrics: "Metrics") -> None:
        """Show what is counted here."""
        metrics.counter("gantry_diverted", "Requests that could not go where they belong.", "reason", self.diverted)
        metrics.counter(
            "gantry_send_back",
            "CONSUMER_SEND_MSG_BACK requests by where they were sent: master, acting_master, none (refused).",
            "route",
            self.sent_back,
        )
        metrics.counter(
            "gantry_route_cache",
            "Look-ups of routes: hit, miss; loads from the name servers: refresh (of a known one), error.",
            "event",
            self._routes.counts,
        )
        metrics.gauge("gantry_routes", "Topics in the route cache.", lambda: len(self._routes))

    def _addresses(self, broker: str) -> Iterable[str]:
        replicas = self._table.get(broker)
        return () if replicas is None else replicas.addresses.values()

    def _link(self, address: str, channel: Channel | None, spec: RequestSpec) -> ServerConnection:
        """The client's connection to a broker: always the same one, so that its requests keep their order.

        Polls have connections of their own: their answers may be large, and nobody's sends shall wait
        behind what somebody else reads.
        """
        if spec.member and channel is not None:
            lane = self._membership.link(channel, address)
            if lane is not None:
                return lane
        number = 0 if channel is None else channel.session.number % self._settings.connections_per_broker
        key = (address, number, spec.poll is not None)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._new_link(address, _refuse, None)
        return link

    def _new_link(
        self, address: str, handler: Handler, on_lost: Callable[[ServerConnection], None] | None
    ) -> ServerConnection:
        return ServerConnection(address, self._wheel, handler, self._settings.connect_timeout, on_lost, self._upstreams)

    def _forget_links(self) -> None:
        """Close connections to addresses that no name server lists any more and that carry nothing."""
        listed = {address for replicas in self._table.values() for address in replicas.addresses.values()}
        self._failed = {address: failed for address, failed in self._failed.items() if address in listed}
        for key in [key for key in self._links if key[0] not in listed]:
            link = self._links[key]
            if link.connection is None or not link.connection.pending:
                self._links.pop(key).close()

    async def _keep_alive(self) -> None:
        now = self._loop.time()
        for link in self._links.values():
            connection = link.connection
            if connection is not None and now - connection.read_at > _KEEPALIVE / 2:
                body = b'{"clientID":"gantry-keepalive","consumerDataSet":[],"producerDataSet":[]}'
                reply = connection.request(commands.request(RequestCode.HEART_BEAT, body=body), 10.0)
                reply.add_done_callback(lambda done: done.cancelled() or done.exception())


def _way_back(replicas: Replicas) -> str:
    """Which broker takes a message that a consumer sends back: the only one that may write it."""
    if replicas.master is not None:
        return "master"
    return "acting_master" if replicas.acting_master and replicas.slaves else "none"


def _reader(broker: str, command: RemotingCommand) -> tuple[str, str, str, str]:
    fields = command.fields
    return broker, fields.get("topic", ""), fields.get("queueId", ""), fields.get("consumerGroup", "")


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"request {command.code} concerns no client of this connection")
