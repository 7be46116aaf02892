"""The world: tenants, topics, groups, clients, brokers and replicas, and the flows of requests between them."""

from dataclasses import dataclass, field

import numpy as np

BROKERS = ("broker-a", "broker-b", "broker-c")
REPLICAS = ("gantry-0", "gantry-1", "gantry-2")
WORKERS = 2
QUEUES_PER_BROKER = 4

# Name, busiest hour of the day (UTC), share of its working-day load at the weekend, and weight.
_TENANTS = (
    ("shop", 18, 1.2, 8.0),
    ("bank", 10, 0.3, 5.0),
    ("media", 20, 1.4, 4.0),
    ("fleet", 13, 0.6, 3.0),
    ("games", 21, 1.6, 3.0),
    ("health", 9, 0.4, 2.0),
    ("travel", 3, 1.1, 2.0),
    ("energy", 7, 0.9, 1.5),
    ("telecom", 12, 0.8, 1.5),
    ("press", 6, 0.7, 1.0),
)
_TOPICS = ("orders", "payments", "events", "invoices", "stock", "notices")
_CONSUMERS = ("billing", "search", "audit", "mail", "warehouse")
# Protocol, language, version, share of the clients. Remoting sends language and version in the header.
_SDKS = (
    ("grpc", "JAVA", "5.0.7", 0.20),
    ("grpc", "JAVA", "5.0.5", 0.06),
    ("grpc", "GOLANG", "5.1.2", 0.14),
    ("grpc", "PYTHON", "5.0.4", 0.06),
    ("grpc", "RUST", "5.0.0", 0.04),
    ("remoting", "JAVA", "V5_3_3", 0.20),
    ("remoting", "JAVA", "V4_9_7", 0.16),
    ("remoting", "JAVA", "V4_3_0", 0.05),
    ("remoting", "GO", "V4_9_4", 0.05),
    ("remoting", "CPP", "V4_6_0", 0.04),
)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace with its own daily rhythm. peak: its busiest hour, UTC; weekend: load against a working day's."""

    name: str
    peak: int
    weekend: float
    weight: float


@dataclass(frozen=True, slots=True)
class Client:
    """One client, at its home replica."""

    number: int
    id: str
    address: str
    protocol: str
    language: str
    version: str
    replica: int
    worker: int
    tls: bool


@dataclass(slots=True)
class Topic:
    """A topic. rate: messages, relative. fifo: its queues follow the keys. size: of a body, median, bytes."""

    number: int
    name: str
    tenant: int
    rate: float
    fifo: bool
    size: int
    producers: list[Client] = field(default_factory=list)
    groups: list["Group"] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """A consumer group of one topic."""

    number: int
    name: str
    topic: int
    consumers: list[Client] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Flow:
    """One client with one kind of request for one topic. rate: requests, relative. role: the form of its rows."""

    client: int
    code: str
    role: str
    topic: int
    group: int
    rate: float


@dataclass(slots=True)
class World:
    tenants: list[Tenant]
    topics: list[Topic] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)


# Average messages of one delivering request, by protocol, and the share of empty requests.
BATCH = {"remoting": 4.0, "grpc": 2.0}
EMPTY = 0.3

# Role, code by protocol: requests per received message (None: absent from the protocol).
_CONSUMING = {
    "receive": ({"remoting": "PULL_MESSAGE", "grpc": "ReceiveMessage"}, None),
    "ack": ({"remoting": "UPDATE_CONSUMER_OFFSET", "grpc": "AckMessage"}, {"remoting": 0.1, "grpc": 1.0}),
    "nack": ({"remoting": "CONSUMER_SEND_MSG_BACK", "grpc": "ChangeInvisibleDuration"}, None),
    "bury": ({"grpc": "ForwardMessageToDeadLetterQueue"}, None),
}
_NACKED = 0.004
_BURIED = 0.0004
# Share of a client's requests that are not about messages.
_UPKEEP = {
    "heartbeat": ({"remoting": "HEART_BEAT", "grpc": "Heartbeat"}, 0.01),
    "route": ({"remoting": "GET_ROUTEINFO_BY_TOPIC", "grpc": "QueryRoute"}, 0.01),
}


def build(tenants: int, seed: int) -> World:
    """Return the world of a seed."""
    random = np.random.default_rng([seed, 1])
    world = World([_tenant(number) for number in range(tenants)])
    for number, tenant in enumerate(world.tenants):
        for place in range(int(random.integers(2, 5))):
            rate = tenant.weight / (place + 1) ** 1.2
            topic = Topic(
                len(world.topics),
                f"{tenant.name}%{_TOPICS[(number + place) % len(_TOPICS)]}",
                number,
                rate,
                fifo=bool(random.random() < 0.3),
                size=int(random.lognormal(6.5, 0.8)),
            )
            world.topics.append(topic)
            topic.producers = [_client(world, random, tenant, "producer") for _ in range(int(random.integers(2, 5)))]
            for choice in random.choice(len(_CONSUMERS), size=int(random.integers(1, 3)), replace=False):
                group = Group(len(world.groups), f"{topic.name}-{_CONSUMERS[choice]}", topic.number)
                group.consumers = [
                    _client(world, random, tenant, "consumer") for _ in range(int(random.integers(2, 5)))
                ]
                topic.groups.append(group)
                world.groups.append(group)
    for topic in world.topics:
        world.flows += _producing(topic)
        for group in topic.groups:
            world.flows += _group_flows(group, topic.rate)
    return world


def _tenant(number: int) -> Tenant:
    name, peak, weekend, weight = _TENANTS[number % len(_TENANTS)]
    round_ = number // len(_TENANTS)
    return Tenant(f"{name}{round_ + 1}" if round_ else name, (peak + 5 * round_) % 24, weekend, weight / (1 + round_))


def _client(world: World, random: np.random.Generator, tenant: Tenant, kind: str) -> Client:
    shares = np.array([sdk[3] for sdk in _SDKS])
    protocol, language, version, _ = _SDKS[int(random.choice(len(_SDKS), p=shares / shares.sum()))]
    number = len(world.clients)
    address = f"10.{world.tenants.index(tenant)}.{number // 250}.{number % 250 + 1}"
    suffix = int(random.integers(1000, 60000))
    client = Client(
        number,
        f"{tenant.name}-{kind}-{number}@{suffix}" if protocol == "grpc" else f"{address}@{suffix}#{number}",
        address,
        protocol,
        language,
        version,
        number % len(REPLICAS),
        int(random.integers(0, WORKERS)),
        tls=bool(random.random() < 0.4),
    )
    world.clients.append(client)
    return client


def _producing(topic: Topic) -> list[Flow]:
    flows = []
    for client in topic.producers:
        code = "SEND_MESSAGE_V2" if client.protocol == "remoting" else "SendMessage"
        rate = topic.rate / len(topic.producers)
        flows.append(Flow(client.number, code, "send", topic.number, -1, rate))
        flows += _upkeep(client, topic.number, -1, rate)
    return flows


def _group_flows(group: Group, rate: float) -> list[Flow]:
    flows = []
    for client in group.consumers:
        share = rate / len(group.consumers)
        requests = share / BATCH[client.protocol] / (1 - EMPTY)
        rates = {"receive": requests, "nack": share * _NACKED, "bury": share * _BURIED}
        for role, (codes, per_message) in _CONSUMING.items():
            if client.protocol in codes:
                often = share * per_message[client.protocol] if per_message else rates[role]
                flows.append(Flow(client.number, codes[client.protocol], role, group.topic, group.number, often))
        flows += _upkeep(client, group.topic, group.number, requests)
    return flows


def _upkeep(client: Client, topic: int, group: int, rate: float) -> list[Flow]:
    return [
        Flow(client.number, codes[client.protocol], role, topic, group, rate * share)
        for role, (codes, share) in _UPKEEP.items()
    ]
