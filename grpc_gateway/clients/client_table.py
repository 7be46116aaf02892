"""The clients that call: by client id and the host they call from."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from grpc_gateway.call import Call, peer_of, stranger
from grpc_gateway.clients.client import Client
from grpc_gateway.name_mapping import Names
from grpc_gateway.status import Refused
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2.definition_pb2 import Code

CLIENT_ID = "x-mq-client-id"
LANGUAGE = "x-mq-language"
VERSION = "x-mq-client-version"

# The only call that may come without saying whose it is: the Go client's way to ask whether we are well.
_PROBE = "Heartbeat"
# Characters of a client id: host names have up to 253, and clients add some numbers.
_LONGEST_ID = 512
# Clients that are remembered; a client that only makes ids up must not fill the memory.
_MAX = 100_000
# Clients of one connection: official ones have connections of their own.
_PER_CONNECTION = 256
# How long a client that never said what it is may be silent before it has to make room, in seconds, and how long
# it is until that is looked for again.
_STRANGER = 10.0
_PAUSE = 1.0


class Clients:
    """Clients by id, host and names: whoever calls from elsewhere under another's id is another client.

    `make` makes one; `left` are told of each that has gone. `names`: those of a connection's clients, if they have any
    of their own.
    """

    def __init__(
        self,
        make: Callable[[str, Peer], Client],
        clock: Callable[[], float] | None = None,
        most: int = _MAX,
        per_connection: int = _PER_CONNECTION,
        names: Callable[[Peer], Names | None] = lambda _: None,
    ) -> None:
        self.make = make
        self.left: list[Callable[[Client], None]] = []
        self._clock = asyncio.get_running_loop().time if clock is None else clock
        self._most = most
        self._per_connection = per_connection
        self._names = names
        self._clients: dict[tuple[str, str, Names | None], Client] = {}
        self._connections: dict[Any, dict[str, Client]] = {}
        self._next_eviction = 0.0

    def call(self, context: Any, name: str) -> Call:
        """The rpc of this name under way in `context`. Raises Refused where the client does not say who it is."""
        metadata = dict(context.invocation_metadata())
        client_id = metadata.get(CLIENT_ID)
        connection = getattr(context, "connection", None)
        if not client_id or client_id.isspace():
            if name != _PROBE:
                raise Refused(Code.CLIENT_ID_REQUIRED, f"{name} needs the metadata {CLIENT_ID}")
            return stranger(context)
        if len(client_id) > _LONGEST_ID:
            raise Refused(Code.CLIENT_ID_REQUIRED, f"the metadata {CLIENT_ID} has more than {_LONGEST_ID} characters")
        known = self._connections.get(connection)
        client = None if known is None else known.get(client_id)
        if client is None:
            if known is not None and len(known) >= self._per_connection:
                # Each may cost connections to brokers, and a place among all clients.
                raise Refused(
                    Code.TOO_MANY_REQUESTS, f"{len(known)} clients use this connection (grpc.clients_per_connection)"
                )
            client = self._client(client_id, peer_of(context))
            if connection is not None and not connection.closed:
                self._connect(client, connection)
        elif connection is not None:
            client.peer = connection.peer
        client.seen = self._clock()
        language, version = metadata.get(LANGUAGE, ""), metadata.get(VERSION, "")
        if client.language != language or client.version != version:
            client.language, client.version = language, version
            client.revise()
        return Call(client, context, client.peer)

    def disconnected(self, connection: Any) -> None:
        """A connection has closed: clients that have no other are alone now."""
        for client in self._connections.pop(connection, {}).values():
            client.connections.discard(connection)
            if not client.connections:
                client.alone_since = self._clock()

    def drop(self, client: Client, cause: str = "unregistered") -> None:
        """A client has gone: forget it, end its streams, tell whoever wants to know.

        cause: unregistered (it said so), closed (its connections are), expired (it is silent).
        """
        if client.closed:
            return
        client.closed = True
        client.leave_cause = cause
        self._clients.pop((client.client_id, client.peer.address.host, client.names), None)
        for connection in client.connections:
            self._connections[connection].pop(client.client_id, None)
        client.end_streams()
        for listener in self.left:
            listener(client)

    def of(self, connection: Any) -> tuple[Client, ...]:
        """The clients that use a connection."""
        return tuple(self._connections.get(connection, {}).values())

    def __iter__(self) -> Iterator[Client]:
        return iter(tuple(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def _client(self, client_id: str, peer: Peer) -> Client:
        names = self._names(peer)
        key = (client_id, peer.address.host, names)
        client = self._clients.get(key)
        if client is None:
            self._make_room()
            client = self._clients[key] = self.make(client_id, peer)
            client.names = names
        client.peer = peer
        return client

    def _connect(self, client: Client, connection: Any) -> None:
        self._connections.setdefault(connection, {})[client.client_id] = client
        client.connections.add(connection)
        client.alone_since = None

    def _make_room(self) -> None:
        now = self._clock()
        if len(self._clients) < self._most:
            return
        if now >= self._next_eviction:
            self._next_eviction = now + _PAUSE
            for client in self:
                if client.part is None and client.stream is None and now - client.seen > _STRANGER:
                    self.drop(client, "expired")
        if len(self._clients) >= self._most:
            raise Refused(Code.TOO_MANY_REQUESTS, f"{len(self._clients)} clients are known; try again later")
