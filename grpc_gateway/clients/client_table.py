"""Table of the gRPC clients that make calls, by client id and host."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.rpc import Rpc, anonymous_rpc, peer_of
from grpc_gateway.name_mapping import NameMapping
from grpc_gateway.permissions import Guard
from grpc_gateway.response_status import Refused
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2.definition_pb2 import Code

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
VERSION: Final = "x-mq-client-version"

# The only rpc without a client id: the Go client uses it as a health check.
_HEALTH_CHECK: Final = "Heartbeat"
# Characters of a client id: host names have up to 253, and clients append some numbers.
_MAX_ID_LENGTH: Final = 512
# Clients in the table, so that a client with ever new ids does not fill the memory.
_MAX_CLIENTS: Final = 100_000
# Clients per connection; official clients do not share connections.
_MAX_PER_CONNECTION: Final = 256
# Bytes of memory of a client, and of each byte that is kept of its settings and calls: names are also in its groups.
_CLIENT_MEMORY: Final = 4 * 1024
_SETTINGS_EXPANSION: Final = 12
# Seconds without a call after which an unregistered client may be evicted from a full table, and between evictions.
_EVICTABLE_AFTER: Final = 10.0
_EVICTION_INTERVAL: Final = 1.0


class ClientTable:
    """Clients by id, host, name mapping and user: the same id on another host or of another user is another client.

    make: creates a client. guard: authenticates the senders of rpcs; None: authentication is off. departure_listeners:
    called with each client that has gone. name_mapping: returns the name mapping of a client by its connection's peer
    and its user, None if its names are the brokers'.
    """

    def __init__(
        self,
        make: Callable[[str, Peer], Client],
        clock: Callable[[], float] | None = None,
        max_clients: int = _MAX_CLIENTS,
        per_connection: int = _MAX_PER_CONNECTION,
        name_mapping: Callable[[Peer, str], NameMapping | None] = lambda _, __: None,
        guard: Guard | None = None,
    ) -> None:
        self.make = make
        self.departure_listeners: list[Callable[[Client], None]] = []
        self._clock = asyncio.get_running_loop().time if clock is None else clock
        self._max_clients = max_clients
        self._per_connection = per_connection
        self._name_mapping = name_mapping
        self._guard = guard
        self._clients: dict[tuple[str, str, NameMapping | None, str], Client] = {}
        # By connection, and by client id and user.
        self._by_connection: dict[Any, dict[tuple[str, str], Client]] = {}
        self._next_eviction = 0.0

    def rpc(self, context: Any, name: str) -> Rpc:
        """Return the rpc of this name in `context`, with its client.

        Raises Refused if the client id is missing or the sender is not authenticated.
        """
        values = getattr(context, "metadata_values", None)
        metadata = dict(context.invocation_metadata()) if values is None else values()
        client_id = metadata.get(CLIENT_ID)
        connection = getattr(context, "connection", None)
        if not client_id or client_id.isspace():
            if name != _HEALTH_CHECK:
                raise Refused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
            return anonymous_rpc(context)
        if len(client_id) > _MAX_ID_LENGTH:
            raise Refused(
                Code.CLIENT_ID_REQUIRED,
                f"the metadata {CLIENT_ID} has {len(client_id)} characters; the maximum is {_MAX_ID_LENGTH}",
            )
        principal, user = None, ""
        if self._guard is not None:
            principal = self._guard.authenticate(metadata, peer_of(context), name)
            user = principal.user
        clients = self._by_connection.get(connection)
        client = None if clients is None else clients.get((client_id, user))
        if client is None:
            if clients is not None and len(clients) >= self._per_connection:
                # Each client takes a place in the table and may cost connections to brokers.
                raise Refused(
                    Code.TOO_MANY_REQUESTS,
                    f"{len(clients)} clients use this connection, which is the maximum (grpc.clients_per_connection)",
                )
            client = self._find_or_add(client_id, peer_of(context), user)
            if connection is not None and not connection.closed:
                self._connect(client, connection)
        elif connection is not None:
            client.peer = connection.peer
        if principal is not None:
            client.principal = principal
        client.last_call_at = self._clock()
        language, version = metadata.get(LANGUAGE, ""), metadata.get(VERSION, "")
        if client.language != language or client.version != version:
            client.language, client.version = language, version
            client.revise()
        return Rpc(client, context, client.peer)

    def disconnected(self, connection: Any) -> list[Client]:
        """Record the close of a connection, and return its clients that have no other connection."""
        disconnected = []
        for client in self._by_connection.pop(connection, {}).values():
            client.connections.discard(connection)
            if not client.connections:
                client.disconnected_at = self._clock()
                disconnected.append(client)
        return disconnected

    def remove(self, client: Client, cause: str = "unregistered") -> None:
        """Remove a client, end its telemetry streams, and notify the departure listeners.

        cause: unregistered (the client terminated), closed (its connections), or expired (no calls).
        """
        if client.closed:
            return
        client.closed = True
        client.leave_cause = cause
        self._clients.pop((client.client_id, client.peer.address.host, client.name_mapping, client.user), None)
        for connection in client.connections:
            self._by_connection[connection].pop((client.client_id, client.user), None)
        client.end_streams()
        for listener in self.departure_listeners:
            listener(client)

    def of(self, connection: Any) -> tuple[Client, ...]:
        """Return the clients of a connection."""
        return tuple(self._by_connection.get(connection, {}).values())

    def settings_bytes(self, connection: Any) -> int:
        """Return the size of the settings of a connection's clients."""
        return sum(client.settings_bytes for client in self._by_connection.get(connection, {}).values())

    def memory(self, connection: Any) -> int:
        """Return about the memory of a connection's clients, in bytes."""
        clients = self._by_connection.get(connection, {})
        names = sum(client.settings_bytes + client.recorded_bytes for client in clients.values())
        queued = sum(client.queued_bytes for client in clients.values())
        return len(clients) * _CLIENT_MEMORY + names * _SETTINGS_EXPANSION + queued

    def __iter__(self) -> Iterator[Client]:
        return iter(tuple(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def _find_or_add(self, client_id: str, peer: Peer, user: str) -> Client:
        name_mapping = self._name_mapping(peer, user)
        key = (client_id, peer.address.host, name_mapping, user)
        client = self._clients.get(key)
        if client is None:
            self._make_room()
            client = self._clients[key] = self.make(client_id, peer)
            client.name_mapping = name_mapping
            client.user = user
        client.peer = peer
        return client

    def _connect(self, client: Client, connection: Any) -> None:
        self._by_connection.setdefault(connection, {})[client.client_id, client.user] = client
        client.connections.add(connection)
        client.disconnected_at = None

    def _make_room(self) -> None:
        now = self._clock()
        if len(self._clients) < self._max_clients:
            return
        if now >= self._next_eviction:
            self._next_eviction = now + _EVICTION_INTERVAL
            for client in self:
                if (
                    client.registration is None
                    and client.stream is None
                    and now - client.last_call_at > _EVICTABLE_AFTER
                ):
                    self.remove(client, "expired")
        if len(self._clients) >= self._max_clients:
            raise Refused(
                Code.TOO_MANY_REQUESTS, f"{len(self._clients)} clients are connected, which is the maximum; retry later"
            )
