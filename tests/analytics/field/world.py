"""A deployment without incidents: tenants, topics, groups, clients, brokers, replicas, and their usual rates."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

QUEUES = 4
# Zones with the Sunday on which their clocks change inside the records.
_CHANGES = (
    ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2027, 3, 28, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 3, 14, tzinfo=UTC)),
)
_TENANTS = ("acme", "borealis", "cobalt", "dunlin", "ember", "fjord", "garnet", "harbor")
_NOUNS = ("invoice", "parcel", "ledger", "sensor", "login", "basket", "refund", "booking", "alert", "price")
_TASKS = ("worker", "index", "archive", "notify", "settle")
_SDKS = (
    ("remoting", "JAVA", "V5_1_4"),
    ("remoting", "JAVA", "V4_9_8"),
    ("remoting", "GO", "V4_9_4"),
    ("grpc", "JAVA", "5.0.6"),
    ("grpc", "GOLANG", "5.1.0"),
    ("grpc", "CSHARP", "5.1.0"),
    ("grpc", "PYTHON", "5.0.4"),
)
# Busiest local hour, width of the day in hours, load at night, load at the weekend.
# How much longer requests take at the busiest time, as a share, by seed.
_SLOWER = (0.0, 0.5, 1.0)
_RHYTHMS = ((11, 4.5, 0.08, 0.2), (15, 5.5, 0.15, 0.5), (20, 5.0, 0.2, 1.3), (13, 30.0, 0.8, 1.0))


@dataclass(frozen=True, slots=True)
class Client:
    number: int
    id: str
    address: str
    protocol: str
    language: str
    version: str
    replica: int


@dataclass(slots=True)
class Group:
    number: int
    name: str
    topic: int
    consumers: list[int]


@dataclass(slots=True)
class Topic:
    """rate: messages per minute, at every minute. share: of each producer, at every minute."""

    number: int
    name: str
    tenant: int
    rate: Array
    median_us: float
    failures: float
    body: int
    producers: list[int] = field(default_factory=list)
    share: Array = field(default_factory=lambda: np.empty(0))
    groups: list[Group] = field(default_factory=list)
    weight: float = 1.0
    # Median delay of scheduled messages in ms, for topics that have them.
    delay_ms: float = 0.0


@dataclass(slots=True)
class World:
    seed: int
    zone: str
    begin: datetime
    minutes: int
    brokers: list[str]
    replicas: list[str]
    tenants: list[str]
    topics: list[Topic] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    # Factor of all latencies at each minute: busy systems are slower.
    busy: Array = field(default_factory=lambda: np.empty(0))

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(minutes=self.minutes)

    def at(self, minute: float) -> datetime:
        return self.begin + timedelta(minutes=minute)

    def us(self, minute: float) -> int:
        return round(self.at(minute).timestamp() * 1e6)


def build(seed: int, scale: float = 1.0) -> World:
    """Return the world of a seed. scale: of all rates."""
    random = np.random.default_rng([seed, 101])
    zone, change = _CHANGES[seed % len(_CHANGES)]
    begin = change - timedelta(days=int(random.integers(2, 4)))
    days = int(random.integers(4, 6))
    tenants = [str(name) for name in random.choice(_TENANTS, int(random.integers(4, 7)), replace=False)]
    world = World(
        seed,
        zone,
        begin,
        days * 1440,
        [f"mq-{letter}" for letter in "abcd"[: int(random.integers(2, 5))]],
        [f"edge-{number}" for number in range(int(random.integers(2, 4)))],
        tenants,
    )
    clock = _Clock(world)
    for number in range(int(random.integers(33, 37))):
        tenant = number % len(tenants)
        topic = Topic(
            number,
            f"{tenants[tenant]}%{_NOUNS[number // len(tenants) % len(_NOUNS)]}",
            tenant,
            clock.rate(random, number) * scale,
            float(random.uniform(900, 6000)),
            float(10 ** random.uniform(-3.6, -2.4)),
            int(random.lognormal(6, 1)),
        )
        world.topics.append(topic)
        _populate(world, random, topic)
    total = np.sum([topic.rate for topic in world.topics], axis=0)
    world.busy = 1 + _SLOWER[seed % len(_SLOWER)] * np.minimum(total / np.quantile(total, 0.98), 1.0)
    world.topics[3].weight = 5.0
    world.topics[11].weight = 2.0
    for number in (2, 9, 14):
        world.topics[number].delay_ms = float(random.choice([60_000, 900_000, 3_600_000]))
    return world


class _Clock:
    """Local clock of every minute."""

    def __init__(self, world: World) -> None:
        zone = ZoneInfo(world.zone)
        local = [world.at(minute).astimezone(zone) for minute in range(0, world.minutes, 15)]
        self.hour = np.repeat([time.hour + time.minute / 60 for time in local], 15)
        self.weekend = np.repeat([time.weekday() >= 5 for time in local], 15)

    def rate(self, random: np.random.Generator, number: int) -> Array:
        peak, width, night, weekend = _RHYTHMS[int(random.integers(0, len(_RHYTHMS)))]
        away = np.abs((self.hour - peak - random.uniform(-1, 1) + 12) % 24 - 12)
        rate = night + (1 - night) * np.exp(-0.5 * (away / width) ** 2)
        rate = rate * np.where(self.weekend, weekend, 1.0) * 10 ** random.uniform(-0.2, 0.65)
        if number % 8 == 5:
            # A nightly batch of three quarters of an hour.
            start = random.choice([1.5, 2.25, 3.5])
            rate = rate + np.where((self.hour >= start) & (self.hour < start + 0.75), 25 * rate.mean(), 0)
        return np.asarray(rate)


def _populate(world: World, random: np.random.Generator, topic: Topic) -> None:
    protocol = "remoting" if random.random() < 0.5 else "grpc"
    for _ in range(int(random.integers(3, 6))):
        topic.producers.append(client(world, random, topic.tenant, "p", protocol if random.random() < 0.8 else None))
    shares = random.dirichlet(np.full(len(topic.producers), 20.0))
    topic.share = np.repeat(shares[:, None], world.minutes, axis=1)
    for task in random.choice(_TASKS, 1 + int(random.random() < 0.35), replace=False):
        consuming = "remoting" if random.random() < 0.6 else "grpc"
        members = [client(world, random, topic.tenant, "c", consuming) for _ in range(int(random.integers(2, 5)))]
        group = Group(len(world.groups), f"{topic.name}-{task}", topic.number, members)
        world.groups.append(group)
        topic.groups.append(group)


def client(
    world: World, random: np.random.Generator, tenant: int, kind: str, protocol: str | None, version: str | None = None
) -> int:
    """Add a client; return its number."""
    choices = [sdk for sdk in _SDKS if protocol in (None, sdk[0])]
    # Most clients have one of two SDKs, so that versions can be compared.
    place = 0 if random.random() < 0.5 else int(random.integers(0, len(choices)))
    spoken, language, usual = choices[place]
    number = len(world.clients)
    address = f"172.{16 + world.seed % 8}.{10 * tenant + int(random.integers(0, 2))}.{number % 250 + 2}"
    name = f"{address}@{number + 4000}" if spoken == "remoting" else f"{world.tenants[tenant]}-{kind}{number}@{number}"
    replica = int(random.integers(0, len(world.replicas)))
    world.clients.append(Client(number, name, address, spoken, language, version or usual, replica))
    return number
