"""Producers: brokers know all that are connected here as one, which passes transaction checks on to any of them.

A broker keeps members by connection, so a thousand producers of a topic would cost a thousand connections to each of
its brokers, only to be asked about half messages now and then. Any producer of a topic may be asked: its group is the
topic's name (as the official proxy has it).
"""

import itertools
import logging
import math
import os
import socket
from collections.abc import Callable, Collection, Iterable

from grpc_gateway.clients import subscriptions
from grpc_gateway.clients.client import Client
from grpc_gateway.core import Core, ask
from grpc_gateway.message import of_stored
from grpc_gateway.producing.transaction_id import TransactionId
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.service_pb2 import RecoverOrphanedTransactionCommand, TelemetryCommand
from remoting import command as commands
from remoting import messages
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, TopicNotExist
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.grpc")

# Seconds between heartbeats, as remoting clients have it, and until one that failed is sent again.
BEAT = 30.0
_AGAIN = 5.0
_NOWHERE = Peer(HostPort("unix:", 0), HostPort("unix:", 0))


class Producers:
    """The producers that are here, by topic. `make` makes the channel that stands for them; `clock` gives seconds."""

    def __init__(
        self, core: Core, make: Callable[[str, Peer], Client], clock: Callable[[], float], beat: float = BEAT
    ) -> None:
        self._core = core
        self._make = make
        self._clock = clock
        self._beat = beat
        self._of: dict[str, dict[Client, None]] = {}
        self._topics: dict[Client, frozenset[str]] = {}
        self._channel: Client | None = None
        # Topics whose brokers have been told, and those that left since.
        self._told: set[str] = set()
        self._gone: set[str] = set()
        self._told_at = -math.inf
        self._telling = False
        self._turn = itertools.count()
        # Checks that no producer here could be asked.
        self.unanswered = 0

    def publish(self, client: Client, topics: Collection[str]) -> None:
        """The client publishes to these topics, and no others any more."""
        former = self._topics.pop(client, frozenset())
        wanted = frozenset(topics)
        for topic in former - wanted:
            theirs = self._of[topic]
            theirs.pop(client, None)
            if not theirs:
                del self._of[topic]
                self._gone.add(topic)
        for topic in wanted - former:
            self._of.setdefault(topic, {})[client] = None
            self._gone.discard(topic)
        if wanted:
            self._topics[client] = wanted
        if self._of.keys() != self._told:
            self._tell_soon()

    def sweep(self, now: float) -> None:
        """Let brokers hear of us; called every few seconds."""
        if self._of and now - self._told_at >= self._beat:
            # A topic may have got more brokers meanwhile.
            self._told.clear()
            self._tell_soon()

    def __len__(self) -> int:
        """How many topics are published to."""
        return len(self._of)

    def check(self, _: Client, command: RemotingCommand) -> None:
        """A broker wants to know what became of a half message: ask one of its topic's producers."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            topic, recovery = _recovery(command)
        except RemotingError as error:
            _log.warning("a broker's transaction check cannot be read: %s", error)
            return
        if not any(client.stream is not None and client.stream.write(recovery) for client in self._turns(topic)):
            # The broker asks again, and other replicas may have producers of the topic.
            self.unanswered += 1
            _log.info("no producer of topic %s is here to be asked about a half message", topic)

    def _turns(self, topic: str) -> Iterable[Client]:
        """The topic's producers, beginning with another one each time."""
        clients = list(self._of.get(topic, ()))
        start = next(self._turn) % len(clients) if clients else 0
        return (*clients[start:], *clients[:start])

    # What the brokers know.

    def _tell_soon(self) -> None:
        if not self._telling:
            self._telling = True
            spawn_quietly(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._of.keys() != self._told or self._gone:
                gone, self._gone = self._gone, set()
                topics = set(self._of)
                try:
                    await self._tell(topics, gone)
                except RemotingError as error:
                    _log.info("brokers have not been told of producers: %s", error)
                    self._gone |= gone - self._of.keys()
                    self._told_at = self._clock() - self._beat + _AGAIN
                    return
                self._told, self._told_at = topics, self._clock()
        finally:
            self._telling = False

    async def _tell(self, topics: set[str], gone: Iterable[str]) -> None:
        channel = self._channel
        if channel is None:
            # Its own in every replica, for a broker's list of clients.
            name = f"gantry-producers@{socket.gethostname()}@{os.getpid()}"
            channel = self._channel = self._make(name, _NOWHERE)
            channel.notices = self.check
        for topic in sorted(gone):
            fields = {"clientID": channel.client_id, "producerGroup": topic}
            await ask(self._core, channel, commands.request(RequestCode.UNREGISTER_CLIENT, fields))
        for topic in sorted(topics - self._told):
            try:
                await ask(self._core, channel, _route(topic))
            except TopicNotExist:
                # Not yet, perhaps; we look again with the next heartbeat.
                continue
        if topics:
            body = subscriptions.producer(channel.client_id, sorted(topics))
            await ask(self._core, channel, commands.request(RequestCode.HEART_BEAT, body=body))


def _route(topic: str) -> RemotingCommand:
    """Who asks for a topic's route is made known to its brokers."""
    command = commands.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    command.header["version"] = max(command.version, STANDARD_JSON_VERSION)
    return command


def _recovery(command: RemotingCommand) -> tuple[str, TelemetryCommand]:
    """The topic whose producers CHECK_TRANSACTION_STATE is for, and what it becomes. Raises RemotingError."""
    half = messages.decode_message(command.body)
    transaction = TransactionId(
        command.fields.get("bname", ""),
        command.integer("tranStateTableOffset"),
        command.integer("commitLogOffset"),
        command.fields.get("transactionId") or command.fields.get("msgId", ""),
    )
    recovery = RecoverOrphanedTransactionCommand(
        message=of_stored(half, topic=half.topic), transaction_id=str(transaction)
    )
    return half.topic, TelemetryCommand(recover_orphaned_transaction_command=recovery)
