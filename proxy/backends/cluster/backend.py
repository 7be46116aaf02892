"""The cluster backend: requests to brokers by name, over connections that clients share."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from protocol_negotiation.peer import UNIX_PREFIX
from protocol_negotiation.tls_client import ClientTlsSource
from proxy.backends.cluster import backend_families
from proxy.backends.cluster.broker_probes import CHECK_SECONDS, BrokerProbes
from proxy.backends.cluster.broker_table import BrokerTable
from proxy.backends.cluster.connection_budget import ConnectionBudget
from proxy.backends.cluster.heartbeats import KEEPALIVE_SECONDS, Heartbeats
from proxy.backends.cluster.membership import Membership
from proxy.backends.cluster.name_servers import NameServers
from proxy.backends.cluster.repetition import repeat
from proxy.backends.cluster.replica_selector import Reader, ReplicaSelector, reader
from proxy.backends.cluster.route_cache import RouteCache
from proxy.backends.cluster.server_connection import MAX_ONEWAY_BYTES, ServerConnection, ServerOptions
from proxy.backends.cluster.server_turns import ServerTurns
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.core.signing import Signer
from proxy.observability.metrics.family import Family, Samples, by_label
from proxy.observability.metrics.upstream import UpstreamCounts
from proxy.settings.cluster import ClusterSettings
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.errors import ConnectionLost, RemotingError, ServiceUnavailable, UnsupportedRequest
from remoting.names import retry_topic
from remoting.outcomes import Reply
from remoting.requests import REQUESTS, RequestSpec
from remoting.routes import Replicas, TopicRoute
from remoting.tasks import isolated, spawn_quietly
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.cluster")

# Number of the connection to a broker for requests of Gantry itself; those for requests of clients begin with 0.
_OWN: Final = -1


class ClusterBackend:
    """The backend for a RocketMQ cluster. Call `start`, then `run` in a task while it is in use, then `close`."""

    def __init__(
        self,
        settings: ClusterSettings,
        wheel: TimeoutWheel,
        push: Push,
        upstreams: UpstreamCounts | None = None,
        tls: ClientTlsSource | None = None,
        signer: Signer | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._signer = signer
        counts = UpstreamCounts() if upstreams is None else upstreams
        options = ServerOptions(wheel, settings.connect_timeout, counts, ServerTurns(self._loop), tls)
        self._name_servers = NameServers(settings.namesrv, options, signer)
        self._routes = RouteCache(
            self._name_servers.route,
            self._loop.time,
            settings.route_refresh,
            settings.route_idle,
            self._name_servers.topics,
        )
        self._table = BrokerTable(self._name_servers, self._is_live, self._use_brokers)
        self._servers: dict[tuple[str, int, bool], ServerConnection] = {}
        # Behind a Unix socket is one process, an embedded broker with its name server; its routes have its TCP address.
        namesrv = settings.namesrv[0] if settings.namesrv else ""
        socket = namesrv if namesrv.startswith(UNIX_PREFIX) else None
        self._broker_options = options._replace(dial=socket)
        self._membership_budget = ConnectionBudget(settings.membership_connections)
        self._membership = Membership(self._new_server, self._addresses, push, self._membership_budget, signer)
        self.selector = ReplicaSelector(self._loop.time)
        # Names of the brokers that hang, and functions to call with the name of one that begins to.
        self.unresponsive_brokers: frozenset[str] = frozenset()
        self.on_unresponsive: list[Callable[[str], None]] = []
        self._heartbeats = Heartbeats(signer)
        self._probes = BrokerProbes(self._loop.time, self._heartbeats.send)
        # Memory of the oneway requests whose brokers are being looked up.
        self._searching_bytes = 0

    # Routes and brokers.

    async def start(self) -> None:
        """Load the broker table; an unavailable cluster is logged and does not prevent the start."""
        try:
            await self.refresh_brokers()
        except RemotingError as error:
            _log.warning("starting although the cluster is unavailable: %s", error)

    async def run(self) -> None:
        """Refresh brokers and routes, keep connections alive and find brokers that hang, until cancelled."""
        await repeat(
            ("brokers and routes", self._settings.route_refresh, self._refresh),
            ("connections to brokers", KEEPALIVE_SECONDS, self._keep_alive),
            ("brokers that hang", CHECK_SECONDS, self._check_brokers),
        )

    def close(self) -> None:
        """Close all connections."""
        self._table.close()
        self._membership.close()
        self._name_servers.close()
        for server in self._servers.values():
            server.close()

    @property
    def name_servers(self) -> Sequence[ServerConnection]:
        """The connections to the name servers."""
        return self._name_servers.connections

    @property
    def broker_table(self) -> Mapping[str, Replicas]:
        """The brokers by name, from the name servers' last replies."""
        return self._table.brokers

    @property
    def denied_by(self) -> Collection[str]:
        """The addresses of the brokers that deny Gantry's own requests."""
        return self._heartbeats.denied_by

    @property
    def server_connections(self) -> Collection[ServerConnection]:
        """The connections for requests; memberships have their own."""
        return self._servers.values()

    def received_bytes(self) -> int:
        """Return the number of bytes that the open connections to brokers have received."""
        connections = (server.connection for server in self.server_connections)
        return sum(connection.received_bytes for connection in connections if connection is not None)

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self._routes.cached(topic)

    async def route(self, topic: str) -> TopicRoute:
        return await self._routes.get(topic)

    async def brokers(self) -> Collection[str]:
        if not self._table.brokers:
            await self.refresh_brokers()
        return self._table.brokers.keys()

    async def clusters(self) -> Mapping[str, str]:
        await self.brokers()
        return {name: replicas.cluster for name, replicas in self._table.brokers.items()}

    def broker_at(self, address: str) -> str | None:
        listed = self._table.brokers.items()
        return next((name for name, replicas in listed if address in replicas.addresses.values()), None)

    async def forget_topic(self, topic: str) -> None:
        await self._name_servers.delete_topic(topic)
        self._routes.remove(topic)

    async def query_name_server(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        return await self._name_servers.query(code, fields)

    async def change_name_servers(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        return await self._name_servers.change(code, fields)

    def topic_created(self, topic: str) -> None:
        self._routes.forget_unknown((topic,))

    async def refresh_brokers(self) -> None:
        """Load the broker table from the name servers; concurrent callers share one load."""
        await self._table.refresh()

    def _is_live(self, replicas: Replicas) -> bool:
        connected = {address for (address, *_), server in self._servers.items() if server.connection is not None}
        return not (connected - self._probes.unresponsive).isdisjoint(replicas.addresses.values())

    def _use_brokers(self, listed: Mapping[str, Replicas], former: Mapping[str, Replicas]) -> None:
        # Another replica may have become the master of a broker.
        self._name_unresponsive()
        for name, replicas in listed.items():
            addresses = former[name].addresses.values() if name in former else ()
            new = set(replicas.addresses.values()).difference(addresses)
            self._membership.register_at_new_addresses(name, new)
            if self._signer is not None:
                for address in new:
                    # Verify Gantry's credentials before clients depend on them.
                    self._heartbeats.send(self._server_for(address, None, REQUESTS[RequestCode.HEART_BEAT]))

    async def _refresh(self) -> None:
        try:
            await self.refresh_brokers()
            await self._routes.refresh()
        except RemotingError as error:
            _log.warning("refreshing brokers and routes failed, the former ones stay in use: %s", error)
            return
        self._close_unlisted_servers()

    # Requests.

    def request(
        self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Channel | None
    ) -> Reply:
        if self._signer is not None:
            self._signer.sign_outgoing(channel, command)
        future: Reply = self._loop.create_future()
        replicas = self._table.brokers.get(broker)
        if replicas is None:
            spawn_quietly(self._request_unknown(broker, spec, command, timeout, channel, future))
        else:
            self._send(replicas, spec, command, timeout, channel, future)
        if spec.poll is not None and replicas is not None and replicas.slaves:
            future.add_done_callback(partial(self._note_reply, reader(broker, command)))
        return future

    def oneway(self, broker: str, spec: RequestSpec, command: RemotingCommand, channel: Channel | None) -> None:
        replicas = self._table.brokers.get(broker)
        if replicas is None:
            if self._searching_bytes < MAX_ONEWAY_BYTES:
                self._searching_bytes += command.memory
                spawn_quietly(self._oneway_unknown(broker, spec, command, channel))
            return
        if self._signer is not None:
            self._signer.sign_outgoing(channel, command)
        server = self._server_for(self.selector.select(replicas, spec, command)[0], channel, spec)
        server.oneway(command)
        if server.connection is not None and server.connection.congested and channel is not None:
            server.connection.pause_until_drained(channel)

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
        """Send to the preferred replica; those in `tried` could not be reached or lost their connection before."""
        try:
            addresses = self.selector.select(replicas, spec, command)
        except RemotingError as error:
            future.set_exception(error)
            return
        # A single replica is tried twice: perhaps only the connection was lost.
        untried = [address for address in addresses if address not in tried] if tried else addresses
        if not untried and (len(tried) > 1 or not spec.repeatable):
            future.set_exception(ServiceUnavailable(f"no broker of {replicas.name} can be reached now"))
            return
        address = untried[0] if untried else addresses[0]
        server = self._server_for(address, channel, spec)
        connection = server.connection
        if connection is not None and not spec.repeatable:
            # The hot path: every send.
            connection.request(command, timeout, future, self._lost)
        else:
            again = partial(self._again, spec, timeout, channel, (*tried, address), replicas.name)
            server.request(command, timeout, future, again if spec.repeatable else self._lost, again)
        if connection is not None and connection.congested and channel is not None:
            # The broker does not keep up: pause reading from the clients that send to it.
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
        """Try the next replica after one could not be reached, or was lost during a request that may be repeated."""
        self.selector.diverted["unreachable"] += 1
        self.selector.note_failure(tried[-1])
        self._table.refresh_soon()
        replicas = self._table.brokers.get(broker)
        if replicas is None:
            future.set_exception(ServiceUnavailable(f"no name server lists the broker {broker} any more"))
        else:
            self._send(replicas, spec, command, timeout, channel, future, tried)

    def _lost(self, command: RemotingCommand, future: Reply) -> None:
        self.selector.diverted["lost"] += 1
        self._table.refresh_soon()
        spec = REQUESTS.get(command.code)
        broker = command.fields.get(spec.broker, "") if spec is not None else ""
        future.set_exception(
            ConnectionLost(
                f"the connection to the broker {broker} was lost during request {command.code}; it may have been served"
            )
        )

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
        size = command.memory
        try:
            await self._find(broker)
            self.oneway(broker, spec, command, channel)
        except RemotingError as error:
            _log.info("request %s dropped: %s", spec.name, error)
        finally:
            self._searching_bytes -= size

    async def _find(self, broker: str) -> Replicas:
        """Return a broker that was not in the table, after a refresh. Raises ServiceUnavailable."""
        replicas = await self._table.find(broker)
        if replicas is None:
            self.selector.diverted["unknown_broker"] += 1
            raise ServiceUnavailable(f"no name server lists a broker {broker}")
        return replicas

    def _note_reply(self, reader: Reader, reply: Reply) -> None:
        if not reply.cancelled() and reply.exception() is None:
            self.selector.note_reply(reader, reply.result())

    # Membership.

    def has_broker(self, broker: str) -> bool:
        return broker in self._table.brokers

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> RemotingCommand | None:
        accepted = await self._membership.register(channel, groups, brokers)
        # Brokers create the retry topic of a new group. Its first consumer has looked it up before, and does so again.
        self._routes.forget_unknown(map(retry_topic, groups.consumers))
        return accepted

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        await self._membership.unregister(channel, groups, unregister_command)

    # Connections.

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the backend's metrics."""
        yield backend_families.DIVERTED, by_label(self.selector.diverted)
        yield backend_families.SENT_BACK, by_label(self.selector.sent_back)
        yield backend_families.ROUTE_CACHE, by_label(self._routes.counts)
        if self._signer is not None:
            yield backend_families.SIGNED, by_label(self._signer.counts)
        yield backend_families.DENYING, {(): len(self.denied_by)}
        yield backend_families.UNRESPONSIVE, {(name,): 1 for name in self.unresponsive_brokers}
        yield backend_families.ROUTES, {(): len(self._routes)}
        yield backend_families.MEMBERSHIPS, {(): len(self._membership_budget)}
        yield backend_families.MEMBERSHIPS_REFUSED, {(): self._membership_budget.refused}

    def _addresses(self, broker: str) -> Iterable[str]:
        replicas = self._table.brokers.get(broker)
        return () if replicas is None else replicas.addresses.values()

    def _server_for(self, address: str, channel: Channel | None, spec: RequestSpec) -> ServerConnection:
        """Return the client's connection to a broker: always the same one, so that its requests keep their order.

        Long polls use separate connections: their replies may be large, and sends must not wait behind them. So do
        Gantry's own requests: a client whose request makes the broker close the connection ends none of them.
        """
        if spec.member and channel is not None:
            membership_server = self._membership.server_for(channel, address)
            if membership_server is not None:
                return membership_server
        number = _OWN if channel is None else channel.session.number % self._settings.connections_per_broker
        key = (address, number, spec.poll is not None)
        server = self._servers.get(key)
        if server is None:
            server = self._servers[key] = self._new_server(address, _refuse, None)
        return server

    def _new_server(
        self, address: str, handler: Handler, on_lost: Callable[[ServerConnection], None] | None
    ) -> ServerConnection:
        return ServerConnection(address, self._broker_options, handler, on_lost)

    def _close_unlisted_servers(self) -> None:
        """Close connections without in-flight requests to addresses that no name server lists any more."""
        listed = {address for replicas in self._table.brokers.values() for address in replicas.addresses.values()}
        self.selector.keep_failures(listed)
        self._heartbeats.keep_addresses(listed)
        for key in [key for key in self._servers if key[0] not in listed]:
            server = self._servers[key]
            if server.connection is None or not server.connection.pending:
                self._servers.pop(key).close()

    async def _keep_alive(self) -> None:
        self._heartbeats.keep_alive(self._servers.values())

    async def _check_brokers(self) -> None:
        """Find the brokers that hang."""
        self._probes.check(tuple(self._servers.values()))
        self._name_unresponsive()

    def _name_unresponsive(self) -> None:
        """Set the names of the brokers that hang: those whose present master does."""
        addresses, former = self._probes.unresponsive, self.unresponsive_brokers
        self.unresponsive_brokers = frozenset(
            name for name, replicas in self._table.brokers.items() if not addresses.isdisjoint(replicas.masters)
        )
        for name in self.unresponsive_brokers - former:
            for listener in self.on_unresponsive:
                isolated(listener, name)


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"request {command.code} is for a client, and this connection registers none")
