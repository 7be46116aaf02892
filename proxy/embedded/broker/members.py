"""Members: which clients are in which producer and consumer groups, by connection (RocketMQ's ConsumerManager).

Sans-io: time comes in, and what is to be told to whom comes out as lists of channels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.channel import Channel
from proxy.embedded.broker.filters import Subscription, version

BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Client:
    """Who is at the other end of a channel; `seen` is the time of its last heartbeat (ms)."""

    client_id: str
    language: str
    version: int
    seen: int


@dataclass(slots=True)
class Consumers:
    """A consumer group's members, and what they have in common: the newest heartbeat's word counts."""

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
        """Sorted, each once: a client may have two connections."""
        return sorted({client.client_id for client in self.clients.values()})


class Members:
    """All groups with members."""

    def __init__(self) -> None:
        self.consumers: dict[str, Consumers] = {}
        self.producers: dict[str, dict[Channel, Client]] = {}
        self._turn = 0

    # Joining.

    def produce(self, group: str, channel: Channel, client: Client) -> None:
        """A client is in a producer group."""
        self.producers.setdefault(group, {})[channel] = client

    def consume(self, group: str, channel: Channel, client: Client, data: Mapping[str, Any], keep: bool) -> bool:
        """A client is in a consumer group, as ConsumerData says; true where that changes the group.

        keep: the heartbeat leaves the subscriptions out because they are what they were.
        """
        consumers = self.consumers.setdefault(group, Consumers())
        consumers.consume_type = str(data.get("consumeType") or "")
        consumers.message_model = str(data.get("messageModel") or "")
        consumers.from_where = str(data.get("consumeFromWhere") or "")
        joined = channel not in consumers.clients
        consumers.clients[channel] = client
        return (not keep and _subscribe(consumers, data)) or joined

    # Leaving; what comes out are the channels of those who stay.

    def stop_producing(self, group: str, channel: Channel) -> None:
        """A client leaves a producer group."""
        clients = self.producers.get(group, {})
        clients.pop(channel, None)
        if not clients:
            self.producers.pop(group, None)

    def stop_consuming(self, group: str, channel: Channel) -> bool:
        """A client leaves a consumer group; true where it was in it."""
        consumers = self.consumers.get(group)
        if consumers is None or consumers.clients.pop(channel, None) is None:
            return False
        if not consumers.clients:
            del self.consumers[group]
        return True

    def closed(self, channel: Channel) -> list[str]:
        """A channel has ended; the consumer groups it was in."""
        for group in [group for group, clients in self.producers.items() if channel in clients]:
            self.stop_producing(group, channel)
        return [group for group in list(self.consumers) if self.stop_consuming(group, channel)]

    def expired(self, before: int) -> list[Channel]:
        """Channels of which some group has had no heartbeat since this time."""
        found = {channel: None for channel, client in self._all() if client.seen < before or channel.closed}
        return list(found)

    def _all(self) -> Iterator[tuple[Channel, Client]]:
        for clients in self.producers.values():
            yield from clients.items()
        for consumers in self.consumers.values():
            yield from consumers.clients.items()

    # Finding.

    def subscription(self, group: str, topic: str) -> Subscription | None:
        consumers = self.consumers.get(group)
        return None if consumers is None else consumers.subscriptions.get(topic)

    def producer(self, group: str) -> Channel | None:
        """One member of a producer group after the other."""
        channels = [channel for channel in self.producers.get(group, ()) if not channel.closed]
        if not channels:
            return None
        self._turn += 1
        return channels[self._turn % len(channels)]

    def find(self, client_id: str) -> Channel | None:
        """The channel of a producer with this client id."""
        found = (
            channel
            for clients in self.producers.values()
            for channel, client in clients.items()
            if client.client_id == client_id and not channel.closed
        )
        return next(found, None)

    def subscribers(self, topic: str) -> list[str]:
        """Groups whose members subscribe to a topic."""
        return [group for group, consumers in self.consumers.items() if topic in consumers.subscriptions]


def _subscribe(consumers: Consumers, data: Mapping[str, Any]) -> bool:
    """Take over a heartbeat's subscriptions; true where the set of topics has changed."""
    given = {str(item.get("topic")): item for item in subscribed(data)}
    known = consumers.subscriptions
    changed = given.keys() != known.keys()
    for topic in known.keys() - given.keys():
        del known[topic]
    for topic, item in given.items():
        old = known.get(topic)
        if old is None or version(item) > old.version:
            known[topic] = Subscription(item)
    return changed


def subscribed(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The SubscriptionData of ConsumerData, as far as they are objects."""
    items = data.get("subscriptionDataSet")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
