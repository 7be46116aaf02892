"""Membership of our clients in their groups at the brokers, as if they were connected there.

Because every broker has all members, the brokers' own functions work for clients behind any number of replicas: retry
topics, consumer lists, rebalance notifications, transaction checks, the official tools. When a replica dies, its
connections close and the brokers drop its members at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from proxy.backends.cluster.connection_budget import ConnectionBudget
from proxy.backends.cluster.membership_connections import MembershipConnection, MembershipConnections
from proxy.backends.cluster.push_recipients import recipient
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.core.client_registry import INNER_PRODUCER, Groups, Role
from proxy.core.signing import Signer
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.denial import is_denial
from remoting.errors import NotPermitted, Overloaded
from remoting.outcomes import Reply
from remoting.tasks import retrieve_error, spawn_quietly

_log = logging.getLogger("gantry.membership")

# Seconds that a client's heartbeat waits for the reply of a slow broker.
_REPLY_TIMEOUT = 2.0
# Seconds without received bytes after which a connection with an unanswered request is closed.
_CONNECTION_TIMEOUT = 10.0
# Seconds between attempts to register the members again at a lost broker, and the number of attempts. After these, the
# name servers report its return (`register_at_new_addresses`).
_RETRY_DELAY = 1.0
_MAX_RETRIES = 120


@dataclass(frozen=True, slots=True)
class _Result:
    """Result of a membership request: whether it reached the broker, and its reply. denial: the broker's remark.

    refusal: the reason for which no connection was opened for it; the client's next heartbeat tries again.
    """

    reached: bool
    accepted: bool = False
    denial: str | None = None
    refusal: str | None = None


_UNREACHED, _UNANSWERED, _ACCEPTED = _Result(False), _Result(True), _Result(True, accepted=True)


class Registration:
    """The names of the brokers at which one client is registered.

    lock: brokers handle HEART_BEAT and UNREGISTER_CLIENT on different threads, so one must be answered before the next
    is sent.
    """

    __slots__ = ("brokers", "lock")

    def __init__(self) -> None:
        self.brokers: set[str] = set()
        self.lock = asyncio.Lock()


class Membership:
    """Registers clients at brokers, with the last heartbeat of their sessions.

    new_server: makes the connection to an address. addresses: returns a broker's addresses, masters and slaves. push:
    receives the brokers' requests to clients. budget: bounds the connections. signer: signs the requests, if Gantry has
    credentials.
    """

    def __init__(
        self,
        new_server: Callable[[str, Handler, Callable[[ServerConnection], None]], ServerConnection],
        addresses: Callable[[str], Iterable[str]],
        push: Push,
        budget: ConnectionBudget,
        signer: Signer | None = None,
    ) -> None:
        self._new_server = new_server
        self._addresses = addresses
        self._push = push
        self._budget = budget
        self._signer = signer
        self._connections = MembershipConnections()
        # By number of the membership connection, and by address.
        self._servers: dict[int, dict[str, ServerConnection]] = {}
        self._registrations: dict[Channel, Registration] = {}
        self._retrying: set[tuple[str, int]] = set()

    async def register(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> RemotingCommand | None:
        """Send the client's heartbeat to these brokers; return when each has answered or failed.

        Returns the heartbeat if a broker has accepted it and it still is the client's last. Raises NotPermitted if
        brokers denied it and none accepted it, and Overloaded if a connection to one of them is over the bound.
        """
        registration = self._registrations.setdefault(channel, Registration())
        async with registration.lock:
            if channel.closed:
                # It closed while its heartbeat waited for a route, and is unregistered already.
                if self._connections.connection_of(channel) is None:
                    self._registrations.pop(channel, None)
                return None
            # An `unregister` that held the lock before may have removed the registration.
            self._registrations[channel] = registration
            if self._connections.needs_another(channel, groups):
                # Before it leaves its present one.
                self._reserve(channel, groups, registration.brokers.union(brokers))
            connection, former = self._connections.assign(channel, groups)
            registration.brokers.update(brokers)
            if former is not None:
                await self._unregister_from(former, channel, _groups(former, channel), None)
                brokers = registration.brokers
            targets = self._targets(brokers)
            heartbeat = channel.session.membership.heartbeat
            results = await asyncio.gather(
                *(self._register_at(channel, connection, name, address) for name, address in targets)
            )
        refusals = [result.refusal for result in results if result.refusal is not None]
        if refusals:
            raise Overloaded(refusals[0])
        if any(result.accepted for result in results):
            # While they were asked, a later heartbeat may have replaced it.
            return heartbeat if channel.session.membership.heartbeat is heartbeat else None
        denials = [result.denial for result in results if result.denial is not None]
        if denials:
            raise NotPermitted(denials[0])
        return None

    def _targets(self, brokers: Iterable[str]) -> list[tuple[str, str]]:
        """Return the names and addresses of brokers."""
        return [(name, address) for name in sorted(brokers) for address in self._addresses(name)]

    def _reserve(self, channel: Channel, groups: Groups, brokers: Collection[str]) -> None:
        """Reserve the connections that a client needs at another place. Raises Overloaded."""
        number = self._connections.find(channel, groups).number
        try:
            self._budget.reserve(number, (address for _, address in self._targets(brokers)), channel.peer.address)
        except Overloaded:
            if self._connections.connection_of(channel) is None:
                del self._registrations[channel]
            raise

    async def unregister(
        self, channel: Channel, groups: Groups, unregister_command: RemotingCommand | None = None
    ) -> None:
        """End the client's membership in these groups at every broker; return when each has answered or failed.

        Sends `unregister_command`, the client's own request, if given.
        """
        registration = self._registrations.get(channel)
        if registration is None:
            return
        async with registration.lock:
            connection = self._connections.connection_of(channel)
            if connection is not None:
                await self._unregister_from(connection, channel, groups, unregister_command)
            if self._connections.connection_of(channel) is None:
                self._registrations.pop(channel, None)

    def server_for(self, channel: Channel, address: str) -> ServerConnection | None:
        """Return the connection on which the client is registered at this address, or None."""
        connection = self._connections.connection_of(channel)
        return None if connection is None else self._servers.get(connection.number, {}).get(address)

    def close(self) -> None:
        """Close all connections."""
        for servers in self._servers.values():
            for server in servers.values():
                server.close()

    @property
    def connections(self) -> int:
        """The number of connections to brokers that carry memberships."""
        return len(self._budget)

    async def _register_at(
        self, channel: Channel, connection: MembershipConnection, broker: str, address: str
    ) -> _Result:
        """Send a client's heartbeat to a broker; retry in the background if it cannot be reached."""
        heartbeat = channel.session.membership.heartbeat
        if heartbeat is None:
            return _UNANSWERED
        try:
            server = self._server(broker, address, connection, channel)
        except Overloaded as error:
            return _Result(reached=True, refusal=str(error))
        result = await self._send(server, heartbeat, channel)
        if not result.reached:
            self._retry_later(broker, connection, address)
        return result

    async def _send(self, server: ServerConnection, command: RemotingCommand, channel: Channel | None) -> _Result:
        """Send one membership request of a client (None: of Gantry for it).

        Waits for a slow broker's reply only up to _REPLY_TIMEOUT: sending the request again would slow it further.
        """
        future: Reply = asyncio.get_running_loop().create_future()
        request = command.copy_with_response()
        if self._signer is not None:
            self._signer.sign_outgoing(channel, request)
        try:
            server.request(request, _CONNECTION_TIMEOUT, future)
        except Exception:
            # The client's other brokers, and other clients at this one, must still be served.
            _log.exception("a membership request to %s cannot be sent", server.address)
            return _UNANSWERED
        name = RequestCode(command.code).name
        await asyncio.wait((future,), timeout=_REPLY_TIMEOUT)
        if not future.done():
            reached = server.connection is not None
            if not reached:
                # The connection is not established yet: the request must not overtake a later one.
                future.cancel()
            # A sent request stays pending: if the broker sends nothing until its timeout, the connection is closed.
            future.add_done_callback(retrieve_error)
            _log.debug("%s has not answered %s within %.0f s", server.address, name, _REPLY_TIMEOUT)
            return _UNANSWERED if reached else _UNREACHED
        if (error := future.exception()) is not None:
            _log.debug("%s did not reach %s: %s", name, server.address, error)
            return _UNREACHED
        reply = future.result()
        if reply.code != 0:
            _log.warning("%s rejected %s: %s", server.address, name, reply.remark)
        if is_denial(reply):
            return _Result(reached=True, denial=reply.remark or f"{server.address} permits no {name}")
        return _ACCEPTED if reply.code == 0 else _UNANSWERED

    async def _unregister_from(
        self,
        connection: MembershipConnection,
        channel: Channel,
        groups: Groups,
        unregister_command: RemotingCommand | None,
    ) -> None:
        requests = [unregister_command] if unregister_command is not None else _unregister_commands(channel, groups)
        sender = channel if unregister_command is not None else None
        # Only over open connections: a broker that has lost its connection has dropped the members by itself.
        servers = [server for server in self._servers.get(connection.number, {}).values() if server.connection]
        await asyncio.gather(*(self._send(server, request, sender) for request in requests for server in servers))
        # Only after the replies: brokers handle HEART_BEAT and UNREGISTER_CLIENT on different threads, so the next
        # client in this slot might be removed instead.
        if self._connections.release(connection, channel, groups):
            self._close(connection)

    def _close(self, connection: MembershipConnection) -> None:
        for address in list(self._servers.get(connection.number, ())):
            self._close_at(connection, address)

    def _close_at(self, connection: MembershipConnection, address: str) -> None:
        servers = self._servers[connection.number]
        servers.pop(address).close()
        self._budget.release(connection.number, (address,))
        if not servers:
            del self._servers[connection.number]

    def _server(
        self, broker: str, address: str, connection: MembershipConnection, channel: Channel
    ) -> ServerConnection:
        """Return the connection to an address, a new one for this client if there is none. Raises Overloaded."""
        server = self._servers.get(connection.number, {}).get(address)
        if server is None:
            self._budget.reserve(connection.number, (address,), channel.peer.address)
            handler, on_lost = partial(self._on_push, connection, broker), partial(self._on_lost, broker, connection)
            server = self._new_server(address, handler, on_lost)
            self._servers.setdefault(connection.number, {})[address] = server
        return server

    # After a broker was lost, its members are registered again: their own heartbeats come only every 30 s.

    def _on_lost(self, broker: str, connection: MembershipConnection, server: ServerConnection) -> None:
        if connection.slots_by_channel:
            self._retry_later(broker, connection, server.address)

    def _retry_later(self, broker: str, connection: MembershipConnection, address: str) -> None:
        """Start to register a connection's members at this address again, unless that is already in progress."""
        key = (address, connection.number)
        if key not in self._retrying:
            self._retrying.add(key)
            spawn_quietly(self._retry(broker, connection, address))

    async def _retry(self, broker: str, connection: MembershipConnection, address: str) -> None:
        try:
            # Also while no name server lists the address: a restarted broker usually returns to it.
            for _ in range(_MAX_RETRIES):
                await asyncio.sleep(_RETRY_DELAY)
                if not connection.slots_by_channel or await self._register_members(broker, connection, address):
                    return
            server = self._servers.get(connection.number, {}).get(address)
            if server is not None and server.connection is None:
                # The broker may have moved to another address. At this one, a heartbeat opens a connection again.
                self._close_at(connection, address)
        finally:
            self._retrying.discard((address, connection.number))

    def register_at_new_addresses(self, broker: str, addresses: Iterable[str]) -> None:
        """Register the broker's members in the background at addresses that were not listed before."""
        connections = {
            connection.number: connection
            for channel in self._registrations
            if (connection := self._connections.connection_of(channel)) is not None
        }
        for address in addresses:
            for connection in connections.values():
                if (address, connection.number) not in self._retrying:
                    spawn_quietly(self._register_members(broker, connection, address))

    async def _register_members(self, broker: str, connection: MembershipConnection, address: str) -> bool:
        """Send the heartbeats of a connection's members at this broker; return whether all of them arrived."""
        members = list(connection.slots_by_channel)
        arrived = await asyncio.gather(
            *(self._register_member(member, broker, connection, address) for member in members), return_exceptions=True
        )
        for error in arrived:
            if isinstance(error, Exception):
                # The other members are registered; an attempt for this one would fail again.
                _log.error("registering a member at %s failed", address, exc_info=error)
        return all(arrived)

    async def _register_member(
        self, channel: Channel, broker: str, connection: MembershipConnection, address: str
    ) -> bool:
        registration = self._registrations.get(channel)
        if registration is None or broker not in registration.brokers:
            return True
        async with registration.lock:
            # It may have left or moved while this waited for the lock.
            if channel.closed or self._connections.connection_of(channel) is not connection:
                return True
            return (await self._register_at(channel, connection, broker, address)).reached

    # Requests of brokers to clients.

    def _on_push(
        self, connection: MembershipConnection, broker: str, _: RemotingConnection, command: RemotingCommand
    ) -> Reply | None:
        channel = recipient(connection, command)
        # Old brokers do not send their name, which the client needs to answer through any replica.
        command.fields.setdefault("bname", broker)
        return self._push(channel, command)


def _groups(connection: MembershipConnection, channel: Channel) -> Groups:
    slots = connection.slots_by_channel.get(channel, ())
    return Groups(
        frozenset(group for role, group in slots if role is Role.PRODUCER),
        frozenset(group for role, group in slots if role is Role.CONSUMER),
    )


def _unregister_commands(channel: Channel, groups: Groups) -> list[RemotingCommand]:
    """Return UNREGISTER_CLIENT for each group, for a client that has disconnected."""
    session = channel.session
    fields = [{"consumerGroup": group} for group in sorted(groups.consumers)]
    fields += [{"producerGroup": group} for group in sorted(groups.producers) if group != INNER_PRODUCER]
    requests = []
    for field in fields:
        request = commands.request(RequestCode.UNREGISTER_CLIENT, {"clientID": session.client_id or "", **field})
        request.header.update(language=session.language, version=session.version)
        requests.append(request)
    return requests
