"""Members of producer and consumer groups, by connection (RocketMQ's ConsumerManager, ProducerManager).

Sans-io: times are arguments, and the channels to notify are return values.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.channel import Channel
from proxy.embedded.broker.filters import Subscription, version

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


class Members:
    """All groups that have members."""

    def __init__(self) -> None:
        self.consumers: dict[str, Consumers] = {}
        self.producers: dict[str, dict[Channel, Client]] = {}
        # Groups of each client of a channel; a replica's channel has many clients.
        self._group_counts: dict[Channel, Counter[str]] = {}
        self._turn = 0

    # Joins.

    def add_producer(self, group: str, channel: Channel, client: Client) -> None:
        """Add a client to a producer group."""
        self._join(self.producers.setdefault(group, {}), channel, client)

    def add_consumer(self, group: str, channel: Channel, client: Client, data: Mapping[str, Any], keep: bool) -> bool:
        """Add a client to a consumer group with its ConsumerData; return whether that changes the group.

        keep: leave the subscriptions as they are, because the heartbeat omits unchanged ones.
        """
        consumers = self.consumers.setdefault(group, Consumers())
        consumers.consume_type = str(data.get("consumeType") or "")
        consumers.message_model = str(data.get("messageModel") or "")
        consumers.from_where = str(data.get("consumeFromWhere") or "")
        joined = self._join(consumers.clients, channel, client)
        return (not keep and _subscribe(consumers, data)) or joined

    def _join(self, clients: dict[Channel, Client], channel: Channel, client: Client) -> bool:
        """Add a client to a group's clients; return whether its channel is new among them."""
        former = self._leave(clients, channel)
        clients[channel] = client
        self._group_counts.setdefault(channel, Counter())[client.client_id] += 1
        return former is None

    def groups_after(self, channel: Channel, client_id: str, producers: Iterable[str], consumers: Iterable[str]) -> int:
        """Return the number of groups of a client after it has joined these."""
        new = sum(channel not in self.producers.get(group, ()) for group in producers)
        for group in consumers:
            members = self.consumers.get(group)
            new += members is None or channel not in members.clients
        return new + self._group_counts.get(channel, Counter())[client_id]

    # Leaves.

    def _leave(self, clients: dict[Channel, Client], channel: Channel) -> Client | None:
        """Remove a channel from a group's clients; return its client."""
        client = clients.pop(channel, None)
        if client is not None:
            counts = self._group_counts[channel]
            counts[client.client_id] -= 1
            if not counts[client.client_id]:
                del counts[client.client_id]
                if not counts:
                    del self._group_counts[channel]
        return client

    def remove_producer(self, group: str, channel: Channel) -> None:
        """Remove a client from a producer group."""
        clients = self.producers.get(group, {})
        self._leave(clients, channel)
        if not clients:
            self.producers.pop(group, None)

    def remove_consumer(self, group: str, channel: Channel) -> bool:
        """Remove a client from a consumer group; return whether it was a member."""
        consumers = self.consumers.get(group)
        if consumers is None or self._leave(consumers.clients, channel) is None:
            return False
        if not consumers.clients:
            del self.consumers[group]
        return True

    def remove_channel(self, channel: Channel) -> list[str]:
        """Remove a channel that has ended from all groups; return its consumer groups."""
        for group in [group for group, clients in self.producers.items() if channel in clients]:
            self.remove_producer(group, channel)
        return [group for group in list(self.consumers) if self.remove_consumer(group, channel)]

    def expired(self, before: int) -> list[Channel]:
        """Return the closed channels, and those without a heartbeat for some group since a time (ms)."""
        expired = {channel: None for channel, client in self._all() if client.last_heartbeat < before or channel.closed}
        return list(expired)

    def _all(self) -> Iterator[tuple[Channel, Client]]:
        for clients in self.producers.values():
            yield from clients.items()
        for consumers in self.consumers.values():
            yield from consumers.clients.items()

    # Lookups.

    def subscription(self, group: str, topic: str) -> Subscription | None:
        consumers = self.consumers.get(group)
        return None if consumers is None else consumers.subscriptions.get(topic)

    def next_producer(self, group: str) -> Channel | None:
        """Return the next member of a producer group in turn, or None."""
        channels = [channel for channel in self.producers.get(group, ()) if not channel.closed]
        if not channels:
            return None
        self._turn += 1
        return channels[self._turn % len(channels)]

    def producer_channel(self, client_id: str) -> Channel | None:
        """Return the channel of a producer with this client id, or None."""
        channels = (
            channel
            for clients in self.producers.values()
            for channel, client in clients.items()
            if client.client_id == client_id and not channel.closed
        )
        return next(channels, None)

    def subscribers(self, topic: str) -> list[str]:
        """Return the groups whose members subscribe to a topic."""
        return [group for group, consumers in self.consumers.items() if topic in consumers.subscriptions]


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
