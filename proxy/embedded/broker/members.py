"""Members of producer and consumer groups, by connection (RocketMQ's ConsumerManager, ProducerManager).

Sans-io: times are arguments, and the channels to notify are return values.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.channel import Channel
from proxy.embedded.broker.filters import Subscription, version
from remoting.counts import count_down

BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Client:
    """The client of a channel. last_heartbeat: in ms."""

    client_id: str
    language: str
    version: int
    last_heartbeat: int


@dataclass(slots=True)
class Consumers:
    """A consumer group's members and their common properties, taken from the latest heartbeat."""

    clients: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    consume_type: str = ""
    message_model: str = ""
    from_where: str = ""

    @property
    def broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """The members' ids, sorted and unique: a client may have two connections."""
        return sorted({client.client_id for client in self.clients.values()})


@dataclass(slots=True)
class _Memberships:
    """The groups of a channel, and their number by client id; a replica's channel has many clients."""

    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


class Members:
    """All groups that have members."""

    def __init__(self) -> None:
        self.consumers: dict[str, Consumers] = {}
        self.producers: dict[str, dict[Channel, Client]] = {}
        # A closed connection must not cost a search of all groups, of which clients may create any number.
        self._memberships: dict[Channel, _Memberships] = {}
        # The number of producer groups by client id and channel.
        self._producer_channels: dict[str, Counter[Channel]] = {}
        self._turn = 0

    # Joins.

    def add_producer(self, group: str, channel: Channel, client: Client) -> None:
        """Add a client to a producer group."""
        clients = self.producers.setdefault(group, {})
        self._forget_producer(channel, clients.get(channel))
        self._join(clients, channel, client).producers.add(group)
        self._producer_channels.setdefault(client.client_id, Counter())[channel] += 1

    def add_consumer(self, group: str, channel: Channel, client: Client, data: Mapping[str, Any], keep: bool) -> bool:
        """Add a client to a consumer group with its ConsumerData; return whether that changes the group.

        keep: leave the subscriptions as they are, because the heartbeat omits unchanged ones.
        """
        consumers = self.consumers.setdefault(group, Consumers())
        consumers.consume_type = str(data.get("consumeType") or "")
        consumers.message_model = str(data.get("messageModel") or "")
        consumers.from_where = str(data.get("consumeFromWhere") or "")
        joined = channel not in consumers.clients
        self._join(consumers.clients, channel, client).consumers.add(group)
        return (not keep and _subscribe(consumers, data)) or joined

    def _join(self, clients: dict[Channel, Client], channel: Channel, client: Client) -> _Memberships:
        """Add a client to a group's clients; return the memberships of its channel."""
        memberships = self._memberships.setdefault(channel, _Memberships())
        former = clients.get(channel)
        if former is not None:
            count_down(memberships.counts, former.client_id)
        clients[channel] = client
        memberships.counts[client.client_id] += 1
        return memberships

    def groups_after(self, channel: Channel, client_id: str, producers: Iterable[str], consumers: Iterable[str]) -> int:
        """Return the number of groups of a client after it has joined these."""
        memberships = self._memberships.get(channel, _NO_MEMBERSHIPS)
        new = len(set(producers) - memberships.producers) + len(set(consumers) - memberships.consumers)
        return new + memberships.counts[client_id]

    # Leaves.

    def remove_producer(self, group: str, channel: Channel) -> None:
        """Remove a client from a producer group."""
        clients = self.producers.get(group, {})
        client = clients.pop(channel, None)
        if client is None:
            return
        self._forget_producer(channel, client)
        memberships = self._memberships[channel]
        memberships.producers.discard(group)
        self._forget(channel, memberships, client)
        if not clients:
            del self.producers[group]

    def remove_consumer(self, group: str, channel: Channel) -> bool:
        """Remove a client from a consumer group; return whether it was a member."""
        consumers = self.consumers.get(group)
        client = None if consumers is None else consumers.clients.pop(channel, None)
        if consumers is None or client is None:
            return False
        memberships = self._memberships[channel]
        memberships.consumers.discard(group)
        self._forget(channel, memberships, client)
        if not consumers.clients:
            del self.consumers[group]
        return True

    def _forget(self, channel: Channel, memberships: _Memberships, client: Client) -> None:
        """Count a client's group down, and forget a channel that has left all groups."""
        count_down(memberships.counts, client.client_id)
        if not memberships.counts:
            del self._memberships[channel]

    def _forget_producer(self, channel: Channel, client: Client | None) -> None:
        """Count a producer group of a client down; None: it was no member."""
        if client is None:
            return
        channels = self._producer_channels[client.client_id]
        count_down(channels, channel)
        if not channels:
            del self._producer_channels[client.client_id]

    def remove_channel(self, channel: Channel) -> list[str]:
        """Remove a channel that has ended from all groups; return its consumer groups."""
        memberships = self._memberships.get(channel)
        if memberships is None:
            return []
        consumers = list(memberships.consumers)
        for group in list(memberships.producers):
            self.remove_producer(group, channel)
        for group in consumers:
            self.remove_consumer(group, channel)
        return consumers

    def channels(self) -> list[Channel]:
        """Return all channels, some of which may be closed."""
        return list(self._memberships)

    def is_expired(self, channel: Channel, before: int) -> bool:
        """Return whether a channel is closed, or without a heartbeat for some group since a time (ms)."""
        return channel.closed or any(client.last_heartbeat < before for client in self._clients(channel))

    def _clients(self, channel: Channel) -> Iterator[Client]:
        """Yield the client of each group that a channel is in."""
        memberships = self._memberships.get(channel, _NO_MEMBERSHIPS)
        for group in memberships.producers:
            yield self.producers[group][channel]
        for group in memberships.consumers:
            yield self.consumers[group].clients[channel]

    # Lookups.

    def memberships(self) -> Iterator[tuple[Channel, str]]:
        """Yield each channel with each of its consumer groups."""
        for channel, memberships in self._memberships.items():
            for group in memberships.consumers:
                yield channel, group

    def subscription(self, group: str, topic: str) -> Subscription | None:
        consumers = self.consumers.get(group)
        return None if consumers is None else consumers.subscriptions.get(topic)

    def producers_in_turn(self, group: str) -> list[Channel]:
        """Return the members of a producer group, another one first each time."""
        channels = [channel for channel in self.producers.get(group, ()) if not channel.closed]
        if not channels:
            return channels
        self._turn += 1
        first = self._turn % len(channels)
        return channels[first:] + channels[:first]

    def producer_channels(self, client_id: str) -> list[Channel]:
        """Return the channels of producers with this client id."""
        return [channel for channel in self._producer_channels.get(client_id, ()) if not channel.closed]

    def subscribers(self, topic: str) -> list[str]:
        """Return the groups whose members subscribe to a topic."""
        return [group for group, consumers in self.consumers.items() if topic in consumers.subscriptions]


_NO_MEMBERSHIPS = _Memberships()


def _subscribe(consumers: Consumers, data: Mapping[str, Any]) -> bool:
    """Apply a heartbeat's subscriptions; return whether the set of topics has changed."""
    new = {str(item.get("topic")): item for item in subscribed(data)}
    current = consumers.subscriptions
    changed = new.keys() != current.keys()
    for topic in current.keys() - new.keys():
        del current[topic]
    for topic, item in new.items():
        old = current.get(topic)
        if old is None or version(item) > old.version:
            current[topic] = Subscription(item)
    return changed


def subscribed(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the SubscriptionData of ConsumerData that are objects."""
    items = data.get("subscriptionDataSet")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
