"""Heartbeat and NotifyClientTermination: who is there. To the core a gRPC client's heartbeat is like any other's."""

import asyncio
import contextlib
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.clients import subscriptions
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.client_table import CLIENT_ID, Clients
from grpc_gateway.clients.producers import BEAT, Producers
from grpc_gateway.clients.settings import CONSUMERS, PRODUCERS
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core, ask
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Resource
from protos.apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from remoting import command as commands
from remoting.codes import OWN_VERSION, LanguageCode, RequestCode, version_ordinal
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.tasks import spawn, spawn_quietly

# A heartbeat is answered after this time at the latest, in seconds, whatever brokers do: clients give it 3 s, and
# take the second that is late for a dead connection.
_LATEST = 1.5
# Seconds that a client without any connection has to come back before its groups are told that it left.
_GRACE = 10.0
# What languages say of themselves that RocketMQ knows by another name, or by none.
_LANGUAGES = {"GOLANG": LanguageCode.GO, "DOT_NET": LanguageCode.DOTNET, "C++": LanguageCode.CPP}
_VERSION = re.compile(r"v?(\d+)[._](\d+)[._](\d+)", re.ASCII | re.IGNORECASE)


@dataclass(slots=True)
class Part:
    """What the core knows of a client: the consumer group, or the topics as producer groups; and since when."""

    kind: ClientType
    group: str
    topics: frozenset[str]
    revision: int
    told_at: float


class ClientLifecycle:
    """Clients that come, stay and go."""

    def __init__(self, core: Core, clients: Clients, renewal: Renewal, options: Options) -> None:
        loop = asyncio.get_running_loop()
        self._core = core
        self._clients = clients
        self._options = options
        self._clock = loop.time
        # Clients send heartbeats every 10 s; that nothing has changed need not be told more often than this.
        self._beat = min(BEAT, options.client_expiry / 3)
        # Clients whose settings the core is being told of.
        self._settling: set[Client] = set()
        # Departures that the core is being told of.
        self._leaving: dict[Client, asyncio.Task[None]] = {}
        self.producers = Producers(core, clients.make, self._clock, self._beat)
        clients.left += [renewal.gone, self._left]

    # The rpcs.

    async def heartbeat(self, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        """Note who the client is; its settings may be elsewhere, so the request counts too."""
        client = call.client
        if not client.client_id:
            _check_probe(request)
            return _ALIVE
        kind = request.client_type or client.kind
        part = client.part
        if (
            part is None
            or part.kind != kind
            or part.revision != client.revision
            or self._clock() - part.told_at >= self._beat
            or (kind in CONSUMERS and request.group.name not in ("", part.group))
        ):
            await self._introduce(client, kind, request.group)
        return _ALIVE

    async def terminate(self, call: Call, request: NotifyClientTerminationRequest) -> NotifyClientTerminationResponse:
        """The client is going. A group is not looked at: a client has one, and Go's producers name an empty one."""
        self._clients.drop(call.client)
        leaving = self._leaving.get(call.client)
        if leaving is not None:
            await asyncio.wait((leaving,), timeout=_LATEST)
        return NotifyClientTerminationResponse(status=OK)

    # Settings.

    def settled(self, client: Client) -> None:
        """The client has sent settings: it is there, even before its first heartbeat."""
        if client not in self._settling:
            self._settling.add(client)
            spawn_quietly(self._introduce_settled(client))

    async def _introduce_settled(self, client: Client) -> None:
        """Tell the core once, and once more if that was not all: settings may come faster than brokers answer."""
        try:
            told = -1
            while told != client.revision and not client.closed:
                told = client.revision
                # Its next heartbeat tries again.
                with contextlib.suppress(Refused, RemotingError):
                    await self._introduce(client, client.kind, _UNNAMED)
        finally:
            self._settling.discard(client)

    async def _introduce(self, client: Client, kind: ClientType, group: Resource) -> None:
        """Tell the core what the client is. Raises Refused, RemotingError."""
        wanted = self._part(client, kind, group)
        former, client.kind, client.part = client.part, kind, wanted
        if former is not None:
            await self._part_from(client, former, wanted)
        if kind in PRODUCERS:
            body = subscriptions.producer(client.client_id, sorted(wanted.topics)) if wanted.topics else b""
        else:
            body = subscriptions.consumer(client, wanted.group)
        client.producers_represented = kind in PRODUCERS
        if body:
            try:
                await _in_time(self._tell(client, _heartbeat(client, body)))
            except RemotingError:
                client.part = former
                raise
        if not client.closed:
            self.producers.publish(client, wanted.topics)

    def _part(self, client: Client, kind: ClientType, group: Resource) -> Part:
        settings = client.settings
        now = self._clock()
        if kind in PRODUCERS:
            known = () if settings is None else settings.publishing.topics
            topics = client.topics.union(topic.name for topic in known)
            return Part(kind, "", frozenset(topics), client.revision, now)
        if kind not in CONSUMERS:
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"there is no client type {kind}")
        if settings is not None and settings.subscription.group.name:
            group = settings.subscription.group
        return Part(kind, validation.group(group), frozenset(), client.revision, now)

    async def _tell(self, client: Client, command: RemotingCommand) -> None:
        await ask(self._core, client, command)

    async def _part_from(self, client: Client, former: Part, wanted: Part | None) -> None:
        """Leave the groups that the client is no longer in."""
        groups = [] if wanted is not None and wanted.group == former.group else [former.group]
        farewells = [{"consumerGroup": group} for group in filter(None, groups)]
        gone = former.topics if wanted is None else former.topics - wanted.topics
        farewells += [{"producerGroup": topic} for topic in sorted(gone)]
        for farewell in farewells:
            command = _from(client, commands.request(RequestCode.UNREGISTER_CLIENT, farewell))
            command.fields["clientID"] = client.client_id
            with contextlib.suppress(RemotingError):
                await ask(self._core, client, command)

    # Those who go without a word.

    def sweep(self, now: float) -> None:
        """Let go of clients that are silent, or have no connection; called every few seconds."""
        self.producers.sweep(now)
        silent, alone = now - self._options.client_expiry, now - _GRACE
        for client in self._clients:
            if client.seen < silent:
                self._clients.drop(client, "expired")
            elif client.alone_since is not None and client.alone_since < alone:
                self._clients.drop(client, "closed")

    async def close(self) -> None:
        """Let go of everybody; done when the core knows."""
        for client in self._clients:
            self._clients.drop(client, "closed")
        while self._leaving:
            await asyncio.wait(self._leaving.values())

    def _left(self, client: Client) -> None:
        part, client.part = client.part, None
        self.producers.publish(client, ())
        if part is not None:
            self._leaving[client] = leaving = spawn_quietly(self._part_from(client, part, None))
            leaving.add_done_callback(lambda _: self._leaving.pop(client, None))


_ALIVE = HeartbeatResponse(status=OK)
_UNNAMED = Resource()


def _check_probe(request: HeartbeatRequest) -> None:
    """The Go client asks, without saying who it is, whether we are well; everybody else has to say. Raises Refused."""
    if request.ByteSize():
        raise Refused(Code.CLIENT_ID_REQUIRED, f"Heartbeat needs the metadata {CLIENT_ID}")


async def _in_time(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it, but not too long; it goes on then. Raises what it raises in time."""
    task = spawn(work)
    done, _ = await asyncio.wait((task,), timeout=_LATEST)
    if done:
        task.result()
    else:
        task.add_done_callback(lambda late: late.cancelled() or late.exception())


def _heartbeat(client: Client, body: bytes) -> RemotingCommand:
    return _from(client, commands.request(RequestCode.HEART_BEAT, body=body))


def _from(client: Client, command: RemotingCommand) -> RemotingCommand:
    """The command in the client's name."""
    command.header.update(language=language(client.language), version=version(client.version))
    return command


def language(name: str) -> str:
    """A language as remoting headers have it; those that RocketMQ does not know are OTHER."""
    name = name.upper()
    known = _LANGUAGES.get(name)
    if known is not None:
        return known.name
    return name if name in LanguageCode.__members__ else LanguageCode.OTHER.name


def version(text: str) -> int:
    """A version's number as remoting headers have it; our own where it has none."""
    found = _VERSION.match(text)
    if found is None:
        return OWN_VERSION
    major, minor, patch = map(int, found.groups())
    return version_ordinal(major, minor, patch) if 4 <= major <= 9 and minor <= 9 and patch <= 9 else OWN_VERSION
