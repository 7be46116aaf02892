"""Heartbeat and NotifyClientTermination: registration of clients with the core, and their departure.

The core gets the same heartbeats for a gRPC client as for a remoting client.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from grpc_gateway import validation
from grpc_gateway.clients import heartbeat_data, lite_departure, lite_groups
from grpc_gateway.clients.client import Client, Registration
from grpc_gateway.clients.client_header import set_client_header
from grpc_gateway.clients.client_settings import CONSUMERS, LITE_CONSUMERS, PRODUCERS, client_type_of
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.producers import HEARTBEAT_INTERVAL, Producers
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core, dispatch
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import OK, Refused
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Resource, Settings
from protos.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.loop_turns import LoopTurns
from remoting.tasks import retrieve_error, spawn, spawn_quietly

_log = logging.getLogger("gantry.grpc")

# Seconds within which an rpc here is answered, however slow brokers are. Clients time out after 3 s, and take a second
# late heartbeat for a dead connection.
_RESPONSE_TIMEOUT = 1.5
# Seconds that a client without a connection has to reconnect before it leaves its groups.
_RECONNECT_TIMEOUT = 10.0
# The same, if its connection ended although Gantry had not asked it to reconnect: such a client is usually dead.
_LOST_TIMEOUT = 0.5
# Seconds after that before its lite subscriptions are removed, since it may come back at another replica: Java clients
# open a telemetry stream that has broken again after a second.
_RETURN_TIMEOUT = 2.0


# Causes of the end of a connection that only the client or the network has.
LOSSES = ("peer", "reset", "unresponsive")


class ClientLifecycle:
    """Registers clients with the core, and unregisters those that terminate, disconnect or expire."""

    def __init__(self, core: Core, clients: ClientTable, options: GatewayOptions) -> None:
        loop = asyncio.get_running_loop()
        self._core = core
        self._clients = clients
        self._options = options
        self._clock = loop.time
        self._call_later = loop.call_later
        # Clients send heartbeats every 10 s; an unchanged registration is repeated only at this interval, in seconds.
        self._heartbeat_interval = min(HEARTBEAT_INTERVAL, options.client_expiry / 3)
        # Clients whose settings are being registered.
        self._registering: set[Client] = set()
        # Clients that are being unregistered.
        self._unregistering: dict[Client, asyncio.Task[None]] = {}
        # Removed clients whose connection was lost, by the cause of its end.
        self.lost = dict.fromkeys(LOSSES, 0)
        # Turns of registrations and departures, in which a client may have a thousand topics.
        self._turns = LoopTurns()
        self.producers = Producers(core, clients.make, self._clock, self._heartbeat_interval, self._turns)
        clients.departure_listeners.append(self._departed)

    # The rpcs.

    async def heartbeat(self, rpc: Rpc, request: HeartbeatRequest) -> HeartbeatResponse:
        """Register the client if necessary.

        The request's client type and group are used as well, since another replica may have the client's settings.
        Raises Refused, RemotingError.
        """
        client = rpc.client
        if not client.client_id:
            _check_health_check(request)
            return _HEARTBEAT_OK
        client_type = request.client_type or client.client_type
        if client_type in CONSUMERS and request.group.name:
            validation.group(request.group)
        self._check_group(client, client_type, request.group)
        registration = client.registration
        if (
            registration is None
            or registration.client_type != client_type
            or registration.revision != client.revision
            or self._clock() - registration.registered_at >= self._heartbeat_interval
            or (client_type in CONSUMERS and request.group.name not in ("", registration.group))
        ):
            await self._register(client, client_type, request.group)
        return _HEARTBEAT_OK

    def _check_group(self, client: Client, client_type: ClientType, group: Resource) -> None:
        """Check that a consumer may be a member of its group. Raises Refused.

        If the group's configuration is not cached, the client's settings or its first receive load it.
        """
        settings = client.settings
        if settings is not None:
            # As at the official proxy, the heartbeat's own type does not count.
            client_type = client_type_of(settings)
        if client_type in CONSUMERS:
            config = self._core.cached_group(_group_of(settings, group).name)
            if config is not None:
                lite_groups.check_consumer(client_type, heartbeat_data.subscriptions(client), config)

    async def terminate(self, rpc: Rpc, request: NotifyClientTerminationRequest) -> NotifyClientTerminationResponse:
        """Remove the client.

        The request's group is only checked: a client has only one group, and Go's producers send an empty name.
        """
        if rpc.client.client_type in CONSUMERS and request.group.name:
            validation.group(request.group)
        self._remove(rpc.client, "unregistered")
        unregistering = self._unregistering.get(rpc.client)
        if unregistering is not None:
            await asyncio.wait((unregistering,), timeout=_RESPONSE_TIMEOUT)
        return NotifyClientTerminationResponse(status=OK)

    # Registration.

    def settings_changed(self, client: Client) -> None:
        """Register a client that sent settings, even before its first heartbeat."""
        if client not in self._registering:
            self._registering.add(client)
            spawn_quietly(self._register_settings(client))

    async def _register_settings(self, client: Client) -> None:
        """Register until the revision is current: settings may change faster than brokers answer."""
        try:
            revision = -1
            while revision != client.revision and not client.closed:
                await self._turns.next()
                revision = client.revision
                # The next heartbeat retries.
                with contextlib.suppress(Refused, RemotingError):
                    await self._register(client, client.client_type, _NO_GROUP)
        finally:
            self._registering.discard(client)

    async def _register(self, client: Client, client_type: ClientType, group: Resource) -> None:
        """Register the client with the core. Raises Refused, RemotingError."""
        registration = self._registration(client, client_type, group)
        self._check_members(client, registration.group)
        previous, client.client_type, client.registration = client.registration, client_type, registration
        if previous is not None:
            await self._unregister(client, previous, registration)
        if client_type in PRODUCERS:
            topics = sorted(registration.topics)
            body = heartbeat_data.producer_heartbeat(client.client_id, topics) if topics else b""
        else:
            body = heartbeat_data.consumer_heartbeat(client, registration.group)
        client.producers_represented = client_type in PRODUCERS
        if body:
            command = set_client_header(commands.request(RequestCode.HEART_BEAT, body=body), client)
            try:
                await _wait_for(self._send(client, command))
            except RemotingError:
                client.registration = previous
                raise
        if not client.closed:
            self.producers.set_topics(client, registration.topics)

    def _check_members(self, client: Client, group: str) -> None:
        """Check that not too many members of a consumer group share a connection with one that joins. Raises Refused.

        Each member costs a connection to each broker. The client id is free: a connection may name any number of them.
        """
        if not group or (client.registration is not None and client.registration.group == group):
            return
        for connection in client.connections:
            others = [other.registration for other in self._clients.of(connection)]
            members = sum(other is not None and other.group == group for other in others)
            if members >= self._options.members_per_connection:
                raise Refused(
                    Code.TOO_MANY_REQUESTS,
                    f"{members} members of the group {group} use this connection, which is the maximum"
                    " (grpc.members_per_connection)",
                )

    def _registration(self, client: Client, client_type: ClientType, group: Resource) -> Registration:
        settings = client.settings
        now = self._clock()
        if client_type in PRODUCERS:
            publishing = () if settings is None else settings.publishing.topics
            topics = client.topics.union(topic.name for topic in publishing)
            return Registration(client_type, "", frozenset(topics), client.revision, now)
        if client_type not in CONSUMERS:
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        group = _group_of(settings, group)
        return Registration(client_type, validation.group(group), frozenset(), client.revision, now)

    async def _send(self, client: Client, command: RemotingCommand) -> None:
        await dispatch(self._core, client, command)

    async def _unregister(self, client: Client, previous: Registration, current: Registration | None) -> None:
        """Leave the groups of the previous registration that are not in the current one."""
        left_groups = [] if current is not None and current.group == previous.group else [previous.group]
        left_topics = previous.topics if current is None else previous.topics - current.topics
        with contextlib.suppress(RemotingError):
            await self._core.leave(client, left_topics, filter(None, left_groups))

    # Departure without NotifyClientTermination.

    def sweep(self, now: float) -> None:
        """Remove expired and disconnected clients; call every few seconds with the loop's time."""
        self.producers.sweep(now)
        expired, disconnected = now - self._options.client_expiry, now - _RECONNECT_TIMEOUT
        for client in self._clients:
            if client.last_call_at < expired:
                self._remove(client, "expired")
            elif client.disconnected_at is not None and client.disconnected_at < disconnected:
                self._clients.remove(client, "closed")

    def connection_lost(self, clients: Sequence[Client], cause: str) -> None:
        """Remove clients shortly, unless they reconnect, since their last connection has ended without a drain.

        cause: one of LOSSES.
        """
        if clients:
            lost = [(client, client.disconnected_at) for client in clients]
            self._call_later(_LOST_TIMEOUT, self._remove_lost, lost, cause)

    def _remove_lost(self, lost: Sequence[tuple[Client, float | None]], cause: str) -> None:
        removed = 0
        for client, disconnected_at in lost:
            if client.disconnected_at == disconnected_at and not client.closed:
                self._remove(client, "closed", _RETURN_TIMEOUT)
                removed += 1
        self.lost[cause] += removed
        if removed:
            _log.info("removed %d gRPC clients whose connection was lost (%s)", removed, cause)

    async def close(self) -> None:
        """Remove all clients, and wait until all are unregistered."""
        for client in self._clients:
            self._clients.remove(client, "closed")
        while self._unregistering:
            await asyncio.wait(self._unregistering.values())

    def _remove(self, client: Client, cause: str, delay: float = 0.0) -> None:
        """Remove a client, and its lite subscriptions at the brokers if it is not back after `delay` seconds.

        Those of a client that Gantry has asked to reconnect stay: the same client needs them at another replica.
        """
        registration = client.registration
        self._clients.remove(client, cause)
        if registration is not None and registration.client_type in LITE_CONSUMERS:
            spawn_quietly(self._remove_lite_subscriptions(client, registration.group, delay))

    async def _remove_lite_subscriptions(self, client: Client, group: str, delay: float) -> None:
        unregistering = self._unregistering.get(client)
        if unregistering is not None:
            await asyncio.wait((unregistering,))
        await asyncio.sleep(delay)
        try:
            await lite_departure.remove_subscriptions(self._core, client, group)
        except RemotingError as error:
            _log.debug("the lite subscriptions of %s stay: %s", client.client_id, error)

    async def _leave(self, client: Client, registration: Registration) -> None:
        await self._turns.next()
        await self._unregister(client, registration, None)

    def _departed(self, client: Client) -> None:
        registration, client.registration = client.registration, None
        self.producers.set_topics(client, ())
        if registration is not None:
            task = spawn_quietly(self._leave(client, registration))
            self._unregistering[client] = task
            task.add_done_callback(lambda _: self._unregistering.pop(client, None))


def _group_of(settings: Settings | None, group: Resource) -> Resource:
    """Return a consumer's group: that of its settings, or else of its heartbeat."""
    return group if settings is None or not settings.subscription.group.name else settings.subscription.group


_HEARTBEAT_OK = HeartbeatResponse(status=OK)
_NO_GROUP = Resource()


def _check_health_check(request: HeartbeatRequest) -> None:
    """Allow only the empty Heartbeat without a client id, the Go client's health check. Raises Refused."""
    if request.ByteSize():
        raise Refused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")


async def _wait_for(work: Coroutine[Any, Any, None]) -> None:
    """Wait up to the response timeout, without cancelling the work. Raises its error if it fails within that time."""
    task = spawn(work)
    done, _ = await asyncio.wait((task,), timeout=_RESPONSE_TIMEOUT)
    if done:
        task.result()
    else:
        task.add_done_callback(retrieve_error)
