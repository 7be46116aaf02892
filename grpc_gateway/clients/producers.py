"""Producers of this replica, which brokers know as a single one that passes on transaction checks.

A broker keeps members by connection: a thousand producers of a topic would take a thousand connections to each of its
brokers, only for occasional transaction checks. Any producer of a topic may answer a check, since its producer group
is the topic's name (as in the official proxy). A heartbeat has a bounded number of groups: of more topics, several
channels represent the producers. Topics that do not exist are not registered, since clients may name any number.
"""

import itertools
import logging
import math
import os
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from grpc_gateway.clients import heartbeat_data
from grpc_gateway.clients.client import Client
from grpc_gateway.clients.server_push import TelemetryPush
from grpc_gateway.core import Core, dispatch
from grpc_gateway.message_decoding import from_stored
from grpc_gateway.transaction_id import TransactionId
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2.service_pb2 import RecoverOrphanedTransactionCommand, TelemetryCommand
from remoting import command as commands
from remoting import messages
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, TopicNotExist
from remoting.loop_turns import LoopTurns
from remoting.tasks import spawn_quietly

_log = logging.getLogger("gantry.grpc")

# Seconds between heartbeats, as in remoting clients, and before the retry of one that failed.
HEARTBEAT_INTERVAL = 30.0
_RETRY_DELAY = 5.0
# Topics of one channel, which have to fit into a heartbeat, and route requests between two turns of the event loop.
_MAX_TOPICS = 500
_LOOKUPS = 16
# Look-ups that fail, for example by a timeout, before the others of a pass wait for the retry as well.
_MAX_FAILED = 8
_NO_PEER = Peer(HostPort("unix:", 0), HostPort("unix:", 0))


@dataclass(slots=True, eq=False)
class Representative:
    """A channel that represents producers to brokers, and the topics that it is registered for."""

    channel: Client
    topics: set[str] = field(default_factory=set)


class Producers:
    """The producers of this replica, by topic.

    make: creates the channels that represent them to brokers. clock: seconds. turns: of steps that take long.
    representatives: these channels. check_listeners: called with the topic and the id of each transaction that a broker
    checks. unanswered: transaction checks without a producer on this replica.
    """

    def __init__(
        self,
        core: Core,
        make: Callable[[str, Peer], Client],
        clock: Callable[[], float],
        heartbeat_interval: float = HEARTBEAT_INTERVAL,
        turns: LoopTurns | None = None,
    ) -> None:
        self._core = core
        self._make = make
        self._clock = clock
        self._heartbeat_interval = heartbeat_interval
        # Dictionaries for ordered sets.
        self._by_topic: dict[str, dict[Client, None]] = {}
        self._topics: dict[Client, frozenset[str]] = {}
        self._turns = LoopTurns() if turns is None else turns
        self.representatives: list[Representative] = []
        # Topics registered with their brokers or found not to exist, and those to unregister.
        self._registered: set[str] = set()
        self._removed: set[str] = set()
        # Topics whose look-up failed, or had to wait for the retry of those that failed.
        self._failed: set[str] = set()
        self._postponed: set[str] = set()
        self._retry_at = math.inf
        self._registered_at = -math.inf
        # Whether topics have become due since the pass began.
        self._interrupted = False
        self._registering = False
        self._next_producer = itertools.count()
        self.check_listeners: list[Callable[[str, TransactionId], None]] = []
        self.unanswered = 0

    def set_topics(self, client: Client, topics: Collection[str]) -> None:
        """Replace the topics that a client publishes to."""
        previous = self._topics.pop(client, frozenset())
        current = frozenset(topics)
        for topic in previous - current:
            producers = self._by_topic[topic]
            producers.pop(client, None)
            if not producers:
                del self._by_topic[topic]
                self._removed.add(topic)
        for topic in current - previous:
            self._by_topic.setdefault(topic, {})[client] = None
            self._removed.discard(topic)
            self._interrupted = True
        if current:
            self._topics[client] = current
        if self._by_topic.keys() != self._registered:
            self._start_registration()

    def sweep(self, now: float) -> None:
        """Send a heartbeat to the brokers if it is due; call every few seconds with the time of `clock`."""
        if self._by_topic and now - self._registered_at >= self._heartbeat_interval:
            # Register all topics again: a topic may have got more brokers. A pass that takes long continues with those
            # that do not exist.
            if self._registering:
                self._registered.difference_update(*(one.topics for one in self.representatives))
            else:
                self._registered.clear()
            self._registered_at = self._clock()
            self._interrupted = True
            self._start_registration()
        elif now >= self._retry_at:
            self._retry_at = math.inf
            self._postponed.clear()
            self._start_registration()

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._by_topic)

    def check_transaction(self, command: RemotingCommand) -> None:
        """Pass a broker's transaction check on to one of the topic's producers; ignore other commands."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            topic, transaction, recovery = _recovery(command)
        except RemotingError as error:
            _log.warning("cannot decode a transaction check of a broker: %s", error)
            return
        for listener in self.check_listeners:
            listener(topic, transaction)
        candidates = self._candidates(topic)
        if not any(client.stream is not None and client.stream.write(recovery) for client in candidates):
            # The broker repeats the check, and other replicas may have producers of the topic.
            self.unanswered += 1
            _log.info("no producer of topic %s on this replica can answer a transaction check", topic)

    def _candidates(self, topic: str) -> Iterable[Client]:
        """Return the topic's producers, beginning with the next one in turn."""
        clients = list(self._by_topic.get(topic, ()))
        start = next(self._next_producer) % len(clients) if clients else 0
        return (*clients[start:], *clients[:start])

    # Registration with the brokers.

    def _start_registration(self) -> None:
        if self._registered_at == -math.inf:
            self._registered_at = self._clock()
        if not self._registering:
            self._registering = True
            spawn_quietly(self._register_until_current())

    async def _register_until_current(self) -> None:
        try:
            while self._due() or self._removed:
                removed, self._removed = self._removed, set()
                self._interrupted = False
                try:
                    await self._register(removed)
                except RemotingError as error:
                    _log.info("registration of producers with brokers failed: %s", error)
                    self._removed |= removed - self._by_topic.keys()
                    self._registered_at = self._clock() - self._heartbeat_interval + _RETRY_DELAY
                    return
        finally:
            self._registering = False

    def _due(self) -> set[str]:
        """Return the topics to register; forget those without producers."""
        for topics in (self._registered, self._failed, self._postponed):
            topics &= self._by_topic.keys()
        return self._by_topic.keys() - self._registered - self._postponed

    async def _register(self, removed: Collection[str]) -> None:
        for representative in self.representatives:
            left = representative.topics.intersection(removed)
            if left:
                representative.topics -= left
                await self._turns.next()
                await self._core.leave(representative.channel, left)
        due = self._due()
        # Look-ups of topics that may not exist do not delay the others.
        known = {topic for topic in due if self._core.cached_route(topic) is not None}
        if known:
            await self._add(self._in_turns(known))
        elif due:
            await self._add(self._in_turns(due))

    def _in_turns(self, topics: set[str]) -> list[str]:
        """Return the topics in the order of look-ups: one of each client in turn, and last those that failed before."""
        ranks: dict[str, int] = {}
        places: dict[Client, int] = {}
        for topic in sorted(topics):
            for client in self._by_topic[topic]:
                place = places[client] = places.get(client, 0) + 1
                ranks[topic] = min(place, ranks.get(topic, place))
        return sorted(ranks, key=lambda topic: (topic in self._failed, ranks[topic]))

    async def _add(self, topics: list[str]) -> None:
        """Register the topics that exist, until others become due or too many look-ups fail. Raises RemotingError."""
        placed = {topic: one for one in self.representatives for topic in one.topics}
        changed: dict[Representative, None] = {}
        done: set[str] = set()
        failures = missing = 0
        for number, topic in enumerate(topics):
            if number % _LOOKUPS == 0:
                await self._turns.next()
            # Ordering the topics again costs as much as a share of the look-ups. Topics that exist do not wait for more
            # that do not.
            if (self._interrupted or (changed and missing)) and number > len(topics) // _LOOKUPS:
                break
            representative = placed.get(topic) or self._with_room()
            try:
                exists = await self._has_route(representative.channel, topic)
            except RemotingError as error:
                _log.info("look-up of topic %s, for the registration of its producers, failed: %s", topic, error)
                self._failed.add(topic)
                self._postpone([topic])
                failures += 1
                if failures == _MAX_FAILED:
                    self._postpone(topics[number:])
                    break
                continue
            self._failed.discard(topic)
            done.add(topic)
            if exists:
                representative.topics.add(topic)
                changed[representative] = None
            else:
                missing += 1
                representative.topics.discard(topic)
        for representative in changed:
            channel = representative.channel
            body = heartbeat_data.producer_heartbeat(channel.client_id, sorted(representative.topics))
            await dispatch(self._core, channel, commands.request(RequestCode.HEART_BEAT, body=body))
        self._registered |= done

    def _postpone(self, topics: Collection[str]) -> None:
        self._postponed.update(topics)
        self._retry_at = self._clock() + _RETRY_DELAY

    async def _has_route(self, channel: Client, topic: str) -> bool:
        """Return whether the topic exists, and register the channel with its brokers. Raises RemotingError."""
        try:
            await dispatch(self._core, channel, _route_request(topic))
        except TopicNotExist:
            # The topic may be created later; the next heartbeat tries again.
            return False
        return True

    def _with_room(self) -> Representative:
        """Return the first representative with room for one more topic, or a new one."""
        for representative in self.representatives:
            if len(representative.topics) < _MAX_TOPICS:
                return representative
        # Unique per replica, for a broker's list of clients.
        name = f"gantry-producers@{socket.gethostname()}@{os.getpid()}"
        number = len(self.representatives)
        channel = self._make(f"{name}@{number}" if number else name, _NO_PEER)
        channel.principal = self._core.own
        channel.representative = True
        channel.push = _TransactionCheckPush(self.check_transaction)
        representative = Representative(channel)
        self.representatives.append(representative)
        return representative


class _TransactionCheckPush(TelemetryPush):
    """Delivers the notices for the representing channel, which has no stream, to the producers."""

    def __init__(self, check_transaction: Callable[[RemotingCommand], None]) -> None:
        self._check_transaction = check_transaction

    def oneway(self, client: Client, command: RemotingCommand) -> None:
        self._check_transaction(command)


def _route_request(topic: str) -> RemotingCommand:
    """Return a route request; the core registers its channel with the brokers of the topic."""
    command = commands.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    command.header["version"] = max(command.version, STANDARD_JSON_VERSION)
    return command


def _recovery(command: RemotingCommand) -> tuple[str, TransactionId, TelemetryCommand]:
    """Return topic, transaction and telemetry command of a CHECK_TRANSACTION_STATE. Raises RemotingError."""
    half_message = messages.decode_message(command.body)
    transaction = TransactionId(
        command.fields.get("bname", ""),
        command.integer("tranStateTableOffset"),
        command.integer("commitLogOffset"),
        command.fields.get("transactionId") or command.fields.get("msgId", ""),
    )
    recovery = RecoverOrphanedTransactionCommand(
        message=from_stored(half_message, topic=half_message.topic), transaction_id=str(transaction)
    )
    return half_message.topic, transaction, TelemetryCommand(recover_orphaned_transaction_command=recovery)
